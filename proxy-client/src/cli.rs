//! The commands of `millrace-client`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millrace_ops::cli::{self, ConfigArgs};
use millrace_ops::doctor::DoctorArgs;
use millrace_tunnel::algorithms;
use millrace_tunnel::credentials::CertificateOwner;

use crate::nginx::{self, NginxArgs};
use crate::rtsp_check::{self, RtspProblem};

#[derive(Parser)]
#[command(version, about = "Millrace tunnel client (viewer side)")]
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
    /// Start nginx with transparent listening sockets, which it can't open itself
    Nginx(NginxArgs),
}

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    cli::exit_code("millrace-client", run(ClientCli::parse().command))
}

fn run(command: ClientCommand) -> anyhow::Result<ExitCode> {
    match command {
        ClientCommand::Run(ConfigArgs { config }) => {
            let config = millrace_config::load_client(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            crate::run::run(&config)
        }
        ClientCommand::Doctor(arguments) => crate::doctor::run(&arguments),
        ClientCommand::Check(ConfigArgs { config }) => {
            let path = config.display().to_string();
            let config = millrace_config::load_client(&config, &algorithms::check)?;
            crate::run::check(&config)?;
            for RtspProblem { key, problem, remedy } in rtsp_check::check(&config) {
                println!("{path}: warning: {key}: {problem}; {remedy}");
            }
            let credentials = &config.tunnel.credentials;
            cli::report_check(&path, CertificateOwner::Client, credentials, &config.source)
        }
        ClientCommand::Nginx(arguments) => nginx::run(&arguments),
    }
}
