//! Goodput of QUIC that a gateway intercepts, as a share of that of TCP through the same tunnel, on a link that loses
//! packets at random.
//!
//!     target/release/examples/quic_flows
//!     target/release/examples/quic_flows --show docs/research/results/http3/goodput.json
//!
//! Each run has a tunnel and a link of its own. It downloads by TCP and then by QUIC, both to port 443 of an origin. Exit
//! code 1 when the median share is below the least. Needs root: it makes network namespaces, and removes them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod site;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use millrace_e2e::quic::DownloadTimes;
use millrace_lab::interrupt;
use serde::{Deserialize, Serialize};

use site::Site;

/// The least median share of the goodput of TCP.
const LEAST_SHARE: f64 = 0.95;

/// The link, and what sends over it.
#[derive(Clone, Debug, Parser, Serialize, Deserialize, PartialEq)]
struct TunnelPath {
    /// Rate of the link.
    #[arg(long, default_value_t = 20)]
    rate_mbps: u64,
    /// Round trip.
    #[arg(long, default_value_t = 100)]
    rtt_ms: u64,
    /// Probability of loss in each direction.
    #[arg(long, default_value_t = 0.01)]
    loss: f64,
    /// Congestion control of the tunnel.
    #[arg(long, default_value = "bbr")]
    congestion_control: String,
    /// Congestion control of the origin's QUIC: `reno` or `cubic`.
    #[arg(long, default_value = "reno")]
    origin: String,
    /// Carries QUIC without repair.
    #[arg(long)]
    unrepaired: bool,
}

/// Compares the goodput of intercepted QUIC with that of TCP.
#[derive(Debug, Parser)]
struct Arguments {
    /// Results of earlier runs, to be shown as a table; nothing is measured.
    #[arg(long)]
    show: Option<PathBuf>,
    #[command(flatten)]
    path: TunnelPath,
    /// Number of runs.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Length of each download, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Results are added to this file.
    #[arg(long, default_value = "target/quic-flows/goodput.json")]
    out: PathBuf,
}

/// Goodput of one download.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Goodput {
    whole_mbps: f64,
    steady_mbps: f64,
    first_byte_ms: f64,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Pass {
    tcp: Goodput,
    quic: Goodput,
    /// Datagrams that the server has sent again, and the client has held back and given up.
    retransmitted: u64,
    held: u64,
    skipped: u64,
}

impl Pass {
    fn share(&self) -> f64 {
        self.quic.whole_mbps / self.tcp.whole_mbps
    }
}

/// The runs of one path.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    path: TunnelPath,
    seconds: u64,
    passes: Vec<Pass>,
}

impl Measured {
    fn median(&self, of: impl Fn(&Pass) -> f64) -> f64 {
        let mut values: Vec<_> = self.passes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let holds = match &arguments.show {
        Some(results) => read(results).map(|measured| show(&measured)),
        None => run(&arguments),
    };
    match holds {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quic_flows: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the share is as large as it should be.
fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    ensure!(arguments.seconds > 5, "--seconds must be more than 5");
    interrupt::install()?;
    let times = DownloadTimes {
        warm_up: Duration::from_secs(5),
        whole: Duration::from_secs(arguments.seconds),
    };
    let mut passes = Vec::new();
    for number in 1..=arguments.runs {
        interrupt::check()?;
        let pass = Site::start(&arguments.path, number as u64)?.pass(times)?;
        eprintln!("{number}: {:.3} of TCP, {pass:.2?}", pass.share());
        passes.push(pass);
    }
    let measured = Measured { path: arguments.path.clone(), seconds: arguments.seconds, passes };
    let mut all = if arguments.out.exists() { read(&arguments.out)? } else { Vec::new() };
    all.retain(|it| it.path != measured.path);
    all.push(measured);
    let text = serde_json::to_string_pretty(&all)?;
    let directory = arguments.out.parent().context("--out has no directory")?;
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&arguments.out, text))
        .with_context(|| format!("can't write {}", arguments.out.display()))?;
    Ok(show(&all[all.len() - 1..]))
}

fn read(results: &Path) -> Result<Vec<Measured>> {
    let text = fs::read_to_string(results).with_context(|| results.display().to_string())?;
    serde_json::from_str(&text).with_context(|| results.display().to_string())
}

/// Prints a table. Whether all repaired flows have their share.
fn show(all: &[Measured]) -> bool {
    println!(
        "| tunnel | origin | QUIC | TCP, Mbit/s | QUIC, Mbit/s | share | share after 5 s | first byte, ms (TCP, QUIC) | \
         sent again | given up | runs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut holds = true;
    for measured in all {
        let path = &measured.path;
        let share = measured.median(Pass::share);
        holds &= path.unrepaired || share >= LEAST_SHARE;
        println!(
            "| `{}`, {} Mbit/s, {} ms, {} % | {} | {} | {:.2} | {:.2} | {share:.3} | {:.3} | {:.0}, {:.0} | {} | {} | {} |",
            path.congestion_control,
            path.rate_mbps,
            path.rtt_ms,
            path.loss * 100.0,
            path.origin,
            if path.unrepaired { "not repaired" } else { "repaired" },
            measured.median(|it| it.tcp.whole_mbps),
            measured.median(|it| it.quic.whole_mbps),
            measured.median(|it| it.quic.steady_mbps / it.tcp.steady_mbps),
            measured.median(|it| it.tcp.first_byte_ms),
            measured.median(|it| it.quic.first_byte_ms),
            measured.median(|it| it.retransmitted as f64),
            measured.median(|it| it.skipped as f64),
            measured.passes.len(),
        );
    }
    holds
}
