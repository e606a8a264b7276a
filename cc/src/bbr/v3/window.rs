use super::model::UNBOUNDED;
use super::state::Bbr3State;
use super::{Bbr3, MAX_QUANTUM_BYTES, MIN_WINDOW_PACKETS};
use crate::bbr::gain::Gain;
use crate::{Bandwidth, CongestionEvent};

/// Least window, packets (RFC 9002, Section 7.2): one packet would wait for a delayed acknowledgement. Only timeouts go
/// below [`MIN_WINDOW_PACKETS`].
const MIN_REDUCED_WINDOW_PACKETS: u64 = 2;

impl Bbr3 {
    /// BDPMultiple() of BBR.bw.
    pub(super) fn bdp_bytes(&self, gain: Gain) -> u64 {
        self.bdp_of(self.bandwidth, gain)
    }

    fn bdp_of(&self, bandwidth: Bandwidth, gain: Gain) -> u64 {
        match self.min_rtt.min {
            Some(rtt) => gain.of_bytes(bandwidth.bytes_in(rtt)),
            None => self.initial_window_bytes,
        }
    }

    /// Inflight().
    pub(super) fn inflight_bytes(&self, bandwidth: Bandwidth, gain: Gain) -> u64 {
        self.quantized(self.bdp_of(bandwidth, gain))
    }

    /// QuantizationBudget().
    fn quantized(&self, bytes: u64) -> u64 {
        let least = self.quantum_bytes().max(MIN_WINDOW_PACKETS * self.mtu_bytes);
        let more = if matches!(self.state, Bbr3State::Up) { 2 * self.mtu_bytes } else { 0 };
        bytes.max(least).saturating_add(more)
    }

    /// C.send_quantum, for QUIC also the offload budget.
    fn quantum_bytes(&self) -> u64 {
        let millisecond = self.pacing_rate.bytes_per_s() / 1000;
        millisecond.min(MAX_QUANTUM_BYTES).max(2 * self.mtu_bytes)
    }

    /// TargetInflight().
    pub(super) fn target_inflight_bytes(&self) -> u64 {
        self.bdp_bytes(Gain::ONE).min(self.window_bytes)
    }

    /// SetCwnd().
    pub(super) fn update_window(&mut self, event: &CongestionEvent<'_>) {
        let acked_bytes: u64 = event.acked.iter().map(|packet| packet.bytes).sum();
        let product = self.bdp_bytes(self.state.window_gain());
        let extra = self.aggregation.excess_bytes(self.bandwidth);
        let target = self.quantized(product.saturating_add(extra));
        let grown = self.window_bytes.saturating_add(acked_bytes);
        if self.filled {
            self.window_bytes = grown.min(target);
        } else if self.window_bytes < target
            || self.sampler.delivered_bytes() < self.initial_window_bytes
        {
            self.window_bytes = grown;
        }
        self.window_bytes = self.window_bytes.max(MIN_WINDOW_PACKETS * self.mtu_bytes);
        if matches!(self.state, Bbr3State::ProbeRtt(_)) {
            self.window_bytes = self.window_bytes.min(self.probe_rtt_window_bytes());
        }
        self.bound_by_model();
    }

    /// BoundCwndForModel().
    fn bound_by_model(&mut self) {
        let long_term = match self.state {
            Bbr3State::Cruise | Bbr3State::ProbeRtt(_) => self.inflight_with_headroom(),
            Bbr3State::Down | Bbr3State::Refill | Bbr3State::Up => self.inflight_longterm,
            Bbr3State::Startup | Bbr3State::Drain(_) => UNBOUNDED,
        };
        let cap = long_term.min(self.inflight_shortterm);
        self.window_bytes = self.window_bytes.min(cap.max(MIN_WINDOW_PACKETS * self.mtu_bytes));
    }

    /// SaveCwnd().
    pub(super) fn save_window(&mut self) {
        let cut = self.recovery.is_active() || matches!(self.state, Bbr3State::ProbeRtt(_));
        self.prior_window_bytes = match cut {
            true => self.prior_window_bytes.max(self.window_bytes),
            false => self.window_bytes,
        };
    }

    /// RestoreCwnd().
    pub(super) fn restore_window(&mut self) {
        self.window_bytes = self.window_bytes.max(self.prior_window_bytes);
    }

    pub(super) fn bound_window(&mut self) {
        self.window_bytes = self.window_bytes.max(MIN_REDUCED_WINDOW_PACKETS * self.mtu_bytes);
    }

    /// OnEnterRTO(): the window of RFC 9002, Section 7.6.2 (TCP: one packet).
    pub(super) fn collapse_window(&mut self) {
        self.window_bytes = MIN_REDUCED_WINDOW_PACKETS * self.mtu_bytes;
    }
}
