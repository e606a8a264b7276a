//! `millrace-client`: the end of the tunnel near the viewer.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millrace_cc::registry::NAMES;
use millrace_config::ConfigError;

#[derive(Parser)]
#[command(version, about = "The end of the Millrace tunnel near the viewer")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the client
    Run {
        /// Configuration file
        #[arg(long)]
        config: PathBuf,
    },
    /// Checks a configuration and the files it names; binds nothing
    Check {
        /// Configuration file
        #[arg(long)]
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("millrace-client: {error:#}");
            match error.is::<ConfigError>() {
                true => ExitCode::from(ConfigError::EXIT_CODE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run { config } => {
            let config = millrace_config::load_client(&config, NAMES)?;
            millrace_client::run::check(&config)?;
            millrace_client::run::run(&config)
        }
        Command::Check { config } => {
            let path = config.display().to_string();
            millrace_client::run::check(&millrace_config::load_client(&config, NAMES)?)?;
            println!("{path}: ok");
            Ok(ExitCode::SUCCESS)
        }
    }
}
