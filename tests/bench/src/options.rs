//! Options that the comparisons share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::settings::BenchSettings;

/// How flows share the tunnel's QUIC connections.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum ConnectionMode {
    /// One connection for all flows
    Shared,
    /// One connection each
    PerFlow,
}

/// How to run and where to find the programs.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Options {
    /// Times that each variant runs; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Seconds before, which don't count
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=60))]
    pub warmup_s: u64,
    /// Largest number of seconds to wait for a quiet machine before each run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub quiet_timeout_s: u64,
    /// Times that a run is repeated when something else used the machine meanwhile
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub retries: u32,
    /// Congestion control of the tunnel
    #[arg(long, default_value = "cubic")]
    pub cc: String,
    /// How flows share QUIC connections
    #[arg(long, value_enum, default_value = "shared")]
    pub connections: ConnectionMode,
    /// Event loops of each proxy, 0 for one per core
    #[arg(long, default_value_t = 0)]
    pub workers: usize,
    /// Where millrace-client and millrace-server are
    #[arg(long, default_value = "target/release")]
    pub programs: PathBuf,
}

impl Options {
    /// What variants need of it.
    pub fn settings(&self) -> BenchSettings {
        let connections = match self.connections {
            ConnectionMode::Shared => "shared",
            ConnectionMode::PerFlow => "per_flow",
        };
        BenchSettings {
            programs: self.programs.clone(),
            cc: self.cc.clone(),
            connections: connections.to_owned(),
            workers: self.workers,
            ..BenchSettings::default()
        }
    }

    /// Seconds measured in each run.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// What precedes them.
    pub fn warmup(&self) -> Duration {
        Duration::from_secs(self.warmup_s)
    }

    /// Longest wait for a quiet machine before each run.
    pub fn quiet_timeout(&self) -> Duration {
        Duration::from_secs(self.quiet_timeout_s)
    }
}
