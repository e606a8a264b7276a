//! Options of `millrace-bench connections`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::plan::{SweepGrid, SweepLoad, SweepPoint, SweepWay};
use super::run_times::{self, PACING_CAPTURE, PACING_WARMUP};
use super::viewer_settings::Arrivals;

/// `millrace-bench connections`
#[derive(Debug, Clone, Args, Serialize)]
pub struct ConnectionsOptions {
    /// What runs.
    #[serde(flatten)]
    #[command(flatten)]
    pub points: PointOptions,
    /// How each run goes.
    #[serde(flatten)]
    #[command(flatten)]
    pub runs: SweepRunOptions,
    /// Passes of the sweep; medians count
    #[serde(skip)]
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Go on with the runs that the output file does not have
    #[serde(skip)]
    #[arg(long)]
    pub resume: bool,
    /// Times that a run is repeated when it is invalid
    #[serde(skip)]
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub retries: u32,
    /// Where the results go; a file of the same name that ends with .csv has a line for each run
    #[serde(skip)]
    #[arg(long, default_value = "target/bench/connections.json")]
    pub output: PathBuf,
}

/// Which points a sweep has.
#[derive(Debug, Clone, Args, Serialize)]
pub struct PointOptions {
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 50, 100, 250, 1000],
          value_parser = connection_count)]
    pub counts: Vec<usize>,
    /// What flows carry: bulk, or a segment a second for each viewer
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["bulk", "video"])]
    pub loads: Vec<SweepLoad>,
    /// What to compare: direct, nginx_stream, shared, per_flow, edges
    #[arg(long, value_delimiter = ',',
          default_values = ["direct", "nginx_stream", "shared", "per_flow", "edges"],
          value_parser = named_way)]
    pub ways: Vec<SweepWay>,
    /// Client edges of the way `edges`, with a connection each
    #[arg(long, default_value_t = 100, value_parser = connection_count)]
    pub edges: usize,
    /// File with [peer.NAME] tables, as in scenario files: third-party programs to compare
    #[arg(long)]
    pub peers: Option<PathBuf>,
}

/// How each run of a sweep goes.
#[derive(Debug, Clone, Args, Serialize)]
pub struct SweepRunOptions {
    /// Seconds measured in each run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Seconds before, which don't count; at least 2 for video
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=60))]
    pub warmup_s: u64,
    /// Largest number of seconds to wait for a quiet machine before each run
    #[serde(skip)]
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub quiet_timeout_s: u64,
    /// When connections come up
    #[arg(long, value_enum, default_value = "before_load")]
    pub arrivals: Arrivals,
    /// Rate of a viewer of the load video, in Mbit/s
    #[arg(long, default_value_t = 2.0, value_parser = video_rate)]
    pub video_mbps: f64,
    /// Rate of the flow by which pacing beside the load is measured, in Mbit/s; 0 leaves that out
    #[arg(long, default_value_t = 10.0, value_parser = pacing_rate)]
    pub pacing_mbps: f64,
    /// Congestion control of the tunnel
    #[arg(long, default_value = "cubic")]
    pub cc: String,
    /// Event loops of each program, 0 for one per core
    #[arg(long, default_value_t = 0)]
    pub workers: usize,
    /// Where millrace-client and millrace-server are
    #[serde(skip)]
    #[arg(long, default_value = "target/release")]
    pub programs: PathBuf,
}

impl ConnectionsOptions {
    /// What a pass has, with these peers.
    pub fn grid(&self, peers: &[String]) -> SweepGrid {
        let peers = peers.iter().cloned().map(SweepWay::Peer);
        SweepGrid {
            loads: self.points.loads.clone(),
            counts: self.points.counts.clone(),
            ways: self.points.ways.iter().cloned().chain(peers).collect(),
            edges: self.points.edges,
        }
    }

    /// About how long a run takes, in seconds.
    pub fn estimate_s(&self, point: &SweepPoint) -> f64 {
        let warmup_s = run_times::warmup_s(point.load, self.runs.warmup_s);
        let has_pacing = point.way.is_millrace() && self.runs.pacing_mbps > 0.0;
        let pacing = if has_pacing { PACING_WARMUP + PACING_CAPTURE } else { Duration::ZERO };
        let has_programs = point.way != SweepWay::Direct;
        let calls_s = if has_programs { run_times::CALLS_S as f64 } else { 0.0 };
        // Start, handshakes and end, as two processors take for them.
        let each_s = match point.way {
            SweepWay::Edges => 0.04,
            SweepWay::PerFlow => 0.006,
            _ => 0.001,
        };
        2.0 + each_s * point.connections as f64
            + (warmup_s + self.runs.seconds) as f64
            + calls_s
            + pacing.as_secs_f64()
    }
}

/// More would need a third-party range of ports and more memory than a small machine has.
fn connection_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=10_000) => Ok(count),
        _ => Err("expected a number from 1 to 10000".to_owned()),
    }
}

fn named_way(text: &str) -> Result<SweepWay, String> {
    match text.parse()? {
        SweepWay::Peer(_) => Err("peers are those of the file of --peers".to_owned()),
        way => Ok(way),
    }
}

fn video_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=1000.0).contains(&rate) => Ok(rate),
        _ => Err("expected Mbit/s from 0.01 to 1000".to_owned()),
    }
}

/// Below 2 Mbit/s too few packets arrive to be judged.
fn pacing_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate == 0.0 || (2.0..=1000.0).contains(&rate) => Ok(rate),
        _ => Err("expected 0, or Mbit/s from 2 to 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: ConnectionsOptions,
    }

    fn parsed(arguments: &[&str]) -> Result<ConnectionsOptions, String> {
        let all = [&["connections"], arguments].concat();
        Command::try_parse_from(all).map(|it| it.options).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pass_with_the_defaults_takes_ten_minutes_at_most() {
        let options = parsed(&[]).unwrap();
        let pass = options.grid(&[]).pass(1);
        assert_eq!(pass.len(), 50);
        let sum_s: f64 = pass.iter().map(|point| options.estimate_s(point)).sum();
        assert!(sum_s <= 600.0, "{sum_s}");
    }

    #[test]
    fn wrong_values_are_refused() {
        assert!(parsed(&["--counts", "1,0"]).is_err());
        assert!(parsed(&["--ways", "perflow"]).unwrap_err().contains("per_flow"));
        assert!(parsed(&["--pacing-mbps", "1"]).is_err());
        let options = parsed(&["--counts", "4", "--ways", "shared,direct"]).unwrap();
        assert_eq!((options.points.counts.len(), options.points.ways.len()), (1, 2));
    }

    #[test]
    fn peers_come_from_their_file_alone() {
        assert!(parsed(&["--ways", "direct,peer:other"]).unwrap_err().contains("--peers"));
        let options = parsed(&["--ways", "direct"]).unwrap();
        let ways = options.grid(&["socat".to_owned()]).ways;
        assert_eq!(ways, [SweepWay::Direct, SweepWay::Peer("socat".to_owned())]);
    }
}
