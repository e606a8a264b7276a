//! Drain: drains the queue that startup has built (Section 4.3.3).

use super::Bbr;
use super::state::BbrState;
use crate::CongestionEvent;
use crate::bbr::gain::Gain;

impl Bbr {
    /// Ends Drain when at most one bandwidth-delay product is in flight.
    pub(super) fn check_drained(&mut self, event: &CongestionEvent<'_>) {
        let path = self.target_bytes(self.max_bandwidth(), Gain::ONE);
        if matches!(self.state, BbrState::Drain) && event.in_flight_bytes <= path {
            self.enter_probe_bw(event.now);
        }
    }
}
