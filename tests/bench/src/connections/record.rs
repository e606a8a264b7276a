//! What one run of the sweep gave.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::SweepPoint;
use crate::cpu::Seconds;
use crate::usage::{LOAD, SOFTIRQ_THREADS};

/// A counter as it could be read, or why it could not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterReading {
    /// The figure; `None` where it can't be had.
    pub value: Option<f64>,
    /// Where it comes from, or why it can't be had.
    pub source: String,
}

impl CounterReading {
    /// A figure and where it comes from.
    pub fn new(value: f64, source: impl Into<String>) -> Self {
        Self { value: Some(value), source: source.into() }
    }

    /// Why there is no figure.
    pub fn missing(reason: impl Into<String>) -> Self {
        Self { value: None, source: reason.into() }
    }
}

/// Memory of one program, or of several with the same role, for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ConnectionMemory {
    /// Growth of the resident set when all connections are open and idle.
    pub opened_bytes: f64,
    /// The same at the end of the interval, under load.
    pub loaded_bytes: f64,
}

/// What the viewers of a run saw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SegmentFigures {
    /// Segments whose successor fell due in the interval.
    pub segments: usize,
    /// Those of them that were not complete then.
    pub late: usize,
    /// Time from request to the last byte, 99th percentile of those that are complete.
    pub p99_ms: f64,
    /// How late the load generator sent its requests, 99th percentile.
    pub request_delay_p99_ms: f64,
}

/// Figures of a run, all read over the same interval but for those of [`Extras`]; counters of packets are read just
/// outside of it, with the bytes received between their own readings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepFigures {
    /// Seconds measured.
    pub wall_s: f64,
    /// Payload that arrived at the sink.
    pub bytes: u64,
    /// The same in Gbit/s (10^9 bit/s).
    pub gbps: f64,
    /// Jain's index of the flows' shares.
    pub fairness: f64,
    /// Flows through which nothing came in the interval.
    pub stalled: usize,
    /// CPU seconds for 10^9 bytes of payload, all parts together.
    pub cpu_s_per_gb: f64,
    /// Its parts, by role.
    pub parts_s_per_gb: BTreeMap<String, Seconds>,
    /// Packets.
    #[serde(flatten)]
    pub packets: PacketFigures,
    /// By role.
    pub memory: BTreeMap<String, ConnectionMemory>,
    /// What viewers saw, of the load `video`.
    pub segments: Option<SegmentFigures>,
    /// What others took of the machine meanwhile, 0 to 1.
    pub others: f64,
    /// What the hypervisor took of it, 0 to 1.
    pub steal: f64,
    /// What is measured after the interval, under the same load.
    pub extras: Extras,
}

impl SweepFigures {
    /// Processors that the programs kept busy, without the load: CPU seconds for a second.
    pub fn busy_cores(&self) -> f64 {
        let is_program = |role: &str| ![LOAD, SOFTIRQ_THREADS].contains(&role);
        let programs = self.parts_s_per_gb.iter().filter(|(role, _)| is_program(role));
        // The sum of nothing is -0.
        let s_per_gb = 0.0 + programs.map(|(_, it)| it.total()).sum::<f64>();
        s_per_gb * self.bytes as f64 * 1e-9 / self.wall_s
    }
}

/// Packets of both ends, and the bytes that were received between the same two readings of the counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketFigures {
    /// Packets that both ends sent, for 10^9 bytes of payload.
    pub packets_per_gb: CounterReading,
    /// Packets in a message that is handed to the kernel, both ends together.
    pub packets_per_message: CounterReading,
    /// Packets that hold acknowledgements only, for a packet of the sender.
    pub acks_per_data_packet: CounterReading,
}

/// What would disturb the interval, and has a time of its own after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extras {
    /// System calls for 10^9 bytes of payload, by role.
    pub calls_per_gb: BTreeMap<String, CounterReading>,
    /// 99th percentile of the error of a paced flow's gaps beside the load, in microseconds.
    pub pacing_p99_us: CounterReading,
    /// Error of that flow's rate, of 1.
    pub pacing_rate_error: CounterReading,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRun {
    /// From 1; all points run once in each.
    pub round: usize,
    /// What ran.
    #[serde(flatten)]
    pub point: SweepPoint,
    /// Connections that carried a byte before the interval began.
    pub up: usize,
    /// Those that ended before the interval did.
    pub ended: usize,
    /// Why there are no figures.
    pub failure: Option<String>,
    /// Why the figures are not those of an undisturbed machine, one sentence each.
    pub invalid: Vec<String>,
    /// What the programs refused or reset, by metric; none where they have no metrics.
    pub refusals: BTreeMap<String, u64>,
    /// `None` if the run failed.
    pub figures: Option<SweepFigures>,
    /// Seconds that the run took, start and end of the programs with it.
    pub took_s: f64,
}

