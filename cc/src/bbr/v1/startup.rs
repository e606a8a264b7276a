//! Startup: doubles the rate each round trip until the delivery rate stops growing (Section 4.3.2).

use super::Bbr;
use super::state::BbrState;
use crate::estimators::RateSample;

impl Bbr {
    /// Section 4.3.2.2, also in the other states: a flow may probe the RTT before the pipe is full.
    pub(super) fn check_full_pipe(&mut self, sample: &RateSample, round_start: bool) {
        if round_start && !sample.app_limited {
            self.full_pipe.on_round(self.max_bandwidth());
        }
        if matches!(self.state, BbrState::Startup) && self.full_pipe.is_full() {
            self.transition_to(BbrState::Drain);
        }
    }
}
