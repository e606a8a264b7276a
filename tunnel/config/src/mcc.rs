//! `[mcc]`: whose algorithm is selected while it runs, and how; `[telemetry]`: what came of it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::value::Int;
use crate::{CongestionControl, Source, Transport};

/// `[mcc]`: how the algorithm of a connection is selected, live, where `congestion_control` is `"mcc"`.
///
/// Names and times are checked by whoever selects; this crate knows no algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mcc {
    /// File with the rules, in Lua; without one those that are built in.
    pub rules: Option<PathBuf>,
    /// What a connection begins with; default `bbr`.
    pub initial: String,
    /// What there is to choose from besides `initial`; without any, every algorithm that can take over.
    pub candidates: Vec<String>,
    /// An algorithm stays for so long at least; default 5 s. Too short, and each new one is judged by what
    /// the one before has done to the path.
    pub dwell_s: f64,
    /// Rules must want another one for so long, without a break; default 1 s.
    pub confirm_s: f64,
    /// They are asked about a connection so often at most; default every 0.25 s.
    pub ask_every_s: f64,
}

impl Default for Mcc {
    fn default() -> Self {
        Self {
            rules: None,
            initial: "bbr".to_owned(),
            candidates: Vec::new(),
            dwell_s: 5.0,
            confirm_s: 1.0,
            ask_every_s: 0.25,
        }
    }
}

impl Mcc {
    /// What a `congestion_control` is called that is selected.
    pub const NAME: &str = "mcc";

    /// Of a file: with the path as seen from here. Without the table, its defaults where somebody `asks`.
    pub(crate) fn of_file(raw: Option<Self>, asks: bool, source: &Source) -> Option<Self> {
        let mut mcc = raw.or_else(|| asks.then(Self::default))?;
        mcc.rules = mcc.rules.map(|rules| source.resolve(&rules));
        Some(mcc)
    }
}

/// `[telemetry]`: records of what came of each algorithm on each connection, in Parquet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// Where the files go; it is made if it is not there.
    pub dir: PathBuf,
    /// All of them together, 1 MB to 1 TB; default 100 MB (MB is 10^6 bytes). The oldest make room.
    pub max_bytes: u64,
    /// A file at least so often, 1 s to 1 day; default 5 min. What a killed process loses.
    pub every: Duration,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTelemetry {
    dir: Option<PathBuf>,
    max_mb: Int<100, 1, 1_000_000>,
    every_s: Int<300, 1, 86_400>,
}

impl RawTelemetry {
    pub(crate) fn resolve(self, source: &Source) -> Option<Telemetry> {
        Some(Telemetry {
            dir: source.resolve(&self.dir?),
            max_bytes: self.max_mb.get::<u64>() * 1_000_000,
            every: self.every_s.seconds(),
        })
    }
}

impl CongestionControl {
    /// Whether it is whichever `[mcc]` selects.
    pub fn is_selected(&self) -> bool {
        self.name == Mcc::NAME
    }
}

impl Transport {
    /// Whether the end's own flows, or those of a class, are selected.
    pub(crate) fn asks_for_mcc(&self) -> bool {
        let mut classes = self.class_congestion_control.values();
        self.congestion_control.is_selected() || classes.any(CongestionControl::is_selected)
    }
}