impl SweepRun {
    /// Whether all connections came up and lasted.
    pub fn is_complete(&self) -> bool {
        self.figures.is_some() && self.up == self.point.connections && self.ended == 0
    }

    /// Whether it was also left alone.
    pub fn is_valid(&self) -> bool {
        self.is_complete() && self.invalid.is_empty()
    }

    /// What a reader has to know beside the figures.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(failure) = &self.failure {
            remarks.push(format!("FAILED: {}", failure.lines().next().unwrap_or_default()));
            remarks.extend(self.refusals.iter().map(|(what, count)| format!("{count} x {what}")));
        } else if !self.is_complete() {
            let ended = match self.ended {
                0 => String::new(),
                ended => format!(", {ended} ended early"),
            };
            let (up, all) = (self.up, self.point.connections);
            remarks.push(format!("INCOMPLETE: {up} of {all} came up{ended}"));
            remarks.extend(self.refusals.iter().map(|(what, count)| format!("{count} x {what}")));
        }
        if let Some(stalled) = self.figures.as_ref().map(|it| it.stalled).filter(|it| *it > 0) {
            remarks.push(format!("{stalled} connections carried nothing in the interval"));
        }
        remarks.extend(self.invalid.iter().map(|reason| format!("INVALID: {reason}")));
        remarks
    }
}

/// Records that tests of several files need.
#[cfg(test)]
pub mod samples {
    use super::*;
    use crate::connections::plan::{SweepLoad, SweepWay};

    /// A complete run with this rate and this cost.
    pub fn run(round: usize, way: SweepWay, gbps: f64, cpu_s_per_gb: f64) -> SweepRun {
        SweepRun {
            round,
            point: SweepPoint { load: SweepLoad::Bulk, connections: 8, way },
            up: 8,
            ended: 0,
            failure: None,
            invalid: Vec::new(),
            refusals: BTreeMap::new(),
            figures: Some(SweepFigures {
                wall_s: 3.0,
                bytes: 1_000_000_000,
                gbps,
                fairness: 1.0,
                stalled: 0,
                cpu_s_per_gb,
                parts_s_per_gb: BTreeMap::from([(
                    "server".to_owned(),
                    Seconds { user_s: 1.0, system_s: 0.5 },
                )]),
                packets: packets(),
                memory: BTreeMap::new(),
                segments: None,
                others: 0.0,
                steal: 0.0,
                extras: extras(),
            }),
            took_s: 7.0,
        }
    }

    /// Packets by size alone.
    pub fn packets() -> PacketFigures {
        PacketFigures {
            packets_per_gb: CounterReading::new(700_000.0, "metrics"),
            packets_per_message: missing(),
            acks_per_data_packet: missing(),
        }
    }

    /// Nothing.
    pub fn extras() -> Extras {
        Extras {
            calls_per_gb: BTreeMap::new(),
            pacing_p99_us: missing(),
            pacing_rate_error: missing(),
        }
    }

    fn missing() -> CounterReading {
        CounterReading::missing("not in this sample")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::plan::SweepWay;

    #[test]
    fn run_with_a_missing_connection_is_incomplete_and_says_how_many() {
        let mut run = samples::run(1, SweepWay::PerFlow, 1.0, 9.0);
        assert!(run.is_valid() && run.remarks().is_empty());
        run.up = 7;
        run.refusals.insert("server: drops, memory_cap".to_owned(), 3);
        assert!(!run.is_complete());
        assert_eq!(run.remarks(), ["INCOMPLETE: 7 of 8 came up", "3 x server: drops, memory_cap"]);
    }

    #[test]
    fn run_whose_flow_ended_is_incomplete() {
        let mut run = samples::run(1, SweepWay::PerFlow, 1.0, 9.0);
        run.ended = 2;
        assert!(!run.is_complete());
        assert_eq!(run.remarks(), ["INCOMPLETE: 8 of 8 came up, 2 ended early"]);
    }

    #[test]
    fn busy_cores_are_those_of_the_programs_alone() {
        let mut figures = samples::run(1, SweepWay::PerFlow, 1.0, 9.0).figures.unwrap();
        let load = Seconds { user_s: 1.0, system_s: 1.0 };
        figures.parts_s_per_gb.insert("load".to_owned(), load);
        assert!((figures.busy_cores() - 0.5).abs() < 1e-9, "{figures:?}");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let run = samples::run(2, SweepWay::Peer("x".to_owned()), 1.23, 4.56);
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<SweepRun>(&text).unwrap(), run);
    }
}
