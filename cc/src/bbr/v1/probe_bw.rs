//! ProbeBW: sends a little faster and a little slower in turn, to probe for bandwidth and to leave room
//! for other flows (Section 4.3.4).

use rand_core::RngCore;

use super::Bbr;
use super::state::{BbrState, CYCLE, ProbeBw};
use crate::bbr::gain::Gain;
use crate::{CongestionEvent, Time};

/// Phases with which a cycle may begin: all but the one that drains (Section 4.3.4.2).
const START_PHASES: u32 = 7;
/// The phase that drains what a probe has queued.
const AFTER_PROBE: usize = 1;

impl Bbr {
    /// Flows that begin at different phases do not probe at once.
    pub(super) fn enter_probe_bw(&mut self, now: Time) {
        let before_drain = CYCLE.len() - (self.rng.next_u32() % START_PHASES) as usize;
        self.transition_to(BbrState::ProbeBw(ProbeBw::new(now, before_drain)));
    }

    /// As after a probe: a round trip of less than the bandwidth comes first.
    pub(super) fn enter_probe_bw_after_probe(&mut self, now: Time) {
        self.transition_to(BbrState::ProbeBw(ProbeBw::new(now, AFTER_PROBE)));
    }

    pub(super) fn update_cycle(&mut self, event: &CongestionEvent<'_>) {
        let BbrState::ProbeBw(cycle) = self.state else { return };
        if self.phase_is_over(&cycle, event) {
            self.state = BbrState::ProbeBw(ProbeBw::new(event.now, cycle.phase + 1));
        }
    }

    fn phase_is_over(&self, cycle: &ProbeBw, event: &CongestionEvent<'_>) -> bool {
        let long_enough = event.now - cycle.since > self.min_rtt.unwrap_or_default();
        let gain = self.pacing_gain();
        let in_flight = event.prior_in_flight_bytes;
        let target = |gain| self.target_bytes(self.max_bandwidth(), gain);
        if gain.is_above_one() {
            // A short round trip may end before the added bytes are in flight; losses show that they
            // do not fit.
            return long_enough && (!event.lost.is_empty() || in_flight >= target(gain));
        }
        long_enough || (gain.is_below_one() && in_flight <= target(Gain::ONE))
    }
}
