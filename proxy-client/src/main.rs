//! `millrace-client`: the end of the tunnel near the viewer.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millrace_client::nginx::{self, NginxArgs};
use millrace_tunnel::algorithms;
use millrace_tunnel::cli::{self, ConfigArgs};
use millrace_tunnel::credentials::{self, End};
use millrace_tunnel::doctor::DoctorArgs;

#[derive(Parser)]
#[command(version, about = "The end of the Millrace tunnel near the viewer")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the client
    Run(ConfigArgs),
    /// Checks a configuration and the files it names; binds nothing
    Check(ConfigArgs),
    /// Finds out why a configuration does not work on this machine, and says what to do
    Doctor(DoctorArgs),
    /// Starts nginx with transparent listening sockets, which it can't open itself
    Nginx(NginxArgs),
}

fn main() -> ExitCode {
    cli::exit_code("millrace-client", run(Cli::parse().command))
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(ConfigArgs { config }) => {
            let config = millrace_config::load_client(&config, &algorithms::check)?;
            millrace_client::run::check(&config)?;
            millrace_client::run::run(&config)
        }
        Command::Doctor(arguments) => millrace_client::doctor::run(&arguments),
        Command::Check(ConfigArgs { config }) => {
            let path = config.display().to_string();
            let config = millrace_config::load_client(&config, &algorithms::check)?;
            millrace_client::run::check(&config)?;
            let credentials = &config.tunnel.credentials;
            for warning in credentials::check(End::Client, credentials, &config.source)? {
                println!("{path}: warning: {}: {warning}", warning.key);
            }
            println!("{path}: ok");
            Ok(ExitCode::SUCCESS)
        }
        Command::Nginx(arguments) => nginx::run(&arguments),
    }
}
