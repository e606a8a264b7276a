//! ProbeRTT: lets the queue run empty periodically, to measure the path's RTT (Section 4.3.5).

use std::time::Duration;

use super::state::BbrState;
use super::{Bbr, MIN_WINDOW_PACKETS};
use crate::bbr::common::ProbeRttProgress;
use crate::{CongestionEvent, Time};

impl Bbr {
    /// Updates the minimum RTT, and starts to measure it with an empty queue when it is too old
    /// (Sections 4.1.3 and 4.3.5; BBRUpdateRTprop, BBRCheckProbeRTT).
    pub(super) fn update_min_rtt(&mut self, event: &CongestionEvent<'_>, round_start: bool) {
        let window = Duration::from_millis(self.config.min_rtt_window_ms);
        let expired = event.now - self.min_rtt_at > window;
        if let Some(rtt) = event.rtt
            && (expired || self.min_rtt.is_none_or(|min| rtt.latest < min))
        {
            self.min_rtt = Some(rtt.latest);
            self.min_rtt_at = event.now;
        }
        // An idle period has emptied the queue already.
        if expired && !self.idle_restart && !matches!(self.state, BbrState::ProbeRtt(_)) {
            self.save_window();
            self.transition_to(BbrState::ProbeRtt(ProbeRttProgress::default()));
        }
        self.measure_rtt(event, round_start);
        self.idle_restart = false;
    }

    fn measure_rtt(&mut self, event: &CongestionEvent<'_>, round_start: bool) {
        let BbrState::ProbeRtt(mut probe) = self.state else { return };
        // The sender limits the rate itself.
        self.sampler.on_app_limited(event.in_flight_bytes);
        match probe.ends {
            None if event.in_flight_bytes <= self.probe_rtt_window_bytes() => {
                let hold = Duration::from_millis(self.config.probe_rtt_ms);
                probe.ends = Some(event.now + hold);
                self.rounds.restart();
            }
            None => {}
            Some(_) => probe.round_done |= round_start,
        }
        self.state = BbrState::ProbeRtt(probe);
        if probe.round_done {
            self.check_probe_rtt_done(event.now);
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Time) {
        let BbrState::ProbeRtt(probe) = self.state else { return };
        if probe.ends.is_none_or(|ends| now <= ends) {
            return;
        }
        self.min_rtt_at = now;
        self.window_bytes = self.window_bytes.max(self.prior_window_bytes);
        match self.full_pipe.is_full() {
            true => self.enter_probe_bw(now),
            false => self.transition_to(BbrState::Startup),
        }
    }

    /// Four packets, enough for two that are acknowledged together each way.
    pub(super) fn probe_rtt_window_bytes(&self) -> u64 {
        MIN_WINDOW_PACKETS * self.mtu_bytes
    }
}
