//! ProbeBW sends a little faster and a little slower in turn, to find out what the path can
//! carry and to let others in (Section 4.3.4).

use rand_core::RngCore;

use super::Bbr;
use super::state::State;
use crate::bbr::gain::Gain;
use crate::{CongestionEvent, Time};

/// Twice the bandwidth-delay product, so that late acknowledgements do not stop the flow
/// (Section 4.2.3.1).
pub(super) const WINDOW_GAIN: Gain = Gain::new(2, 1);
/// A phase lasts about a minimum RTT (Section 4.3.4.1).
const CYCLE: [Gain; 8] = [
    Gain::new(5, 4),
    Gain::new(3, 4),
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
];
/// A cycle may begin with every phase but the one that drains (Section 4.3.4.2).
const STARTS: u32 = 7;

/// Where in the cycle a flow is.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeBw {
    phase: usize,
    since: Time,
}

impl ProbeBw {
    pub(super) fn new(now: Time, phase: usize) -> Self {
        Self { phase: phase % CYCLE.len(), since: now }
    }

    pub(super) fn pacing_gain(&self) -> Gain {
        CYCLE[self.phase]
    }
}

impl Bbr {
    /// Flows that begin at different phases do not probe at once.
    pub(super) fn enter_probe_bw(&mut self, now: Time) {
        let before_drain = CYCLE.len() - (self.rng.next_u32() % STARTS) as usize;
        self.transition_to(State::ProbeBw(ProbeBw::new(now, before_drain)));
    }

    pub(super) fn update_cycle(&mut self, event: &CongestionEvent<'_>) {
        let State::ProbeBw(cycle) = self.state else { return };
        if self.phase_is_over(&cycle, event) {
            self.state = State::ProbeBw(ProbeBw::new(event.now, cycle.phase + 1));
        }
    }

    fn phase_is_over(&self, cycle: &ProbeBw, event: &CongestionEvent<'_>) -> bool {
        let long_enough = event.now - cycle.since > self.min_rtt.unwrap_or_default();
        let gain = self.pacing_gain();
        let in_flight = event.prior_in_flight_bytes;
        let target = |gain| self.target_bytes(self.max_bandwidth(), gain);
        if gain.is_above_one() {
            // A short round trip may be over before what was added is in flight; where that
            // does not fit, losses say so.
            return long_enough && (!event.lost.is_empty() || in_flight >= target(gain));
        }
        long_enough || (gain.is_below_one() && in_flight <= target(Gain::ONE))
    }
}
