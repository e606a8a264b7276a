//! Drain gets rid of the queue that startup has made.

use super::Bbr3;
use super::state::State;
use crate::CongestionEvent;
use crate::bbr::gain::Gain;

/// BBR.DrainPacingGain.
pub(super) const PACING_GAIN: Gain = Gain::new(1, 2);
/// Most round trips: the bandwidth may have been overestimated.
const MAX_ROUNDS: u64 = 3;

/// Since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drain {
    start_round: u64,
}

impl Bbr3 {
    pub(super) fn enter_drain(&mut self) {
        self.transition_to(State::Drain(Drain { start_round: self.rounds.rounds() }));
    }

    /// CheckDrainDone().
    pub(super) fn check_drained(&mut self, event: &CongestionEvent<'_>) {
        let State::Drain(drain) = self.state else { return };
        let overdue = self.rounds.rounds() > drain.start_round + MAX_ROUNDS;
        if overdue || event.in_flight_bytes <= self.inflight_bytes(self.bandwidth, Gain::ONE) {
            self.start_down(event.now);
        }
    }
}
