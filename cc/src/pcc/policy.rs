use std::fmt::Debug;

use rand_pcg::Pcg64Mcg;

use super::monitor_interval::Outcome;
use super::utility::{Observed, Utility};

/// A monitor interval that is done: what it measured, and what of that is signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// The rate it was to have, as a multiple of the central one.
    pub(super) gain: f64,
    pub(super) outcome: Outcome,
    pub(super) seen: Observed,
}

/// What is known of the current round when another of its intervals is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round<'a> {
    pub(super) central_mbps: f64,
    pub(super) utility: &'a Utility,
    /// In the order in which they were planned; `None` where the result is missing.
    pub(super) results: &'a [Option<Measured>],
}

/// Turns outcomes into rates once start-up is over: round by round, each with some intervals at
/// multiples of a central rate.
pub(super) trait Policy: Debug + Send + Sync {
    /// The gains of the next round's intervals, in the order in which they are sent.
    fn plan(&mut self, rng: &mut Pcg64Mcg, gains: &mut Vec<f64>);

    /// What to send at, as a multiple of the central rate, while results are awaited.
    fn waiting_gain(&self) -> f64 {
        1.0
    }

    /// The next central rate; `None` while more results are needed.
    fn decide(&mut self, round: &Round<'_>) -> Option<f64>;

    /// Forgets what led to the present rate, which has come from elsewhere.
    fn restart(&mut self);

    /// As [`restart`](Self::restart), at a rate that another algorithm had found.
    fn take_over(&mut self) {
        self.restart();
    }

    /// Whether its rises are cut off again and again: the path carries far more.
    fn is_far_below(&self) -> bool {
        false
    }

    /// Name of the present state.
    fn state(&self) -> &'static str;

    /// The gradient of the last decision, utility per Mbit/s; zero where there is none.
    fn last_gradient(&self) -> f64 {
        0.0
    }
}
