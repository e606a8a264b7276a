//! What each congestion controller costs for a packet that is sent and acknowledged, in
//! instructions: those do not depend on how busy the machine is.

use std::path::Path as FilePath;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::Table;
use millrace_cc::Time;
use millrace_replay::{ClosedLoop, Path, algorithms, unknown_path};
use serde::Serialize;

const PACKET_BYTES: u64 = 1350;
/// Two lengths of the same run: their difference is the steady state alone.
const PACKETS: [u64; 2] = [20_000, 40_000];
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
}

/// Counts with callgrind.
///
/// # Errors
/// When valgrind is missing or an algorithm fails.
pub fn run(options: &ControllersOptions) -> Result<()> {
    if let Some([name, packets]) = options.replay.as_deref() {
        return replay(name, packets.parse().context("PACKETS is not a number")?);
    }
    let costs =
        algorithms().iter().map(|config| cost(config.name())).collect::<Result<Vec<_>>>()?;
    let loop_itself = costs
        .iter()
        .find(|cost| cost.algorithm == BASELINE)
        .map_or(0.0, |cost| cost.instructions_per_packet);
    let mut table = Table::new();
    table.set_header(["algorithm", "instructions a packet", "without the loop's"]);
    for Cost { algorithm, instructions_per_packet: count } in &costs {
        let own = count - loop_itself;
        table.add_row([(*algorithm).to_owned(), format!("{count:.0}"), format!("{own:.0}")]);
    }
    println!("{table}");
    let results = FilePath::new("target/bench/controllers.json");
    std::fs::create_dir_all("target/bench")?;
    std::fs::write(results, serde_json::to_string_pretty(&costs)?)
        .with_context(|| format!("writing {}", results.display()))
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

fn cost(algorithm: &'static str) -> Result<Cost> {
    let [short, long] = PACKETS.map(|packets| count(algorithm, packets));
    let packets = (PACKETS[1] - PACKETS[0]) as f64;
    let instructions_per_packet = (long? as f64 - short? as f64) / packets;
    Ok(Cost { algorithm, instructions_per_packet })
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
