//! What each congestion controller costs for a packet that is sent and acknowledged: in time, which has a limit, and in
//! instructions, which do not depend on how busy the machine is.

use std::path::Path as FilePath;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::Table;
use millrace_cc::{ControllerConfig, Time};
use millrace_replay::{ClosedLoop, Path, algorithms, unknown_path};
use serde::Serialize;

const PACKET_BYTES: u64 = 1350;
/// Two lengths of the same run: their difference is the steady state alone.
const PACKETS: [u64; 2] = [20_000, 40_000];
/// Packets before the time is measured: about ten seconds of the path.
const WARM_UP_PACKETS: u64 = 100_000;
/// Packets of a measurement of time.
const TIMED_PACKETS: u64 = 300_000;
/// Measurements of time, of which the median counts.
const ROUNDS: usize = 9;
/// Most time that an algorithm may take for a packet, without the closed loop's.
const MAX_OWN_NS: f64 = 100.0;
/// The algorithm that decides nothing: what the closed loop itself takes.
const BASELINE: &str = "constant";

/// Options of `controllers`.
#[derive(Debug, Args)]
pub struct ControllersOptions {
    /// Run one algorithm for so many packets and print nothing
    #[arg(long, num_args = 2, value_names = ["NAME", "PACKETS"], hide = true)]
    replay: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Cost {
    algorithm: &'static str,
    instructions_per_packet: f64,
    /// Median.
    ns_per_packet: f64,
}

/// Counts with callgrind, and measures time.
///
/// # Errors
/// When valgrind is missing, an algorithm fails, or takes more than [`MAX_OWN_NS`].
pub fn run(options: &ControllersOptions) -> Result<()> {
    if let Some([name, packets]) = options.replay.as_deref() {
        return replay(name, packets.parse().context("PACKETS is not a number")?);
    }
    let costs = algorithms().iter().map(|config| cost(&**config)).collect::<Result<Vec<_>>>()?;
    let of_loop = costs.iter().find(|cost| cost.algorithm == BASELINE);
    let (loop_instructions, loop_ns) =
        of_loop.map_or((0.0, 0.0), |cost| (cost.instructions_per_packet, cost.ns_per_packet));
    let mut table = Table::new();
    table.set_header(["algorithm", "instructions a packet", "without the loop's", "ns without it"]);
    let mut slow = Vec::new();
    for Cost { algorithm, instructions_per_packet: count, ns_per_packet } in &costs {
        let (own, own_ns) = (count - loop_instructions, ns_per_packet - loop_ns);
        table.add_row([
            (*algorithm).to_owned(),
            format!("{count:.0}"),
            format!("{own:.0}"),
            format!("{own_ns:.0}"),
        ]);
        if own_ns > MAX_OWN_NS {
            slow.push(format!("{algorithm} takes {own_ns:.0} ns"));
        }
    }
    println!("{table}");
    let results = FilePath::new("target/bench/controllers.json");
    std::fs::create_dir_all("target/bench")?;
    std::fs::write(results, serde_json::to_string_pretty(&costs)?)
        .with_context(|| format!("writing {}", results.display()))?;
    if !slow.is_empty() {
        bail!("{} for a packet; the limit is {MAX_OWN_NS} ns", slow.join(", "));
    }
    Ok(())
}

fn replay(name: &str, packets: u64) -> Result<()> {
    let config = algorithms()
        .into_iter()
        .find(|config| config.name() == name)
        .with_context(|| format!("no algorithm {name:?}"))?;
    let mut controller = config.build(Time::ZERO, &unknown_path(PACKET_BYTES, 1));
    let mut path = ClosedLoop::new(Path::ORDINARY, PACKET_BYTES, Time::ZERO, 0);
    path.run_packets(&mut *controller, packets);
    Ok(())
}

fn cost(config: &dyn ControllerConfig) -> Result<Cost> {
    let algorithm = config.name();
    let [short, long] = PACKETS.map(|packets| count(algorithm, packets));
    let packets = (PACKETS[1] - PACKETS[0]) as f64;
    let instructions_per_packet = (long? as f64 - short? as f64) / packets;
    Ok(Cost { algorithm, instructions_per_packet, ns_per_packet: time_ns(config) })
}

/// Median time of a packet, ns.
fn time_ns(config: &dyn ControllerConfig) -> f64 {
    let mut controller = config.build(Time::ZERO, &unknown_path(PACKET_BYTES, 1));
    let mut path = ClosedLoop::new(Path::ORDINARY, PACKET_BYTES, Time::ZERO, 0);
    path.run_packets(&mut *controller, WARM_UP_PACKETS);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            path.run_packets(&mut *controller, TIMED_PACKETS);
            began.elapsed().as_nanos() as f64 / TIMED_PACKETS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn count(algorithm: &str, packets: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["controllers", "--replay", algorithm, &packets.to_string()])
        .output()
        .context("running valgrind; `make setup` installs it")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{algorithm} under callgrind: {said}");
    }
    // "==123== Collected : 456"
    said.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .with_context(|| format!("callgrind printed no count: {said}"))
}
