//! `millrace-bench beside-idle`: what thousands of idle flows cost, and what a bulk flow notices.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use millrace_lab::process::require;
use serde::Serialize;
use serde_json::json;

use crate::arena::{Arena, SERVER};
use crate::cpu;
use crate::data_path::allow_descriptors;
use crate::idle::{self, PerFlow};
use crate::machine::Machine;
use crate::measure::{self, Plan, RunMeasurement, median, pause};
use crate::options::Options;
use crate::origin::Origin;
use crate::report;
use crate::variant::{BenchVariant, Way};

/// How long the proxies get to settle, before they are looked at.
const SETTLE: Duration = Duration::from_secs(2);

/// `millrace-bench beside-idle`
#[derive(Debug, Args)]
pub struct BesideIdle {
    #[command(flatten)]
    common: Options,
    /// Idle flows
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    flows: u32,
    /// Where the results go
    #[arg(long, default_value = "target/bench/beside-idle.json")]
    output: PathBuf,
}

/// One round: a bulk flow alone, then beside the idle flows.
#[derive(Debug, Serialize)]
struct BesideIdleRound {
    alone: RunMeasurement,
    beside: RunMeasurement,
    /// Resident bytes that an idle flow adds.
    memory: PerFlow,
    /// Part of one core that each proxy takes with nothing but idle flows.
    cpu: PerFlow,
}

/// Runs it, prints the figures and writes the file.
///
/// # Errors
/// Whatever made a run impossible; results so far are not written then.
pub fn run(options: &BesideIdle) -> Result<()> {
    require(&[("ip", "iproute2"), ("sysctl", "procps")])?;
    let flows = options.flows as usize;
    allow_descriptors(flows + flows / 2)?;
    let arena = Arena::build()?;
    let origin = Origin::start_apart(&arena.server, SERVER, arena.run.scratch())?;
    let mut way = Way::start(BenchVariant::Millrace, &arena, &origin, &options.common.settings())?;
    let rounds = (1..=options.common.rounds as usize)
        .map(|number| {
            let round = round(number, &mut way, &arena, options)?;
            eprintln!("round {number} of {}: {}", options.common.rounds, line(&round));
            Ok(round)
        })
        .collect::<Result<Vec<_>>>()?;
    let of =
        |figure: fn(&BesideIdleRound) -> f64| median(rounds.iter().map(figure)).unwrap_or(f64::NAN);
    // What the allocator keeps of the first round it uses again in the later ones.
    let most = |figure: fn(&BesideIdleRound) -> f64| rounds.iter().map(figure).fold(0.0, f64::max);
    let results = json!({
        "flows": flows,
        "rate_ratio": of(rate_ratio),
        "cpu_ratio": of(cpu_ratio),
        "client": { "bytes_per_flow": most(|it| it.memory.client), "cpu": of(|it| it.cpu.client) },
        "server": { "bytes_per_flow": most(|it| it.memory.server), "cpu": of(|it| it.cpu.server) },
        "machine": Machine::describe(),
        "options": &options.common,
        "rounds": rounds,
    });
    println!(
        "{flows} idle flows: a bulk flow beside them has {:.3} of its rate alone, at {:.3} of its \
         CPU time a byte (medians of {} rounds)",
        of(rate_ratio),
        of(cpu_ratio),
        options.common.rounds
    );
    report::write(&options.output, &results)
}

fn round(
    number: usize,
    way: &mut Way,
    arena: &Arena,
    options: &BesideIdle,
) -> Result<BesideIdleRound> {
    let plan = Plan {
        variant: BenchVariant::Millrace,
        flows: 1,
        warmup: options.common.warmup(),
        duration: options.common.duration(),
        quiet_timeout: options.common.quiet_timeout(),
    };
    let alone = measure::run_through(way, &plan, number, arena)?;
    pause(SETTLE)?;
    let before = idle::resident(way)?;
    let streams = idle::open(options.flows as usize, arena, way)?;
    pause(SETTLE)?;
    let after = idle::resident(way)?;
    let flows = f64::from(options.flows);
    let memory = PerFlow {
        client: (after.client - before.client) / flows,
        server: (after.server - before.server) / flows,
    };
    let cpu = cpu_share(way, options.common.duration())?;
    let beside = measure::run_through(way, &plan, number, arena)?;
    drop(streams);
    pause(SETTLE)?;
    Ok(BesideIdleRound { alone, beside, memory, cpu })
}

/// Part of one core that each proxy takes in `time`.
fn cpu_share(way: &Way, time: Duration) -> Result<PerFlow> {
    let spent = |role: &str| {
        let part = way.parts.iter().find(|part| part.role == role);
        let part = part.with_context(|| format!("no {role}"))?;
        cpu::group(part.process.pid()).map(cpu::Seconds::total)
    };
    let (started, client, server) = (Instant::now(), spent("client")?, spent("server")?);
    pause(time)?;
    let wall_s = started.elapsed().as_secs_f64();
    Ok(PerFlow {
        client: (spent("client")? - client) / wall_s,
        server: (spent("server")? - server) / wall_s,
    })
}

fn rate_ratio(round: &BesideIdleRound) -> f64 {
    round.beside.gbps / round.alone.gbps
}

fn cpu_ratio(round: &BesideIdleRound) -> f64 {
    round.beside.cpu_s_per_gb / round.alone.cpu_s_per_gb
}

fn line(round: &BesideIdleRound) -> String {
    let kib = |bytes: f64| bytes / 1024.0;
    format!(
        "memory of an idle flow: client {:.1} KiB, server {:.1} KiB; CPU of all: client {:.1} % of a \
         core, server {:.1} %; bulk {:.2} Gbit/s at {:.2} CPU-s/GB alone, {:.2} at {:.2} beside them",
        kib(round.memory.client),
        kib(round.memory.server),
        round.cpu.client * 100.0,
        round.cpu.server * 100.0,
        round.alone.gbps,
        round.alone.cpu_s_per_gb,
        round.beside.gbps,
        round.beside.cpu_s_per_gb,
    )
}
