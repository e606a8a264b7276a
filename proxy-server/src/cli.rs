//! The commands of `millrace-server`.

use std::process::ExitCode;

use crate::rules::{self, RulesArgs};
use clap::{Parser, Subcommand};
use millrace_ops::certificates;
use millrace_ops::certificates::CertificatesArgs;
use millrace_ops::cli::{self, ConfigArgs};
use millrace_ops::doctor::DoctorArgs;
use millrace_tunnel::algorithms;
use millrace_tunnel::credentials::CertificateOwner;

#[derive(Parser)]
#[command(version, about = "Millrace tunnel server (origin side)")]
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
    /// Make a certificate authority, and certificates for servers and clients
    Certificates(CertificatesArgs),
    /// Check and explain rules for congestion control selection
    Rules(RulesArgs),
}

/// What the program does, from its command line to its exit code.
pub fn main() -> ExitCode {
    cli::exit_code("millrace-server", run(ServerCli::parse().command))
}

fn run(command: ServerCommand) -> anyhow::Result<ExitCode> {
    match command {
        ServerCommand::Run(ConfigArgs { config }) => {
            let config = millrace_config::load_server(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            crate::run::run(&config)
        }
        ServerCommand::Doctor(arguments) => crate::doctor::run(&arguments),
        ServerCommand::Check(ConfigArgs { config }) => {
            let path = config.display().to_string();
            let config = millrace_config::load_server(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            let credentials = &config.tunnel.credentials;
            cli::report_check(&path, CertificateOwner::Server, credentials, &config.source)
        }
        ServerCommand::Rules(arguments) => rules::run(arguments),
        ServerCommand::Certificates(arguments) if arguments.list => {
            for line in certificates::list(&arguments.dir)? {
                println!("{line}");
            }
            Ok(ExitCode::SUCCESS)
        }
        ServerCommand::Certificates(arguments) => {
            for report in certificates::run(&arguments, time::OffsetDateTime::now_utc())? {
                println!("{report}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
