//! What the four states of ProbeBW have in common: when one follows the other, and what the
//! acknowledgements of a probe mean.

use std::time::Duration;

use rand_core::RngCore;

use super::Bbr3;
use super::state::State;
use crate::bbr::gain::Gain;
use crate::estimators::RateSample;
use crate::{CongestionEvent, Time};

pub(super) const DOWN_PACING_GAIN: Gain = Gain::new(9, 10);
pub(super) const UP_PACING_GAIN: Gain = Gain::new(5, 4);
pub(super) const UP_WINDOW_GAIN: Gain = Gain::new(9, 4);

/// What acknowledgements tell of the last probe (BBR.ack_phase).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// Nothing.
    #[default]
    Init,
    /// The path is being filled.
    Refilling,
    /// More is being sent.
    Starting,
    /// What comes was sent while more was being sent.
    Feedback,
    /// No more of it is being sent, but it still comes.
    Stopping,
}

/// Where in the cycle a flow is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    /// BBR.cycle_count: the time of the bandwidth filter.
    pub(super) count: u64,
    /// BBR.cycle_stamp.
    started: Time,
    /// BBR.bw_probe_wait.
    wait: Duration,
    /// BBR.rounds_since_probe_up.
    pub(super) rounds: u64,
    pub(super) ack_phase: AckPhase,
    /// BBR.is_bw_probe_sample.
    pub(super) is_probe: bool,
    /// BBR.prev_probe_too_high.
    pub(super) was_too_high: bool,
    /// BBR.prev_probe_precautionary.
    pub(super) was_precaution: bool,
}

impl Bbr3 {
    /// StartProbeBW_DOWN().
    pub(super) fn start_down(&mut self, now: Time) {
        self.reset_congestion_signals();
        self.stop_raising();
        self.pick_wait();
        self.cycle.started = now;
        self.cycle.ack_phase = AckPhase::Stopping;
        self.rounds.restart();
        self.transition_to(State::Down);
    }

    /// PickProbeWait(): at random, so that flows do not probe at once.
    fn pick_wait(&mut self) {
        self.cycle.rounds = u64::from(self.rng.next_u32() & 1);
        let least = Duration::from_millis(self.config.probe_wait_ms);
        let spread = least / 2;
        self.cycle.wait = least + spread.mul_f64(f64::from(self.rng.next_u32()) / 2_f64.powi(32));
    }

    /// StartProbeBW_REFILL(): forgets the losses of the last cycle, and fills the path before
    /// more is sent, so that losses are those of a full path.
    pub(super) fn start_refill(&mut self) {
        self.reset_short_term();
        self.raise.rounds = 0;
        self.raise.acked_bytes = 0;
        self.cycle.was_precaution = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.rounds.restart();
        self.transition_to(State::Refill);
    }

    /// StartProbeBW_UP().
    fn start_up(&mut self, sample: &RateSample) {
        self.cycle.is_probe = true;
        self.cycle.ack_phase = AckPhase::Starting;
        self.rounds.restart();
        // What is being sent, at least: a sample of the first round after another algorithm has only part of it.
        let refilling = self.config.margin().of_rate(self.bandwidth);
        self.full_pipe.restart_at(sample.rate.unwrap_or_default().max(refilling));
        self.transition_to(State::Up);
        self.raise_slope();
    }

    /// UpdateProbeBWCyclePhase().
    pub(super) fn update_cycle(&mut self, event: &CongestionEvent<'_>, sample: &RateSample) {
        if !self.filled || self.adapt_long_term(event, sample) {
            return;
        }
        let state = self.state;
        match state {
            State::Down if self.is_time_to_probe(event.now) => self.start_refill(),
            State::Down if self.is_time_to_cruise(event) => self.transition_to(State::Cruise),
            State::Cruise if self.is_time_to_probe(event.now) => self.start_refill(),
            State::Refill if self.round_start => self.start_up(sample),
            State::Up if self.is_time_to_go_down(event, sample) => {
                self.cycle.was_too_high = false;
                self.start_down(event.now);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW(): after two to three seconds, or where Reno would have grown by as much
    /// as a probe adds.
    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = self.target_inflight_bytes() / self.mtu_bytes;
        now - self.cycle.started > self.cycle.wait
            || self.cycle.rounds >= reno_rounds.min(self.config.probe_wait_rounds)
    }

    /// IsTimeToCruise(): when the queue is gone and there is room for others.
    fn is_time_to_cruise(&self, event: &CongestionEvent<'_>) -> bool {
        event.in_flight_bytes <= self.inflight_with_headroom()
            && event.in_flight_bytes <= self.inflight_bytes(self.max_bandwidth(), Gain::ONE)
    }

    /// IsTimeToGoDown(). The draft compares what is in flight after the acknowledgement, which a
    /// window that is full never is; Linux what was before. And no more than whole packets fit.
    fn is_time_to_go_down(&mut self, event: &CongestionEvent<'_>, sample: &RateSample) -> bool {
        let one_more = event.prior_in_flight_bytes.saturating_add(self.mtu_bytes);
        if self.cycle.was_too_high && one_more > self.inflight_longterm {
            self.cycle.was_precaution = true;
            return true;
        }
        if self.is_window_limited() && self.window_bytes >= self.inflight_longterm {
            // What bounds the rate is our own bound, not the path.
            self.full_pipe.restart_at(sample.rate.unwrap_or_default());
            return false;
        }
        self.full_pipe.is_full()
    }

    /// AdaptLongTermModel(); whether it has decided on the next state.
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
