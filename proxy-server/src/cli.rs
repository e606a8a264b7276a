//! The commands of `millrace-server`.

use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use millrace_cli::{Program, SharedCommand, with_default_config};
use millrace_ops::certificates;
use millrace_ops::certificates::CertificatesArgs;
use millrace_ops::cli::{self, ConfigArgs};
use millrace_ops::doctor::DoctorArgs;
use millrace_ops::output;
use millrace_tunnel::algorithms;
use millrace_tunnel::credentials::CertificateOwner;
use millrace_version::VERSION;

use crate::init::{self, InitArgs};
use crate::invite::{self, InviteArgs};
use crate::rules::{self, RulesArgs};
use crate::settings::DEFAULT_CONFIG;

const PROGRAM: Program = Program {
    command,
    load_admin: |file| Ok(millrace_config::load_server(file, &algorithms::check)?.admin),
};

#[derive(Parser)]
#[command(version = VERSION, about = "Millrace tunnel server (origin side)")]
struct ServerCli {
    #[command(subcommand)]
    command: ServerCommand,
}

#[derive(Subcommand)]
enum ServerCommand {
    /// Run the server
    Run(ConfigArgs),
    /// Check a configuration and the files it names; binds nothing
    Check(ConfigArgs),
    /// Diagnose configuration and host problems
    Doctor(DoctorArgs),
    /// Set up a new server: configuration, certificate authority and certificate
    Init(InitArgs),
    /// Print a token with which a new client joins
    Invite(InviteArgs),
    /// Make a certificate authority, and certificates for servers and clients
    Certificates(CertificatesArgs),
    /// Check and explain rules for congestion control selection
    Rules(RulesArgs),
    #[command(flatten)]
    Shared(SharedCommand),
}

/// What the program does, from its command line to its exit code.
pub fn main() -> ExitCode {
    cli::exit_code("millrace-server", parse().and_then(|it| run(it.command)))
}

/// The command line, with the defaults that differ between the programs.
#[must_use]
pub fn command() -> Command {
    with_default_config(ServerCli::command(), DEFAULT_CONFIG)
}

/// Exits with a message if the command line is wrong.
fn parse() -> anyhow::Result<ServerCli> {
    ServerCli::from_arg_matches(&command().get_matches()).map_err(Into::into)
}

fn run(command: ServerCommand) -> anyhow::Result<ExitCode> {
    match command {
        ServerCommand::Run(ConfigArgs { config }) => {
            let config = millrace_config::load_server(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            crate::run::run(&config)
        }
        ServerCommand::Shared(shared) => shared.run(PROGRAM),
        ServerCommand::Doctor(arguments) => crate::doctor::run(&arguments),
        ServerCommand::Check(ConfigArgs { config }) => {
            let path = config.display().to_string();
            let config = millrace_config::load_server(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            let credentials = &config.tunnel.credentials;
            cli::report_check(&path, CertificateOwner::Server, credentials, &config.source)
        }
        ServerCommand::Init(arguments) => init::run(&arguments),
        ServerCommand::Invite(arguments) => invite::run(&arguments),
        ServerCommand::Rules(arguments) => rules::run(arguments),
        ServerCommand::Certificates(arguments) if arguments.list => {
            for line in certificates::list(&arguments.dir)? {
                output::line(line)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        ServerCommand::Certificates(arguments) => {
            for report in certificates::run(&arguments, time::OffsetDateTime::now_utc())? {
                output::line(report)?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
