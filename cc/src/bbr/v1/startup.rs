//! Startup doubles the rate each round trip until the path delivers no more (Section 4.3.2).

use super::Bbr;
use super::state::State;
use crate::bbr::gain::Gain;
use crate::estimators::RateSample;

/// 2/ln(2), the least gain that lets the rate double in a round trip (BBRHighGain, Section
/// 4.3.2.1). The same ratio as in Linux.
pub(super) const GAIN: Gain = Gain::new(2885, 1000);

impl Bbr {
    /// Section 4.3.2.2, also in the other states: a flow that probed the RTT before the pipe was
    /// full goes on looking.
    pub(super) fn check_full_pipe(&mut self, sample: &RateSample, round_start: bool) {
        if round_start && !sample.app_limited {
            self.full_pipe.on_round(self.max_bandwidth());
        }
        if matches!(self.state, State::Startup) && self.full_pipe.is_full() {
            self.transition_to(State::Drain);
        }
    }
}
