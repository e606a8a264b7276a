//! Bytes, CPU time and memory at one moment of a run, and what passed between two of them.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::plan::{SweepLoad, SweepPoint, SweepWay};
use super::record::{ConnectionMemory, Extras, PacketFigures, SegmentFigures, SweepFigures};
use super::viewers::Viewers;
use crate::cpu;
use crate::measure::{QUIET_CPU_SHARE, growth, jain};
use crate::usage::{UsageInterval, UsageSnapshot};
use crate::variant::{PROBE, Way};

/// A thread of the load that was busy for so much of the interval limits the rate.
const BUSY_THREAD: f64 = 0.95;
/// Requests that are later than this show that the load generator had too little CPU time.
const MAX_REQUEST_DELAY_MS: f64 = 50.0;

/// One moment.
#[derive(Debug)]
pub struct RunSnapshot {
    /// CPU time and memory.
    pub usage: UsageSnapshot,
    received: Vec<u64>,
    /// CPU seconds of the sink and of the origin.
    load_threads: Vec<f64>,
}

impl RunSnapshot {
    /// # Errors
    /// When a program has ended.
    pub fn take(way: &Way, viewers: &Viewers) -> Result<Self> {
        let is_load = |name: &str| name == "sink" || name == "origin";
        let threads = cpu::threads(std::process::id()).into_iter();
        let load_threads = threads.filter(|(name, _)| is_load(name)).map(|(_, it)| it.total());
        let load_threads = load_threads.collect();
        let usage = UsageSnapshot::take(way)?;
        Ok(Self { usage, received: viewers.received(), load_threads })
    }

    /// When.
    pub fn at(&self) -> Instant {
        self.usage.at
    }

    /// What passed since `before`.
    ///
    /// # Errors
    /// When no byte arrived.
    pub fn since(&self, before: &Self) -> Result<RunInterval> {
        let usage = self.usage.since(&before.usage);
        let shares = growth(&self.received, &before.received);
        let wall_s = usage.wall_s;
        ensure!(shares.iter().any(|bytes| *bytes > 0), "not one byte arrived in {wall_s:.1} s");
        let threads = self.load_threads.iter().zip(&before.load_threads);
        let busiest_s = threads.map(|(now, then)| now - then).fold(0.0, f64::max);
        Ok(RunInterval { usage, shares, busiest_load_thread: busiest_s / wall_s })
    }
}

/// What passed between two moments.
#[derive(Debug, Clone)]
pub struct RunInterval {
    usage: UsageInterval,
    /// Bytes by flow.
    shares: Vec<u64>,
    /// Part of one core.
    busiest_load_thread: f64,
}

impl RunInterval {
    /// Its figures, with what was counted and measured beside it.
    pub fn figures(
        &self,
        memory: BTreeMap<String, ConnectionMemory>,
        packets: PacketFigures,
        segments: Option<SegmentFigures>,
        extras: Extras,
    ) -> SweepFigures {
        let bytes: u64 = self.shares.iter().sum();
        let gigabytes = bytes as f64 * 1e-9;
        let mut parts_s_per_gb = self.usage.parts_s_per_gb(gigabytes);
        // The idle program of the paced flow is no cost of the connections.
        parts_s_per_gb.remove(PROBE);
        SweepFigures {
            wall_s: self.usage.wall_s,
            bytes,
            gbps: gigabytes * 8.0 / self.usage.wall_s,
            fairness: jain(&self.shares),
            stalled: self.shares.iter().filter(|bytes| **bytes == 0).count(),
            cpu_s_per_gb: parts_s_per_gb.values().map(|it| it.total()).sum(),
            parts_s_per_gb,
            packets,
            memory,
            segments,
            others: self.usage.others(),
            steal: self.usage.steal(),
            extras,
        }
    }

    /// Why `figures` are not those of an undisturbed machine.
    pub fn invalid_reasons(&self, figures: &SweepFigures, point: &SweepPoint) -> Vec<String> {
        let percent = |part: f64| (part * 100.0).round();
        let mut reasons = Vec::new();
        if figures.others >= QUIET_CPU_SHARE {
            reasons.push(format!("others used {} % of the machine", percent(figures.others)));
        }
        if figures.steal >= QUIET_CPU_SHARE {
            let stolen = percent(figures.steal);
            reasons.push(format!("the hypervisor took {stolen} % of the machine"));
        }
        // Plain TCP has nothing else than the load.
        if point.way != SweepWay::Direct && self.busiest_load_thread >= BUSY_THREAD {
            reasons.push(format!(
                "a thread of the load generator was busy for {} % of the time: it limits the rate",
                percent(self.busiest_load_thread)
            ));
        }
        let delay_ms = figures.segments.map_or(0.0, |it| it.request_delay_p99_ms);
        if point.load == SweepLoad::Video && delay_ms > MAX_REQUEST_DELAY_MS {
            reasons.push(format!(
                "the load generator had too little CPU time: requests {delay_ms:.0} ms late (p99)"
            ));
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::record::samples;
    use crate::cpu::{MachineCpuTime, Seconds};

    fn interval() -> RunInterval {
        let seconds = |user_s, system_s| Seconds { user_s, system_s };
        RunInterval {
            usage: UsageInterval {
                wall_s: 2.0,
                parts: BTreeMap::from([
                    ("server".to_owned(), seconds(1.0, 0.5)),
                    ("load".to_owned(), seconds(0.25, 0.25)),
                    (PROBE.to_owned(), seconds(0.5, 0.0)),
                ]),
                machine: MachineCpuTime { busy_s: 2.5, steal_s: 0.0 },
            },
            shares: vec![1_000_000_000, 1_000_000_000],
            busiest_load_thread: 0.1,
        }
    }

    fn figures() -> SweepFigures {
        interval().figures(BTreeMap::new(), samples::packets(), None, samples::extras())
    }

    #[test]
    fn cost_is_of_the_bytes_of_the_same_interval_and_without_the_paced_flow() {
        let figures = figures();
        assert!((figures.gbps - 8.0).abs() < 1e-9, "{figures:?}");
        assert!((figures.cpu_s_per_gb - 1.0).abs() < 1e-9, "{figures:?}");
        assert_eq!(figures.parts_s_per_gb["server"], Seconds { user_s: 0.5, system_s: 0.25 });
        assert!(!figures.parts_s_per_gb.contains_key(PROBE));
        assert!(figures.others.abs() < 1e-9, "{figures:?}");
    }

    #[test]
    fn disturbed_runs_and_a_starved_load_generator_have_their_reasons() {
        let point = |load, way| SweepPoint { load, connections: 2, way };
        let video = point(SweepLoad::Video, SweepWay::PerFlow);
        let mut figures = figures();
        assert_eq!(interval().invalid_reasons(&figures, &video), Vec::<String>::new());
        figures.others = 0.2;
        figures.segments = Some(SegmentFigures {
            segments: 10,
            late: 0,
            p99_ms: 10.0,
            request_delay_p99_ms: 80.0,
        });
        let busy = RunInterval { busiest_load_thread: 0.97, ..interval() };
        let reasons = busy.invalid_reasons(&figures, &video);
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert_eq!(reasons[0], "others used 20 % of the machine");
        let direct = point(SweepLoad::Bulk, SweepWay::Direct);
        figures.others = 0.0;
        assert_eq!(busy.invalid_reasons(&figures, &direct), Vec::<String>::new());
    }
}
