//! Standard output of commands that only print.

use std::process::ExitCode;

use millrace_ops::output;

/// Writes to standard output.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    output::bytes(text)?;
    Ok(ExitCode::SUCCESS)
}
