//! The bytes in flight that the path has carried without too many losses: the long-term model.

use super::model::{UNBOUNDED, Undo};
use super::state::Bbr3State;
use super::{Bbr3, MIN_WINDOW_PACKETS};
use crate::CongestionEvent;
use crate::estimators::{LossSample, RateSample};

/// Most rounds of doubling ("BBRRaiseInflightLongtermSlope"): 2^30 packets a round trip.
const MAX_RAISE_ROUNDS: u32 = 30;

/// A sample with the bytes in flight when its packet left.
pub(super) trait FlightSample {
    fn in_flight_bytes(&self) -> u64;
}

impl FlightSample for RateSample {
    fn in_flight_bytes(&self) -> u64 {
        self.sent_in_flight_bytes
    }
}

impl FlightSample for LossSample {
    fn in_flight_bytes(&self) -> u64 {
        self.sent_in_flight_bytes
    }
}

impl Bbr3 {
    /// IsInflightTooHigh(): more than the tolerated share of the bytes in flight was lost.
    pub(super) fn is_too_high(&self, lost_bytes: u64, sent: &impl FlightSample) -> bool {
        lost_bytes > self.config.loss_threshold().of_bytes(sent.in_flight_bytes())
    }

    /// HandleLostPacket(), but for NoteLoss().
    pub(super) fn judge_loss(&mut self, event: &CongestionEvent<'_>, sample: &LossSample) {
        if self.cycle.is_probe && self.is_too_high(sample.lost_bytes, sample) {
            let tolerated = self.inflight_at_loss(sample);
            self.on_too_high(event, tolerated, sample.app_limited);
        }
    }

    /// InflightAtLoss(): the bytes in flight when the losses became too many. That may be within the packet,
    /// because it may represent a burst.
    pub(super) fn inflight_at_loss(&self, sample: &LossSample) -> u64 {
        let before = sample.sent_in_flight_bytes.saturating_sub(sample.bytes);
        let lost_before = sample.lost_bytes.saturating_sub(sample.bytes);
        let threshold = self.config.loss_threshold();
        let tolerated = threshold.of_bytes(before).saturating_sub(lost_before);
        before.saturating_add(threshold.complement().inverse().of_bytes(tolerated))
    }

    /// HandleInflightTooHigh(): once a probe.
    pub(super) fn on_too_high(
        &mut self,
        event: &CongestionEvent<'_>,
        tolerated_bytes: u64,
        app_limited: bool,
    ) {
        self.cycle.was_too_high = true;
        self.cycle.is_probe = false;
        if !app_limited {
            let least = self.config.beta().of_bytes(self.target_inflight_bytes());
            self.inflight_longterm = tolerated_bytes.max(least);
        }
        if matches!(self.state, Bbr3State::Up) {
            self.undo.state = Some(Undo::Up);
            self.start_down(event.now);
        }
    }

    /// The end of AdaptLongTermModel(): raises the bound to the bytes in flight without too many losses.
    pub(super) fn raise_long_term(&mut self, event: &CongestionEvent<'_>, sample: &RateSample) {
        if self.inflight_longterm == UNBOUNDED {
            return;
        }
        self.inflight_longterm = self.inflight_longterm.max(sample.sent_in_flight_bytes);
        if matches!(self.state, Bbr3State::Up) {
            self.probe_upward(event);
        }
    }

    /// ProbeInflightLongtermUpward().
    fn probe_upward(&mut self, event: &CongestionEvent<'_>) {
        if !self.is_window_limited() || self.window_bytes < self.inflight_longterm {
            return;
        }
        self.raise.acked_bytes += event.acked.iter().map(|packet| packet.bytes).sum::<u64>();
        let packets = self.raise.acked_bytes / self.raise.bytes_per_packet;
        self.raise.acked_bytes -= packets * self.raise.bytes_per_packet;
        let more = packets.saturating_mul(self.mtu_bytes);
        self.inflight_longterm = self.inflight_longterm.saturating_add(more);
        if self.round_start {
            self.raise_slope();
        }
    }

    /// RaiseInflightLongtermSlope(): 1, 2, 4, 8, ... packets a round trip.
    pub(super) fn raise_slope(&mut self) {
        let packets = 1 << self.raise.rounds;
        self.raise.rounds = (self.raise.rounds + 1).min(MAX_RAISE_ROUNDS);
        self.raise.bytes_per_packet = (self.window_bytes / packets).max(self.mtu_bytes);
    }

    pub(super) fn stop_raising(&mut self) {
        self.raise.bytes_per_packet = UNBOUNDED;
    }

    /// InflightWithHeadroom(): leaves room in the queue or on the link for others.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = self.config.headroom().of_bytes(self.inflight_longterm);
        let rest = self.inflight_longterm.saturating_sub(headroom.max(self.mtu_bytes));
        rest.max(MIN_WINDOW_PACKETS * self.mtu_bytes)
    }
}
