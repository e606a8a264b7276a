//! Standard output of commands.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Writes to standard output. A reader that has ended, such as `head`, is no error.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    let mut output = io::stdout().lock();
    match output.write_all(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
