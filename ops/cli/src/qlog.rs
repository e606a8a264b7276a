//! `qlog`: traces of connections.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use millrace_ops::terminal_text::printable;
use serde::Deserialize;

use crate::admin::{AdminApi, AdminApiError, AdminArgs, path_segment};
use crate::output::print;
use crate::program::Program;
use crate::units;

/// Arguments of the command `qlog`.
#[derive(Args, Clone, Debug)]
pub struct QlogArgs {
    #[command(subcommand)]
    command: QlogCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum QlogCommand {
    /// List running traces
    List {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Start the trace of a connection, in a file in admin.qlog_dir
    Start {
        #[command(flatten)]
        admin: AdminArgs,
        /// The connection, by its ID in the last column of the command flows
        connection: String,
    },
    /// Stop the trace of a connection
    Stop {
        #[command(flatten)]
        admin: AdminArgs,
        /// The connection, by its ID
        connection: String,
    },
}

#[derive(Deserialize)]
struct TracesAnswer {
    traces: Vec<RunningTrace>,
}

#[derive(Deserialize)]
struct RunningTrace {
    connection: String,
    file: PathBuf,
    bytes: u64,
    left_out_bytes: u64,
}

#[derive(Deserialize)]
struct TraceFile {
    file: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// The program did not do it ([`AdminApiError`]).
pub(crate) fn run(arguments: &QlogArgs, program: Program) -> anyhow::Result<ExitCode> {
    let text = match &arguments.command {
        QlogCommand::List { admin } => list(&admin.api(program)?)?,
        QlogCommand::Start { admin, connection } => {
            change(&admin.api(program)?, Method::PUT, connection)?
        }
        QlogCommand::Stop { admin, connection } => {
            change(&admin.api(program)?, Method::DELETE, connection)?
        }
    };
    print(text.as_bytes())
}

fn list(api: &AdminApi) -> Result<String, AdminApiError> {
    let TracesAnswer { traces } = api.json(Method::GET, "/qlog")?;
    let line = |trace: RunningTrace| {
        let RunningTrace { connection, file, bytes, left_out_bytes } = trace;
        let (bytes, left_out) = (units::bytes(bytes), units::bytes(left_out_bytes));
        format!(
            "{connection}: {}, {bytes} written, {left_out} left out\n",
            printable(&file.display().to_string())
        )
    };
    Ok(traces.into_iter().map(line).collect())
}

/// The file of the trace that was started or stopped.
fn change(api: &AdminApi, method: Method, connection: &str) -> Result<String, AdminApiError> {
    let path = format!("/qlog/{}", path_segment(connection));
    let TraceFile { file } = api.json(method, &path)?;
    Ok(format!("{}\n", printable(&file.display().to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::test_listener::{AdminFixture, CONNECTION};

    #[test]
    fn traces_are_listed_started_and_stopped() {
        let fixture = AdminFixture::start(Vec::new());
        let api = fixture.api(None);
        assert_eq!(list(&api).unwrap(), "0a0b: /tmp/a.sqlog, 2.5 MB written, 0 B left out\n");
        assert_eq!(change(&api, Method::PUT, CONNECTION).unwrap(), "/tmp/a.sqlog\n");
        let error = change(&api, Method::DELETE, CONNECTION).unwrap_err().to_string();
        assert!(error.contains("not being traced"), "{error}");
        let error = change(&api, Method::PUT, "zz").unwrap_err().to_string();
        assert!(error.contains("in hexadecimal"), "{error}");
    }
}
