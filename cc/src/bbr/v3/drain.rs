//! Drain: drains the queue that startup has built.

use super::Bbr3;
use super::state::{Bbr3State, DrainStart};
use crate::CongestionEvent;
use crate::bbr::gain::Gain;

/// Most round trips of Drain (the draft's limit): the bandwidth may have been overestimated.
const MAX_DRAIN_ROUNDS: u64 = 3;

impl Bbr3 {
    pub(super) fn enter_drain(&mut self) {
        self.transition_to(Bbr3State::Drain(DrainStart { start_round: self.rounds.rounds() }));
    }

    /// CheckDrainDone().
    pub(super) fn check_drained(&mut self, event: &CongestionEvent<'_>) {
        let Bbr3State::Drain(drain) = self.state else { return };
        let overdue = self.rounds.rounds() > drain.start_round + MAX_DRAIN_ROUNDS;
        if overdue || event.in_flight_bytes <= self.inflight_bytes(self.bandwidth, Gain::ONE) {
            self.start_down(event.now);
        }
    }
}
