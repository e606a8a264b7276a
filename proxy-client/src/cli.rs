//! The commands of `millrace-client`.

use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use millrace_cli::{Program, SharedCommand, with_default_config};
use millrace_ops::cli::{self, ConfigArgs};
use millrace_ops::doctor::DoctorArgs;
use millrace_ops::output;
use millrace_tunnel::algorithms;
use millrace_tunnel::credentials::CertificateOwner;
use millrace_version::VERSION;

use crate::join::{self, JoinArgs};
use crate::nginx::{self, NginxArgs};
use crate::rtsp_check::{self, RtspProblem};
use crate::settings::DEFAULT_CONFIG;

const PROGRAM: Program = Program {
    command,
    load_admin: |file| Ok(millrace_config::load_client(file, &algorithms::check)?.admin),
};

#[derive(Parser)]
#[command(version = VERSION, about = "Millrace tunnel client (viewer side)")]
struct ClientCli {
    #[command(subcommand)]
    command: ClientCommand,
}

#[derive(Subcommand)]
enum ClientCommand {
    /// Run the client
    Run(ConfigArgs),
    /// Check a configuration and the files it names; binds nothing
    Check(ConfigArgs),
    /// Diagnose configuration and host problems
    Doctor(DoctorArgs),
    /// Enrol this client with the token of an invitation, and write its configuration
    Join(JoinArgs),
    /// Renew the certificate now; a running client does it in time by itself
    Renew(ConfigArgs),
    /// Start nginx with transparent listening sockets, which it can't open itself
    Nginx(NginxArgs),
    #[command(flatten)]
    Shared(SharedCommand),
}

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    cli::exit_code("millrace-client", parse().and_then(|it| run(it.command)))
}

/// The command line, with the defaults that differ between the programs.
#[must_use]
pub fn command() -> Command {
    with_default_config(ClientCli::command(), DEFAULT_CONFIG)
}

/// Exits with a message if the command line is wrong.
fn parse() -> anyhow::Result<ClientCli> {
    ClientCli::from_arg_matches(&command().get_matches()).map_err(Into::into)
}

fn run(command: ClientCommand) -> anyhow::Result<ExitCode> {
    match command {
        ClientCommand::Run(ConfigArgs { config }) => {
            let config = millrace_config::load_client(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            crate::run::run(&config)
        }
        ClientCommand::Shared(shared) => shared.run(PROGRAM),
        ClientCommand::Doctor(arguments) => crate::doctor::run(&arguments),
        ClientCommand::Check(ConfigArgs { config }) => {
            let path = config.display().to_string();
            let config = millrace_config::load_client(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            for RtspProblem { key, problem, remedy } in rtsp_check::check(&config) {
                output::line(format_args!("{path}: warning: {key}: {problem}; {remedy}"))?;
            }
            let credentials = &config.tunnel.credentials;
            cli::report_check(&path, CertificateOwner::Client, credentials, &config.source)
        }
        ClientCommand::Join(arguments) => join::join(&arguments),
        ClientCommand::Renew(ConfigArgs { config }) => join::renew(&config),
        ClientCommand::Nginx(arguments) => nginx::run(&arguments),
    }
}
