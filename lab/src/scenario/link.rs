//! The bottleneck of a scenario.

use std::path::PathBuf;

use serde::Serialize;

/// How fast the bottleneck is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Rate {
    /// Always the same.
    Constant {
        /// In 10^6 bit/s of the network layer.
        rate_mbps: f64,
    },
    /// A recording.
    Trace {
        /// Its file, beside the scenario or below the directory of traces.
        trace: String,
        /// How to read it.
        trace_format: TraceFormat,
        /// Where the scenario names it.
        #[serde(skip)]
        reference: TraceReference,
    },
}

/// The place in a scenario file that names a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceReference {
    /// The scenario file.
    pub file: PathBuf,
    /// Line and column, both from 1.
    pub place: (usize, usize),
}

/// How a trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// A line for each 1500 bytes: the millisecond at which they may leave.
    Mahimahi,
    /// Lines of `seconds Mbit/s`, or CSV of the same.
    Throughput,
}

/// The bottleneck, in the direction of the data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// How fast it is.
    #[serde(flatten)]
    pub rate: Rate,
    /// Propagation, both ways together.
    pub rtt_ms: f64,
    /// Bytes that may wait.
    pub buffer_bytes: u64,
    /// Probability that a data packet is lost at random.
    pub loss: f64,
    /// The same for acknowledgements.
    pub loss_reverse: f64,
    /// Each data packet is late by up to this.
    pub jitter_ms: f64,
    /// Whether jitter may change the order of packets.
    pub reorder: bool,
    /// Redraws.
    pub random_change: Option<RandomChange>,
    /// Changes at given times.
    pub change: Vec<TimedLinkChange>,
}

/// Values drawn evenly from ranges, again and again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RandomChange {
    /// Time between draws.
    pub every_s: f64,
    /// Smallest and largest rate.
    pub rate_mbps: Option<[f64; 2]>,
    /// Smallest and largest round trip.
    pub rtt_ms: Option<[f64; 2]>,
    /// Smallest and largest probability of loss.
    pub loss: Option<[f64; 2]>,
}

/// What is different about the link from some time on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimedLinkChange {
    /// From when on.
    pub at_s: f64,
    /// The new rate.
    pub rate_mbps: Option<f64>,
    /// The new round trip.
    pub rtt_ms: Option<f64>,
    /// The new buffer.
    pub buffer_bytes: Option<u64>,
    /// The new probability of loss.
    pub loss: Option<f64>,
}
