//! One bulk run, and whether the machine was left alone meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use millrace_lab::interrupt;
use serde::Serialize;

use crate::arena::Arena;
use crate::cpu::{self, Seconds};
use crate::origin::{Origin, UNLIMITED_BYTES};
use crate::settings::BenchSettings;
use crate::sink::{self, Bulk};
use crate::usage::UsageSnapshot;
use crate::variant::{BenchVariant, Way};

/// A run in which others had more than this part of the machine measures them too.
pub const QUIET_CPU_SHARE: f64 = 0.05;
/// How long the machine is watched before a run.
const LISTEN: Duration = Duration::from_millis(400);

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The way through which.
    pub variant: BenchVariant,
    /// How many flows at a time.
    pub flows: usize,
    /// Left out at the start.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
    /// Longest wait for a quiet machine before the run.
    pub quiet_timeout: Duration,
}

/// What one run gave.
#[derive(Debug, Clone, Serialize)]
pub struct RunMeasurement {
    /// The way.
    pub variant: BenchVariant,
    /// Flows at a time.
    pub flows: usize,
    /// From 1; all variants run once in each.
    pub round: usize,
    /// Seconds measured.
    pub wall_s: f64,
    /// Payload that arrived at the sink, all flows together.
    pub bytes: u64,
    /// The same in Gbit/s (10^9 bit/s).
    pub gbps: f64,
    /// CPU seconds of everything involved, for 10^9 bytes of payload.
    pub cpu_s_per_gb: f64,
    /// Its parts: each program, the load (origin and sink), and the kernel's softirq threads.
    pub parts_s_per_gb: BTreeMap<String, Seconds>,
    /// Jain's index of the flows' shares: 1 is equal, 1/n is one flow with everything.
    pub fairness: f64,
    /// What others took of the machine meanwhile, 0 to 1.
    pub others: f64,
    /// What the hypervisor took of it, 0 to 1.
    pub steal: f64,
    /// Whether the machine was left alone.
    pub quiet: bool,
}

/// Runs `plan` once.
///
/// # Errors
/// When the variant doesn't start or a flow ends, or on Ctrl-C.
pub fn run(
    plan: &Plan,
    round: usize,
    arena: &Arena,
    origin: &Origin,
    settings: &BenchSettings,
) -> Result<RunMeasurement> {
    await_quiet(plan.quiet_timeout)?;
    let mut way = Way::start(plan.variant, arena, origin, settings)?;
    run_through(&mut way, plan, round, arena)
}

/// Runs `plan` once through `way`, which is running already, without waiting for a quiet machine.
///
/// # Errors
/// When a flow ends, or on Ctrl-C.
pub fn run_through(
    way: &mut Way,
    plan: &Plan,
    round: usize,
    arena: &Arena,
) -> Result<RunMeasurement> {
    let streams = (0..plan.flows)
        .map(|_| sink::open(&arena.client, way.listener, UNLIMITED_BYTES))
        .collect::<Result<Vec<_>>>()?;
    let bulk = Bulk::start(streams)?;
    pause(plan.warmup)?;
    let before = Snapshot::take(way, &bulk)?;
    pause(plan.duration)?;
    let after = Snapshot::take(way, &bulk)?;
    way.must_run()?;
    bulk.finish()?;
    after.since(&before, plan, round)
}

/// Waits until nothing else runs, at most for `timeout`: the result says whether the run was disturbed.
///
/// # Errors
/// On Ctrl-C.
pub fn await_quiet(timeout: Duration) -> Result<()> {
    interrupt::wait_for(timeout, || {
        let (before, started) = (cpu::machine()?, Instant::now());
        pause(LISTEN)?;
        let share = (cpu::machine()?.busy_s - before.busy_s)
            / (started.elapsed().as_secs_f64() * cpu::cores());
        Ok((share < QUIET_CPU_SHARE).then_some(()))
    })?;
    Ok(())
}

/// Sleeps for `duration`, less on Ctrl-C.
///
/// # Errors
/// On Ctrl-C.
pub fn pause(duration: Duration) -> Result<()> {
    interrupt::wait_for(duration, || Ok(None::<()>))?;
    Ok(())
}

struct Snapshot {
    usage: UsageSnapshot,
    received: Vec<u64>,
}

impl Snapshot {
    fn take(way: &Way, bulk: &Bulk) -> Result<Self> {
        Ok(Self { usage: UsageSnapshot::take(way)?, received: bulk.received() })
    }

    fn since(&self, before: &Self, plan: &Plan, round: usize) -> Result<RunMeasurement> {
        let usage = self.usage.since(&before.usage);
        let wall_s = usage.wall_s;
        let shares = growth(&self.received, &before.received);
        let bytes: u64 = shares.iter().sum();
        ensure!(bytes > 0, "{}: not one byte arrived in {wall_s:.1} s", plan.variant.name());
        let parts_s_per_gb = usage.parts_s_per_gb(bytes as f64 * 1e-9);
        let (others, steal) = (usage.others(), usage.steal());
        Ok(RunMeasurement {
            variant: plan.variant,
            flows: plan.flows,
            round,
            wall_s,
            bytes,
            gbps: bytes as f64 * 8e-9 / wall_s,
            cpu_s_per_gb: parts_s_per_gb.values().map(|it| it.total()).sum(),
            parts_s_per_gb,
            fairness: jain(&shares),
            others,
            steal,
            quiet: others < QUIET_CPU_SHARE && steal < QUIET_CPU_SHARE,
        })
    }
}

/// What each flow received between two counts.
pub fn growth(now: &[u64], before: &[u64]) -> Vec<u64> {
    now.iter().zip(before).map(|(now, then)| now - then).collect()
}

/// Jain, Chiu and Hawe 1984: (sum x)^2 / (n sum x^2).
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// The median; of an even number of values the mean of the middle two. `None` of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn fairness_of_equals_is_one_and_of_a_winner_one_nth() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-12);
        assert!((jain(&[8, 0, 0, 0]) - 0.25).abs() < 1e-12);
    }
}
