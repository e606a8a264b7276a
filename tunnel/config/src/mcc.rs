//! `[mcc]`: live selection of the congestion control; `[telemetry]`: records of its results.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::value::Int;
use crate::{CongestionControl, Source, TransportConfig};

/// `[mcc]`: how the algorithm of a connection is selected, live, where `congestion_control` is `"mcc"`.
///
/// The selection checks names and times; this crate knows no algorithm.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mcc {
    /// File with the rules, in Lua; without one those that are built in.
    pub rules: Option<PathBuf>,
    /// What a connection begins with; default `bbr`.
    pub initial_algorithm: String,
    /// What there is to choose from besides `initial_algorithm`; without any, every algorithm that can take over.
    pub algorithms: Vec<String>,
    /// Least time between two changes; default 5 s. Too short, and each algorithm is judged by the queue that the
    /// previous one left.
    pub min_dwell_s: f64,
    /// Time for which the rules must want the same change without a break; default 1 s.
    pub hold_down_s: f64,
    /// Least time between two evaluations of a connection; default 0.25 s.
    pub evaluation_interval_s: f64,
}

impl Default for Mcc {
    fn default() -> Self {
        Self {
            rules: None,
            initial_algorithm: "bbr".to_owned(),
            algorithms: Vec::new(),
            min_dwell_s: 5.0,
            hold_down_s: 1.0,
            evaluation_interval_s: 0.25,
        }
    }
}

impl Mcc {
    /// The name in `congestion_control` that leaves the choice to `[mcc]`.
    pub const NAME: &str = "mcc";

    /// The section of a file, with the path resolved. Without the table, its defaults if an algorithm is `"mcc"`
    /// (`asks`).
    pub(crate) fn of_file(raw: Option<Self>, asks: bool, source: &Source) -> Option<Self> {
        let mut mcc = raw.or_else(|| asks.then(Self::default))?;
        mcc.rules = mcc.rules.map(|rules| source.resolve(&rules));
        Some(mcc)
    }
}

/// `[telemetry]`: records of the results of each algorithm on each connection, in Parquet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// Where the files go; it is made if it is not there.
    pub dir: PathBuf,
    /// All of them together, 1 MB to 1 TB; default 100 MB (MB is 10^6 bytes). The oldest make room.
    pub max_bytes: u64,
    /// A file at least so often, 1 s to 1 day; default 5 min. What a killed process loses.
    pub every: Duration,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTelemetry {
    dir: Option<PathBuf>,
    retention_mb: Int<100, 1, 1_000_000>,
    flush_interval_s: Int<300, 1, 86_400>,
}

impl RawTelemetry {
    pub(crate) fn resolve(self, source: &Source) -> Option<Telemetry> {
        Some(Telemetry {
            dir: source.resolve(&self.dir?),
            max_bytes: self.retention_mb.get::<u64>() * 1_000_000,
            every: self.flush_interval_s.seconds(),
        })
    }
}

impl CongestionControl {
    /// Whether it is whichever `[mcc]` selects.
    pub fn managed(&self) -> bool {
        self.name == Mcc::NAME
    }
}

impl TransportConfig {
    /// Whether the end's own flows, or those of a class, are selected.
    pub(crate) fn asks_for_mcc(&self) -> bool {
        let mut classes = self.class_congestion_control.values();
        self.congestion_control.managed() || classes.any(CongestionControl::managed)
    }
}
