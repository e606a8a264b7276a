//! ProbeRTT: lets the queue run empty periodically, to measure the path's RTT.

use std::time::Duration;

use super::model::AckPhase;
use super::state::{Bbr3State, PROBE_RTT_WINDOW_GAIN};
use super::{Bbr3, MIN_WINDOW_PACKETS};
use crate::bbr::common::ProbeRttProgress;
use crate::{CongestionEvent, Time};

impl Bbr3 {
    /// UpdateMinRTT().
    pub(super) fn update_min_rtt(&mut self, event: &CongestionEvent<'_>) {
        let rtt = &mut self.min_rtt;
        rtt.expired = event.now - rtt.recent_at > self.config.probe_rtt_interval();
        if let Some(sample) = event.rtt
            && (rtt.expired || rtt.recent.is_none_or(|recent| sample.latest < recent))
        {
            rtt.recent = Some(sample.latest);
            rtt.recent_at = event.now;
        }
        let too_old = event.now - rtt.min_at > self.config.min_rtt_window();
        let smaller = rtt.recent.is_some_and(|recent| rtt.min.is_none_or(|min| recent < min));
        if smaller || too_old {
            rtt.min = rtt.recent;
            rtt.min_at = rtt.recent_at;
        }
    }

    /// CheckProbeRTT().
    pub(super) fn check_probe_rtt(&mut self, event: &CongestionEvent<'_>) {
        let measuring = matches!(self.state, Bbr3State::ProbeRtt(_));
        if !measuring && self.min_rtt.expired && !self.idle_restart {
            self.save_window();
            self.transition_to(Bbr3State::ProbeRtt(ProbeRttProgress::default()));
            self.cycle.ack_phase = AckPhase::Stopping;
            self.rounds.restart();
        }
        self.measure_rtt(event);
        self.idle_restart = false;
    }

    /// HandleProbeRTT().
    fn measure_rtt(&mut self, event: &CongestionEvent<'_>) {
        let Bbr3State::ProbeRtt(mut probe) = self.state else { return };
        // The sender limits the rate itself.
        self.sampler.on_app_limited(event.in_flight_bytes);
        match probe.ends {
            None if event.in_flight_bytes <= self.probe_rtt_window_bytes() => {
                let hold = Duration::from_millis(self.config.probe_rtt_ms);
                probe.ends = Some(event.now + hold);
                self.rounds.restart();
            }
            None => {}
            Some(_) => probe.round_done |= self.round_start,
        }
        self.state = Bbr3State::ProbeRtt(probe);
        if probe.round_done {
            self.check_probe_rtt_done(event.now);
        }
    }

    /// CheckProbeRTTDone(), ExitProbeRTT().
    pub(super) fn check_probe_rtt_done(&mut self, now: Time) {
        let Bbr3State::ProbeRtt(probe) = self.state else { return };
        if probe.ends.is_none_or(|ends| now <= ends) {
            return;
        }
        self.min_rtt.recent_at = now;
        self.restore_window();
        self.reset_short_term();
        if !self.filled {
            self.transition_to(Bbr3State::Startup);
            return;
        }
        // There is no queue, but more bytes in flight may build one: wait for a probe.
        self.start_down(now);
        self.transition_to(Bbr3State::Cruise);
    }

    /// ProbeRTTCwnd().
    pub(super) fn probe_rtt_window_bytes(&self) -> u64 {
        self.bdp_bytes(PROBE_RTT_WINDOW_GAIN).max(MIN_WINDOW_PACKETS * self.mtu_bytes)
    }
}
