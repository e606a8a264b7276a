//! States of the control, and their inputs.

use std::time::Duration;

use crate::Time;
use crate::iris::epoch::EpochOutcome;
use crate::iris::losses::Count;

/// Factor of the rate in start-up (Section V-C).
pub(super) const START_GAIN: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum IrisState {
    /// Start-up: a doubled rate is tried until `until`; then the confirmed rate is used until feedback arrives.
    Starting { until: Option<Time>, good_mbps: f64 },
    /// The queue drains until `until`; then the rate is `resume_mbps`.
    Draining { until: Time, resume_mbps: f64 },
    /// Eq. 7.
    Steady,
}

/// Measurements of a complete epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feedback {
    pub(super) now: Time,
    pub(super) outcome: EpochOutcome,
    /// Receiving over sending rate.
    pub(super) stretch: f64,
    /// r^_i and r_i, 10^6 bit/s.
    pub(super) newest_mbps: f64,
    pub(super) received_mbps: f64,
    /// rtt_i and T.
    pub(super) rtt: Duration,
    pub(super) target: Duration,
    /// Time from a decision to the next one, by its feedback: a round trip and an epoch.
    pub(super) hold: Duration,
    /// Whether a trial of [`Losses`](crate::iris::losses::Losses) is running.
    pub(super) trial: bool,
}

impl Feedback {
    pub(super) fn queue(&self) -> Duration {
        self.rtt.saturating_sub(self.target)
    }

    /// Mean time during which packets left that the epoch's packets did not meet in the queue.
    pub(super) fn unseen(&self) -> Duration {
        self.now.since(self.outcome.closed) + self.outcome.duration / 2
    }
}

/// Measurements of a drain.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainMeasurement {
    pub(super) from: Time,
    /// RTT and T before it.
    pub(super) rtt: Duration,
    pub(super) target: Duration,
    /// Lowest and highest RTT since its start.
    pub(super) lowest: Duration,
    pub(super) highest: Duration,
    pub(super) count: Count,
    pub(super) judged: bool,
}
