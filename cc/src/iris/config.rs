use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::slope::SlopeSource;
use super::target::Target;

/// Settings of Iris; also its factory. `docs/research/cc/iris.md` has measurements of smaller and larger values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IrisConfig {
    /// Definition of T: the only difference between the two algorithms.
    pub target: Target,
    /// Length of an epoch, 1 to 1000 (Table I: 50).
    pub epoch_ms: f64,
    /// B: packets that the flow keeps in the queue, 2 to 10000 (Table I: 10).
    pub load_packets: f64,
    /// delta: largest change of RTT that one epoch is to make, 0.01 to 1000 (Table I: 3).
    pub delta_ms: f64,
    /// M: packets of load error at which the step nears its largest, 1 to 1000000 (Table I:
    /// 100). `None` derives it from `loop_gain`, rate and RTT.
    pub expansion_packets: Option<f64>,
    /// Share of the load's error that one decision removes, 0.01 to 1.
    pub loop_gain: f64,
    /// What k is: learnt as in the paper, or what measurements of the learning compare with it.
    pub slope: SlopeSource,
    /// Seconds from one drain to the next, 0.5 to 600. T is the smallest RTT of three times
    /// that, or the median of it (the paper does not specify the window).
    pub window_s: f64,
    /// For how many seconds an overflow of the buffer bounds the bytes in flight by what it left; 0 for never.
    pub loss_window_s: f64,
    /// Packets by which that bound grows in a round trip.
    pub loss_window_growth: f64,
    /// Least rate to start with, 0.02 to 1000 (Section V-C: 0.1).
    pub initial_rate_mbps: f64,
    /// Most packets of the initial window, whatever the sender's is.
    pub initial_window_packets: Option<u64>,
    /// Rules that the paper does not have.
    pub extensions: Extensions,
}

/// Rules of Iris beyond the paper, each with its measurement in `docs/research/cc/iris.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Extensions {
    /// The queue is drained from time to time, so that T does not include it.
    pub drains: bool,
    /// Rises double while there is no queue.
    pub rises: bool,
    /// Losses beyond the random ones lower the rate and the load, and trials tell them apart.
    pub trials: bool,
    /// A fitted k counts only near the k of an ideal queue.
    pub slope_bound: bool,
    /// A decision foresees the load of what was sent since the epoch, and makes up for unused rate.
    pub forecast: bool,
    /// Epochs are longer where the round trip is long.
    pub long_epochs: bool,
    /// M is at least what Eq. 11 needs for fairness.
    pub step_bound: bool,
    /// The median of Iris-mid is at most half way between the extremes.
    pub median_bound: bool,
}

impl Extensions {
    /// All of them.
    pub const ALL: Self = Self {
        drains: true,
        rises: true,
        trials: true,
        slope_bound: true,
        forecast: true,
        long_epochs: true,
        step_bound: true,
        median_bound: true,
    };
    /// The paper's rules alone.
    pub const NONE: Self = Self {
        drains: false,
        rises: false,
        trials: false,
        slope_bound: false,
        forecast: false,
        long_epochs: false,
        step_bound: false,
        median_bound: false,
    };
}

impl Default for Extensions {
    fn default() -> Self {
        Self::ALL
    }
}

/// M of Table I.
const PUBLISHED_EXPANSION_PACKETS: f64 = 100.0;
/// Initial window of the paper's time (RFC 6928, Section 2).
const PUBLISHED_INITIAL_WINDOW_PACKETS: u64 = 10;

impl IrisConfig {
    /// `iris-min`: T is the smallest RTT.
    pub const fn min() -> Self {
        Self {
            target: Target::Min,
            epoch_ms: 50.0,
            load_packets: 10.0,
            delta_ms: 3.0,
            expansion_packets: None,
            loop_gain: 0.25,
            slope: SlopeSource::Learned,
            window_s: 5.0,
            loss_window_s: 10.0,
            loss_window_growth: 5.0,
            initial_rate_mbps: 0.1,
            initial_window_packets: None,
            extensions: Extensions::ALL,
        }
    }

    /// `iris-mid`: T is the median RTT.
    pub const fn mid() -> Self {
        Self { target: Target::Mid, ..Self::min() }
    }

    /// The same algorithm with the paper's constants and rules. As before it decides once for each feedback and not with
    /// each epoch, ends start-up by load as well as by loss, and has a window.
    #[must_use]
    pub fn as_published(self) -> Self {
        Self {
            expansion_packets: Some(PUBLISHED_EXPANSION_PACKETS),
            loss_window_s: 0.0,
            initial_window_packets: Some(PUBLISHED_INITIAL_WINDOW_PACKETS),
            extensions: Extensions::NONE,
            ..self
        }
    }

    /// Names a setting that is out of range, and the range.
    pub(super) fn out_of_range(&self) -> Option<String> {
        let ranges = [
            ("epoch_ms", self.epoch_ms, 1.0..=1000.0),
            ("load_packets", self.load_packets, 2.0..=10_000.0),
            ("delta_ms", self.delta_ms, 0.01..=1000.0),
            ("expansion_packets", self.expansion_packets.unwrap_or(100.0), 1.0..=1e6),
            ("loop_gain", self.loop_gain, 0.01..=1.0),
            ("window_s", self.window_s, 0.5..=600.0),
            ("loss_window_s", self.loss_window_s, 0.0..=600.0),
            ("loss_window_growth", self.loss_window_growth, 0.0..=10.0),
            ("initial_rate_mbps", self.initial_rate_mbps, 0.02..=1000.0),
            ("initial_window_packets", self.initial_window_packets.unwrap_or(10) as f64, 1.0..=1e6),
        ];
        let wrong = ranges.iter().find(|(_, value, range)| !range.contains(value));
        wrong.map(|(name, value, range)| {
            format!("{name} is {value}; allowed are {} to {}", range.start(), range.end())
        })
    }

    pub(super) fn epoch(&self) -> Duration {
        Duration::from_secs_f64(self.epoch_ms / 1e3)
    }

    pub(super) fn window(&self) -> Duration {
        Duration::from_secs_f64(self.window_s)
    }
}

impl Default for IrisConfig {
    fn default() -> Self {
        Self::min()
    }
}
