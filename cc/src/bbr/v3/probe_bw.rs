//! Common part of the four states of ProbeBW: their transitions, and the handling of a probe's
//! acknowledgements.

use std::time::Duration;

use rand_core::RngCore;

use super::Bbr3;
use super::model::AckPhase;
use super::state::Bbr3State;
use crate::bbr::gain::Gain;
use crate::estimators::RateSample;
use crate::{CongestionEvent, Time};

impl Bbr3 {
    /// StartProbeBW_DOWN().
    pub(super) fn start_down(&mut self, now: Time) {
        self.reset_congestion_signals();
        self.stop_raising();
        self.pick_wait();
        self.cycle.started = now;
        self.cycle.ack_phase = AckPhase::Stopping;
        self.rounds.restart();
        self.transition_to(Bbr3State::Down);
    }

    /// PickProbeWait(): at random, so that flows do not probe at once.
    fn pick_wait(&mut self) {
        self.cycle.rounds = u64::from(self.rng.next_u32() & 1);
        let least = Duration::from_millis(self.config.probe_wait_ms);
        let spread = least / 2;
        self.cycle.wait = least + spread.mul_f64(f64::from(self.rng.next_u32()) / 2_f64.powi(32));
    }

    /// StartProbeBW_REFILL(): resets the losses of the last cycle, and fills the path before the probe,
    /// so that losses are those of a full path.
    pub(super) fn start_refill(&mut self) {
        self.reset_short_term();
        self.raise.rounds = 0;
        self.raise.acked_bytes = 0;
        self.cycle.was_precaution = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.rounds.restart();
        self.transition_to(Bbr3State::Refill);
    }

    /// StartProbeBW_UP().
    fn start_up(&mut self, sample: &RateSample) {
        self.cycle.is_probe = true;
        self.cycle.ack_phase = AckPhase::Starting;
        self.rounds.restart();
        // The sending rate, at least: the first round after a warm start is sampled only in part.
        let refilling = self.config.margin().of_rate(self.bandwidth);
        self.full_pipe.restart_at(sample.rate.unwrap_or_default().max(refilling));
        self.transition_to(Bbr3State::Up);
        self.raise_slope();
    }

    /// UpdateProbeBWCyclePhase().
    pub(super) fn update_cycle(&mut self, event: &CongestionEvent<'_>, sample: &RateSample) {
        if !self.filled || self.adapt_long_term(event, sample) {
            return;
        }
        let state = self.state;
        match state {
            Bbr3State::Down if self.is_time_to_probe(event.now) => self.start_refill(),
            Bbr3State::Down if self.is_time_to_cruise(event) => {
                self.transition_to(Bbr3State::Cruise)
            }
            Bbr3State::Cruise if self.is_time_to_probe(event.now) => self.start_refill(),
            Bbr3State::Refill if self.round_start => self.start_up(sample),
            Bbr3State::Up if self.is_time_to_go_down(event, sample) => {
                self.cycle.was_too_high = false;
                self.start_down(event.now);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW(): after two to three seconds, or when Reno would have grown by as much as a probe
    /// adds.
    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = self.target_inflight_bytes() / self.mtu_bytes;
        now - self.cycle.started > self.cycle.wait
            || self.cycle.rounds >= reno_rounds.min(self.config.probe_wait_rounds)
    }

    /// IsTimeToCruise(): when the queue has drained and there is headroom for other flows.
    fn is_time_to_cruise(&self, event: &CongestionEvent<'_>) -> bool {
        event.in_flight_bytes <= self.inflight_with_headroom()
            && event.in_flight_bytes <= self.inflight_bytes(self.max_bandwidth(), Gain::ONE)
    }

    /// IsTimeToGoDown(). The draft compares the bytes in flight after the acknowledgement, which are
    /// never as many as a full window; Linux the bytes before. Only whole packets fit.
    fn is_time_to_go_down(&mut self, event: &CongestionEvent<'_>, sample: &RateSample) -> bool {
        let one_more = event.prior_in_flight_bytes.saturating_add(self.mtu_bytes);
        if self.cycle.was_too_high && one_more > self.inflight_longterm {
            self.cycle.was_precaution = true;
            return true;
        }
        if self.is_window_limited() && self.window_bytes >= self.inflight_longterm {
            // The flow's bound limits the rate, not the path.
            self.full_pipe.restart_at(sample.rate.unwrap_or_default());
            return false;
        }
        self.full_pipe.is_full()
    }

    /// AdaptLongTermModel(). Returns whether it has changed the state.
    fn adapt_long_term(&mut self, event: &CongestionEvent<'_>, sample: &RateSample) -> bool {
        if self.round_start && self.cycle.ack_phase == AckPhase::Starting {
            self.cycle.ack_phase = AckPhase::Feedback;
        }
        if self.round_start && self.cycle.ack_phase == AckPhase::Stopping {
            self.cycle.is_probe = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !sample.app_limited {
                self.cycle.count += 1;
            }
            let safe = self.cycle.was_precaution && !self.cycle.was_too_high;
            if self.state.is_probe_bw() && safe {
                self.start_refill();
                return true;
            }
        }
        if !self.is_too_high(sample.lost_bytes, sample) {
            self.raise_long_term(event, sample);
        }
        false
    }
}
