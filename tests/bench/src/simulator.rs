//! How fast the simulator is on one core, and how much memory it takes for how long a run.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use millrace_cc::Bandwidth;
use millrace_cc::registry::{Algorithm, Spec, find};
use millrace_sim::{FlowSetup, LinkSetup, NoObserver, Setup};
use serde::Serialize;
use serde_json::json;

use crate::machine::Machine;
use crate::{cpu, report};

/// Ordinary for a fast path: 1 Gbit/s, 30 ms, a buffer of one bandwidth-delay product.
const RATE_MBPS: f64 = 1000.0;
const RTT: Duration = Duration::from_millis(30);
const BUFFER_BYTES: u64 = 3_750_000;
/// Of the algorithm that decides nothing: the link is nearly full in UDP payload.
const CONSTANT_MBPS: f64 = 960.0;

/// `millrace-bench simulator`
#[derive(Debug, Args)]
pub struct SimulatorOptions {
    /// Algorithms, each in a run of its own
    #[arg(long, value_delimiter = ',', default_values = ["constant", "vivace", "cubic"])]
    algorithms: Vec<String>,
    /// Seconds that are simulated: the shorter run, then the longer one
    #[arg(long, num_args = 2, default_values_t = [20, 200])]
    seconds: Vec<u64>,
    /// Where the results go
    #[arg(long, default_value = "target/bench/simulator.json")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Speed {
    algorithm: String,
    simulated_s: u64,
    packets: u64,
    /// Of CPU time, so that neighbours on the machine count as little as can be.
    packets_per_cpu_s: f64,
    packets_per_s: f64,
    utilisation: f64,
    /// Most that this process had at once so far, in kB: it grows from run to run or not at all.
    peak_memory_kb: u64,
}

/// Runs it, prints the table and writes the file.
///
/// # Errors
/// When there is no such algorithm, or the file can't be written.
pub fn run(options: &SimulatorOptions) -> Result<()> {
    let machine = Machine::describe();
    let mut speeds = Vec::new();
    for name in &options.algorithms {
        for seconds in &options.seconds {
            speeds.push(measure(name, *seconds)?);
        }
    }
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header([
        "algorithm",
        "simulated s",
        "packets",
        "million packets per CPU second",
        "per second",
        "utilisation",
        "peak memory so far, MB",
    ]);
    for speed in &speeds {
        table.add_row([
            speed.algorithm.clone(),
            speed.simulated_s.to_string(),
            speed.packets.to_string(),
            format!("{:.2}", speed.packets_per_cpu_s / 1e6),
            format!("{:.2}", speed.packets_per_s / 1e6),
            format!("{:.3}", speed.utilisation),
            format!("{:.1}", speed.peak_memory_kb as f64 / 1e3),
        ]);
    }
    println!("{table}");
    report::write(&options.output, &json!({ "machine": machine, "runs": speeds }))
}

fn measure(name: &str, seconds: u64) -> Result<Speed> {
    let mut spec = Spec::named(name);
    if name == "constant" {
        spec = spec.with("rate_mbps", CONSTANT_MBPS);
    }
    let Algorithm::Controller(algorithm) = find(&spec)? else {
        bail!("{name} is the transport's own: the simulator can't drive it");
    };
    let link = LinkSetup::new(Bandwidth::from_mbps(RATE_MBPS), RTT, BUFFER_BYTES);
    let setup = Setup::new(link, vec![FlowSetup::bulk(algorithm)], Duration::from_secs(seconds));
    let (began, cpu_before) = (Instant::now(), cpu::own()?);
    let outcome = millrace_sim::run(&setup, &mut NoObserver)?;
    let (wall_s, cpu_s) = (began.elapsed().as_secs_f64(), cpu::own()?.since(cpu_before).total());
    let packets = outcome.simulated_packets;
    Ok(Speed {
        algorithm: name.to_owned(),
        simulated_s: seconds,
        packets,
        packets_per_cpu_s: packets as f64 / cpu_s,
        packets_per_s: packets as f64 / wall_s,
        utilisation: outcome.link.utilisation,
        peak_memory_kb: peak_memory_kb()?,
    })
}

fn peak_memory_kb() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok());
    kb.context("/proc/self/status names no VmHWM")
}
