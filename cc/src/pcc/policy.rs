use std::fmt::Debug;

use rand_pcg::Pcg64Mcg;

use super::monitor_interval::IntervalOutcome;
use super::utility::{FilteredOutcome, Utility};

/// A completed monitor interval: its outcome, and the outcome after noise filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredInterval {
    /// Intended rate, as a multiple of the central rate.
    pub(super) gain: f64,
    pub(super) outcome: IntervalOutcome,
    pub(super) seen: FilteredOutcome,
}

/// State of the current round after another of its intervals was completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundState<'a> {
    pub(super) central_mbps: f64,
    /// One packet a round trip, if there is a standing queue.
    pub(super) queued_packet_mbps: Option<f64>,
    pub(super) utility: &'a Utility,
    /// In planned order; `None` where the result is missing.
    pub(super) results: &'a [Option<MeasuredInterval>],
}

/// Determines rates from outcomes after start-up, in rounds of intervals at multiples of a central rate.
pub(super) trait RatePolicy: Debug + Send + Sync {
    /// Adds the gains of the next round's intervals around a central rate in sending order.
    fn plan(&mut self, central_mbps: f64, rng: &mut Pcg64Mcg, gains: &mut Vec<f64>);

    /// Rate while results are awaited, as a multiple of the central rate.
    fn waiting_gain(&self) -> f64 {
        1.0
    }

    /// The next central rate; `None` while more results are needed.
    fn decide(&mut self, round: &RoundState<'_>) -> Option<f64>;

    /// Discards all state: the current rate was not decided by this policy.
    fn restart(&mut self);

    /// Discards all state after a warm start at another algorithm's rate.
    fn on_warm_start(&mut self) {
        self.restart();
    }

    /// Whether the boundary limits one increase after another: the path carries far more.
    fn is_below_capacity(&self) -> bool {
        false
    }

    /// Name of the current state.
    fn state(&self) -> &'static str;

    /// Gradient of the last decision, utility per Mbit/s; zero for policies without gradients.
    fn last_gradient(&self) -> f64 {
        0.0
    }
}
