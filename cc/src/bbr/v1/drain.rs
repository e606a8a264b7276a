//! Drain gets rid of the queue that startup has made (Section 4.3.3).

use super::Bbr;
use super::state::State;
use crate::bbr::gain::Gain;
use crate::{CongestionEvent, bbr::v1::startup};

/// The inverse of startup's gain: what took a round trip to fill takes one to drain.
pub(super) const PACING_GAIN: Gain = startup::GAIN.inverse();

impl Bbr {
    /// The queue is gone when no more is in flight than the path holds.
    pub(super) fn check_drained(&mut self, event: &CongestionEvent<'_>) {
        let path = self.target_bytes(self.max_bandwidth(), Gain::ONE);
        if matches!(self.state, State::Drain) && event.in_flight_bytes <= path {
            self.enter_probe_bw(event.now);
        }
    }
}
