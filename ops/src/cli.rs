//! What the command lines of both programs share.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millrace_config::{ConfigError, Credentials, Source};
use millrace_tunnel::credentials;
use millrace_tunnel::credentials::CertificateOwner;

use crate::output;

/// Which configuration a command is about.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Configuration file
    #[arg(long)]
    pub config: PathBuf,
}

/// The exit code of `program`: its own, or that of an error, which is printed first.
pub fn exit_code(program: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        output::error_line(format_args!("{program}: {error:#}"));
        match error.is::<ConfigError>() {
            true => ExitCode::from(ConfigError::EXIT_CODE),
            false => ExitCode::FAILURE,
        }
    })
}

/// Prints the warnings about `credentials`, and that the configuration in the file `path` is valid.
///
/// # Errors
/// The credentials can't be used.
pub fn report_check(
    path: &str,
    end: CertificateOwner,
    credentials: &Credentials,
    source: &Source,
) -> anyhow::Result<ExitCode> {
    for warning in credentials::check(end, credentials, source)? {
        output::line(format_args!("{path}: warning: {}: {warning}", warning.key))?;
    }
    output::line(format_args!("{path}: ok"))?;
    Ok(ExitCode::SUCCESS)
}
