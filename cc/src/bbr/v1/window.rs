use super::state::BbrState;
use super::{Bbr, MAX_QUANTUM_BYTES, MIN_TWO_PACKET_QUANTUM_RATE, MIN_WINDOW_PACKETS};
use crate::bbr::gain::Gain;
use crate::{Bandwidth, CongestionEvent};

/// Least window, packets (RFC 9002, Section 7.2): one packet would wait for a delayed acknowledgement. Only the
/// first round trip of a recovery and timeouts go below [`MIN_WINDOW_PACKETS`].
const MIN_REDUCED_WINDOW_PACKETS: u64 = 2;

impl Bbr {
    /// Target of the bytes in flight: the bandwidth-delay product times `gain`, and the send quanta at both
    /// ends (BBRInflight, Section 4.2.3.2; Linux, `bbr_target_cwnd`).
    pub(super) fn target_bytes(&self, bandwidth: Bandwidth, gain: Gain) -> u64 {
        let product = match self.min_rtt {
            Some(rtt) => gain.of_bytes(bandwidth.bytes_in(rtt)),
            None => self.initial_window_bytes,
        };
        // One quantum each in the sender's queue, on the path, and at the receiver.
        let inflight = product.saturating_add(3 * self.quantum_bytes());
        // An even number of packets, since receivers acknowledge every second one.
        let pair = 2 * self.mtu_bytes;
        let even = inflight.div_ceil(pair).saturating_mul(pair);
        match self.state {
            // In whole pairs, four packets times 1.25 would remain four packets.
            BbrState::ProbeBw(_) if gain.is_above_one() => even.saturating_add(pair),
            _ => even,
        }
    }

    /// Send quantum: a millisecond of the rate (BBR.send_quantum, Section 4.2.2).
    fn quantum_bytes(&self) -> u64 {
        let packets = if self.pacing_rate < MIN_TWO_PACKET_QUANTUM_RATE { 1 } else { 2 };
        let millisecond = self.pacing_rate.bytes_per_s() / 1000;
        millisecond.min(MAX_QUANTUM_BYTES).max(packets * self.mtu_bytes)
    }

    /// BBRSetCwnd (Section 4.2.3.6).
    pub(super) fn update_window(&mut self, event: &CongestionEvent<'_>, acked_bytes: u64) {
        let lost_bytes: u64 = event.lost.iter().map(|packet| packet.bytes).sum();
        self.window_bytes = self.window_bytes.saturating_sub(lost_bytes);
        let conserved = event.in_flight_bytes.saturating_add(acked_bytes);
        if self.recovery.take_entered() {
            // The path may have become slower than its estimate: packet conservation for a round trip
            // (Section 4.2.3.4).
            self.recovery.conserving = true;
            self.rounds.restart();
            self.window_bytes = conserved;
        } else if self.recovery.take_left() {
            self.window_bytes = self.window_bytes.max(self.prior_window_bytes);
        }
        match self.recovery.conserving {
            true => self.window_bytes = self.window_bytes.max(conserved),
            false => self.grow_window(acked_bytes),
        }
        if matches!(self.state, BbrState::ProbeRtt(_)) {
            self.window_bytes = self.window_bytes.min(self.probe_rtt_window_bytes());
        }
        self.bound_window();
    }

    /// Grows towards the target by the acknowledged bytes; beyond it only before the pipe is full.
    fn grow_window(&mut self, acked_bytes: u64) {
        let bandwidth = self.bandwidth();
        let mut target = self.target_bytes(bandwidth, self.state.window_gain());
        if self.config.ack_aggregation && self.full_pipe.is_full() {
            target = target.saturating_add(self.aggregation.excess_bytes(bandwidth));
        }
        let grown = self.window_bytes.saturating_add(acked_bytes);
        if self.full_pipe.is_full() {
            self.window_bytes = grown.min(target);
        } else if self.window_bytes < target
            || self.sampler.delivered_bytes() < self.initial_window_bytes
        {
            self.window_bytes = grown;
        }
        self.window_bytes = self.window_bytes.max(MIN_WINDOW_PACKETS * self.mtu_bytes);
    }

    /// Saves the window before a reduction (BBRSaveCwnd, Section 4.2.3.4).
    pub(super) fn save_window(&mut self) {
        let cut = self.recovery.is_active() || matches!(self.state, BbrState::ProbeRtt(_));
        self.prior_window_bytes = match cut {
            true => self.prior_window_bytes.max(self.window_bytes),
            false => self.window_bytes,
        };
    }

    pub(super) fn bound_window(&mut self) {
        self.window_bytes = self.window_bytes.max(MIN_REDUCED_WINDOW_PACKETS * self.mtu_bytes);
    }

    /// The window after a timeout (RFC 9002, Section 7.6.2; TCP: one packet).
    pub(super) fn collapse_window(&mut self) {
        self.window_bytes = MIN_REDUCED_WINDOW_PACKETS * self.mtu_bytes;
    }
}
