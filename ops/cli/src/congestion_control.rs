//! `cc`: the congestion control of a connection.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use millrace_ops::terminal_text::printable;
use serde::Deserialize;
use serde_json::Value;

use crate::admin::{AdminApi, AdminApiError, AdminArgs, path_segment};
use crate::output::print;
use crate::program::Program;

/// Arguments of the command `cc`.
#[derive(Args, Clone, Debug)]
pub struct CcArgs {
    #[command(subcommand)]
    command: CcCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum CcCommand {
    /// Replace the algorithm that this end sends with on a connection, and pin it
    Set {
        #[command(flatten)]
        target: CcTarget,
        /// The algorithm; the command algorithms lists them
        algorithm: String,
    },
    /// Change a setting of the current algorithm
    Tune {
        #[command(flatten)]
        target: CcTarget,
        #[command(flatten)]
        setting: CcSetting,
    },
    /// Return the choice of a pinned algorithm to flows and rules
    Release {
        #[command(flatten)]
        target: CcTarget,
    },
    /// Print input and choice of the rules for a connection, as JSON
    Explain {
        #[command(flatten)]
        target: CcTarget,
    },
}

/// A connection of a running program.
#[derive(Args, Clone, Debug)]
struct CcTarget {
    #[command(flatten)]
    admin: AdminArgs,
    /// The connection, by its ID in the last column of the command flows
    connection: String,
}

/// One setting of an algorithm.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
struct CcSetting {
    /// Share of the bottleneck for vivace-weighted, above 0 and at most 1
    #[arg(long)]
    share: Option<f64>,
    /// Rate above which proteus-h yields to other flows, in Mbit/s
    #[arg(long)]
    yield_above_mbps: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct CcAnswer {
    algorithm: String,
    pinned: bool,
}

/// Runs the command.
///
/// # Errors
/// The program did not do it ([`AdminApiError`]).
pub(crate) fn run(arguments: &CcArgs, program: Program) -> anyhow::Result<ExitCode> {
    let (target, method, query) = match &arguments.command {
        CcCommand::Explain { target } => {
            let api = target.admin.api(program)?;
            let explained: Value = api.json(Method::GET, &path(&target.connection, ""))?;
            return print(format!("{explained:#}\n").as_bytes());
        }
        CcCommand::Set { target, algorithm } => {
            (target, Method::PUT, format!("?algorithm={}", path_segment(algorithm)))
        }
        CcCommand::Tune { target, setting } => (target, Method::PUT, setting.query()),
        CcCommand::Release { target } => (target, Method::DELETE, String::new()),
    };
    let api = target.admin.api(program)?;
    let answer = change(&api, method, &target.connection, &query)?;
    print(answer.as_bytes())
}

impl CcSetting {
    fn query(&self) -> String {
        match (self.share, self.yield_above_mbps) {
            (Some(share), _) => format!("?share={share}"),
            (None, rate) => format!("?yield_above_mbps={}", rate.unwrap_or_default()),
        }
    }
}

fn path(connection: &str, query: &str) -> String {
    format!("/congestion_control/{}{query}", path_segment(connection))
}

fn change(
    api: &AdminApi,
    method: Method,
    connection: &str,
    query: &str,
) -> Result<String, AdminApiError> {
    let CcAnswer { algorithm, pinned } = api.json(method, &path(connection, query))?;
    let pinned = if pinned { "pinned" } else { "not pinned" };
    Ok(format!("{connection}: {}, {pinned}\n", printable(&algorithm)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::test_listener::{AdminFixture, CONNECTION};

    #[test]
    fn an_algorithm_is_set_and_released() {
        let fixture = AdminFixture::start(Vec::new());
        let api = fixture.api(None);
        let set = change(&api, Method::PUT, CONNECTION, "?algorithm=bbr").unwrap();
        assert_eq!(set, "0a0b: bbr, pinned\n");
        let released = change(&api, Method::DELETE, CONNECTION, "").unwrap();
        assert_eq!(released, "0a0b: cubic, not pinned\n");
    }

    #[test]
    fn what_the_program_refuses_is_said_with_its_reason() {
        let fixture = AdminFixture::start(Vec::new());
        let api = fixture.api(None);
        let refused = |connection: &str, query: &str| {
            change(&api, Method::PUT, connection, query).unwrap_err().to_string()
        };
        let unknown = refused(CONNECTION, "?algorithm=fast");
        assert!(unknown.contains("unknown congestion control \"fast\""), "{unknown}");
        assert!(refused("0c", "?algorithm=bbr").contains("no such connection"));
        assert!(refused("../flows", "?algorithm=bbr").contains("in hexadecimal"));
        let share = CcSetting { share: Some(0.5), yield_above_mbps: None };
        assert!(refused(CONNECTION, &share.query()).contains("cubic does not take share"));
        let rate = CcSetting { share: None, yield_above_mbps: Some(4.0) };
        assert!(refused(CONNECTION, &rate.query()).contains("proteus-h"));
    }
}
