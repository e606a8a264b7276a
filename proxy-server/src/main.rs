//! `millrace-server`: the end of the tunnel near the origin.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millrace_server::rules::{self, RulesArgs};
use millrace_tunnel::algorithms;
use millrace_tunnel::certificates::{self, CertificatesArgs};
use millrace_tunnel::cli::{self, ConfigArgs};
use millrace_tunnel::credentials::{self, End};
use millrace_tunnel::doctor::DoctorArgs;

#[derive(Parser)]
#[command(version, about = "The end of the Millrace tunnel near the origin")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the server
    Run(ConfigArgs),
    /// Checks a configuration and the files it names; binds nothing
    Check(ConfigArgs),
    /// Finds out why a configuration does not work on this machine, and says what to do
    Doctor(DoctorArgs),
    /// Makes a certificate authority, and certificates for servers and clients
    Certificates(CertificatesArgs),
    /// Checks and explains rules by which congestion control is selected
    Rules(RulesArgs),
}

fn main() -> ExitCode {
    cli::exit_code("millrace-server", run(Cli::parse().command))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(ConfigArgs { config }) => {
            let config = millrace_config::load_server(&config, &algorithms::check)?;
            millrace_server::run::check(&config)?;
            millrace_server::run::run(&config)
        }
        Command::Doctor(arguments) => millrace_server::doctor::run(&arguments),
        Command::Check(ConfigArgs { config }) => {
            let path = config.display().to_string();
            let config = millrace_config::load_server(&config, &algorithms::check)?;
            millrace_server::run::check(&config)?;
            let credentials = &config.tunnel.credentials;
            for warning in credentials::check(End::Server, credentials, &config.source)? {
                println!("{path}: warning: {}: {warning}", warning.key);
            }
            println!("{path}: ok");
            Ok(ExitCode::SUCCESS)
        }
        Command::Rules(arguments) => rules::run(arguments),
        Command::Certificates(arguments) if arguments.list => {
            for line in certificates::list(&arguments.dir)? {
                println!("{line}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Certificates(arguments) => {
            for report in certificates::run(&arguments, time::OffsetDateTime::now_utc())? {
                println!("{report}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
