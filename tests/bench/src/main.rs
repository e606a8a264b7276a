//! `millrace-bench`: what the data path costs, beside the alternatives, on one machine.
//!
//! The data path runs in two network namespaces of its own and needs root for that.

use std::net::SocketAddrV4;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use millrace_lab::interrupt;

mod arena;
mod beside_idle;
mod certificates;
mod connections;
mod controllers;
mod cpu;
mod data_path;
mod idle;
mod machine;
mod mcc;
mod measure;
mod median_range;
mod options;
mod origin;
mod pace;
mod pacing;
mod profile;
mod report;
mod settings;
mod simulator;
mod sink;
mod tunnel_config;
mod usage;
mod variant;

#[derive(Parser)]
#[command(version, about = "What the data path costs: throughput, CPU, memory, pacing")]
struct BenchCli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Bulk flows through Millrace, plain TCP and an nginx stream proxy; memory of idle flows
    DataPath(data_path::DataPath),
    /// What thousands of idle flows cost: memory, CPU, and the rate of a bulk flow beside them
    BesideIdle(beside_idle::BesideIdle),
    /// What a byte costs by the number of connections, 1 to 1,000: bulk and video-like, beside TCP and nginx
    Connections(Box<connections::ConnectionsOptions>),
    /// How evenly packets leave at a rate that is set
    Pace(pace::Pace),
    /// Time and instructions that each congestion controller takes for a packet
    Controllers(controllers::ControllersOptions),
    /// What selecting algorithms costs beside the data path
    Mcc(mcc::MccOptions),
    /// Packets per second of the simulator on one core, and its memory
    Simulator(simulator::SimulatorOptions),
    /// Where the CPU time of the proxies goes
    Profile(profile::Profile),
    /// The load generator, started by the others
    #[command(hide = true)]
    Origin {
        /// Where to listen
        address: SocketAddrV4,
    },
}

fn main() -> ExitCode {
    let result = interrupt::install().and_then(|()| run(BenchCli::parse().command));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<interrupt::Interrupted>() => {
            eprintln!("millrace-bench: interrupted; everything it had made is removed");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("millrace-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<()> {
    match action {
        Action::DataPath(options) => data_path::run(&options),
        Action::BesideIdle(options) => beside_idle::run(&options),
        Action::Connections(options) => connections::run(&options),
        Action::Pace(options) => pace::run(&options),
        Action::Controllers(options) => controllers::run(&options),
        Action::Mcc(options) => mcc::run(&options),
        Action::Simulator(options) => simulator::run(&options),
        Action::Profile(options) => profile::run(&options),
        Action::Origin { address } => origin::serve(address),
    }
}
