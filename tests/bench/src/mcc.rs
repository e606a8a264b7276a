//! `millrace-bench mcc`: what selecting costs beside the data path (MCC, Tables 2 and 3).
//!
//! Many connections at once, as fast as the machine carries them, with one algorithm fixed and with rules
//! that choose the same one again and again: what differs is the agent and the Selector.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use millrace_lab::process::require;
use serde::Serialize;
use serde_json::json;

use crate::arena::{Arena, SERVER};
use crate::cpu;
use crate::machine::Machine;
use crate::measure::{self, Plan, RunMeasurement};
use crate::median_range::MedianRange;
use crate::origin::Origin;
use crate::report;
use crate::settings::BenchSettings;
use crate::variant::{BenchVariant, Way};

/// What drives everything in both: as in the paper, the default of its kernel. Many BBR flows whose only limit is the
/// processor lose more to full sockets than they deliver.
const ALGORITHM: &str = "cubic";
/// Rules that are asked as often as others, and never want anything else.
const RULES: &str =
    "function select(flow)\n  if flow.loss > 2 then return 'bbr' end\n  return 'cubic'\nend\n";

/// `millrace-bench mcc`
#[derive(Debug, Args, Serialize)]
pub struct MccOptions {
    /// Connections at a time, a flow on each
    #[arg(long, default_value_t = 250)]
    connections: usize,
    /// Event loops of each proxy, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    workers: Vec<usize>,
    /// Times that each runs, in turns; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Where millrace-client and millrace-server are
    #[arg(long, default_value = "target/release")]
    programs: PathBuf,
    /// Where the results go
    #[arg(long, default_value = "target/bench/mcc.json")]
    output: PathBuf,
}

/// One run.
#[derive(Debug, Serialize)]
struct MccRun {
    workers: usize,
    selected: bool,
    /// CPU time of the server's Selectors, of that of its workers.
    selector_share: f64,
    #[serde(flatten)]
    sample: RunMeasurement,
}

/// Runs it, prints a table and writes the file.
///
/// # Errors
/// Whatever made a run impossible; results so far are not written then.
pub fn run(options: &MccOptions) -> Result<()> {
    require(&[("ip", "iproute2"), ("sysctl", "procps")])?;
    let arena = Arena::build()?;
    let origin = Origin::start(&arena.server, SERVER)?;
    let rules = arena.run.scratch().join("rules.lua");
    fs::write(&rules, RULES)?;
    let mut runs = Vec::new();
    for round in 1..=options.rounds as usize {
        for &workers in &options.workers {
            // Each round begins with the other one.
            for selected in [round % 2 == 0, round % 2 != 0] {
                let settings = BenchSettings {
                    programs: options.programs.clone(),
                    cc: if selected { "mcc" } else { ALGORITHM }.to_owned(),
                    connections: "per_flow".to_owned(),
                    workers,
                    rules: selected.then(|| rules.clone()),
                    ..BenchSettings::default()
                };
                let run = once(options, round, &arena, &origin, &settings)?;
                eprintln!(
                    "round {round}, {workers} workers, {}: {:.2} Gbit/s, {:.2} s/GB, Selector {:.2} %{}",
                    settings.cc,
                    run.sample.gbps,
                    run.sample.cpu_s_per_gb,
                    100.0 * run.selector_share,
                    if run.sample.quiet { "" } else { " (disturbed)" },
                );
                runs.push(run);
            }
        }
    }
    println!(
        "| workers | | Gbit/s | CPU s/GB | Selectors, of the workers' CPU |\n|---|---|---|---|---|"
    );
    for &workers in &options.workers {
        for selected in [false, true] {
            let of = |figure: fn(&MccRun) -> f64| {
                let own = runs.iter().filter(|it| it.workers == workers && it.selected == selected);
                MedianRange::of(own.map(figure)).map_or_else(String::new, |it| it.shown(2))
            };
            println!(
                "| {workers} | {} | {} | {} | {} % |",
                if selected { "rules" } else { ALGORITHM },
                of(|it| it.sample.gbps),
                of(|it| it.sample.cpu_s_per_gb),
                of(|it| 100.0 * it.selector_share),
            );
        }
    }
    let machine = serde_json::to_value(Machine::describe())?;
    report::write(&options.output, &json!({ "machine": machine, "options": options, "runs": runs }))
}

fn once(
    options: &MccOptions,
    round: usize,
    arena: &Arena,
    origin: &Origin,
    settings: &BenchSettings,
) -> Result<MccRun> {
    let plan = Plan {
        variant: BenchVariant::Millrace,
        flows: options.connections,
        // The last of so many handshakes has its turn among the data of the first.
        warmup: Duration::from_secs(12),
        duration: Duration::from_secs(options.seconds),
        quiet_timeout: Duration::from_secs(20),
    };
    measure::await_quiet(plan.quiet_timeout)?;
    let mut way = Way::start(plan.variant, arena, origin, settings)?;
    let server = way.parts.iter().find(|part| part.role == "server").context("no server")?;
    let pid = server.process.pid();
    let before = cpu::threads(pid);
    let sample = measure::run_through(&mut way, &plan, round, arena)?;
    let after = cpu::threads(pid);
    let spent = |prefix: &str| {
        let of = |threads: &[(String, cpu::Seconds)]| {
            let own = threads.iter().filter(|(name, _)| name.starts_with(prefix));
            own.map(|(_, seconds)| seconds.total()).sum::<f64>()
        };
        of(&after) - of(&before)
    };
    let selector_share = spent("selector-") / spent("worker-").max(f64::MIN_POSITIVE);
    let selected = settings.rules.is_some();
    Ok(MccRun { workers: settings.workers, selected, selector_share, sample })
}
