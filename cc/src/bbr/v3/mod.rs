//! Version 3: draft-ietf-ccwg-bbr in its text of August 2026 (commit 4ce5e87 of its repository), whose names
//! are cited here.
//!
//! - `startup`, `drain`, `probe_bw`, `probe_rtt`: the states. The four of ProbeBW differ in their gains and
//!   transitions, and share a file.
//! - `state`: the common part of the states, and the gains.
//! - `model`: the flow's estimates.
//! - `long_term`, `short_term`: bounds from losses.
//! - `window`: the congestion window.

mod config;
mod drain;
mod long_term;
mod model;
mod probe_bw;
mod probe_rtt;
mod short_term;
mod startup;
mod state;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

pub use config::Bbr3Config;
use model::{Cycle, MinRtt, Raise, UNBOUNDED, UNBOUNDED_RATE, Undo, UndoState};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use state::{Bbr3State, STARTUP_PACING_GAIN, WINDOW_GAIN};

use super::ack_aggregation::{AckAggregation, Acknowledged};
use super::common::{
    MAX_RATE, MIN_RATE, NOMINAL_RTT, PROBE_TIMEOUTS_PER_RTO, STANDING_QUEUE_RTT_RATIO,
    warm_start_estimates,
};
use super::full_pipe::FullPipe;
use super::gain::Gain;
use super::recovery::LossRecovery;
use crate::estimators::{RateSample, RateSampler, RoundCounter, WindowedMax};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, LostPacket,
    PathModel, PathStart, SentPacket, Time,
};

/// BBR.MinPipeCwnd.
const MIN_WINDOW_PACKETS: u64 = 4;
/// Bounds the send quantum ("Send Quantum").
const MAX_QUANTUM_BYTES: u64 = 64 * 1024;
/// BBR.MaxBwFilterLen: the current cycle and the previous one.
const BANDWIDTH_CYCLES: u64 = 1;
/// BBR.ExtraAckedFilterLen, round trips.
const EXTRA_ACKED_ROUNDS: u64 = 10;
/// The filter length of startup, round trips ("BBR.extra_acked").
const STARTUP_EXTRA_ACKED_ROUNDS: u64 = 1;
/// The controller of BBR version 3, with the settings of a [`Bbr3Config`].
#[derive(Debug)]
pub struct Bbr3 {
    config: Bbr3Config,
    rng: Pcg64Mcg,
    mtu_bytes: u64,
    initial_window_bytes: u64,
    state: Bbr3State,
    sampler: RateSampler,
    rounds: RoundCounter,
    round_start: bool,
    next_number: u64,
    /// BBR.max_bw_filter.
    bandwidth_filter: WindowedMax<Bandwidth>,
    /// BBR.bw.
    bandwidth: Bandwidth,
    /// BBR.full_bw_now and its count.
    full_pipe: FullPipe,
    /// BBR.full_bw_reached.
    filled: bool,
    aggregation: AckAggregation,
    min_rtt: MinRtt,
    cycle: Cycle,
    raise: Raise,
    inflight_longterm: u64,
    bandwidth_shortterm: Bandwidth,
    inflight_shortterm: u64,
    bandwidth_latest: Bandwidth,
    inflight_latest: u64,
    loss_rounds: RoundCounter,
    loss_round_start: bool,
    loss_in_round: bool,
    /// Ranges of packets lost in this round trip.
    loss_ranges: u64,
    last_lost: Option<u64>,
    undo: UndoState,
    recovery: LossRecovery,
    window_bytes: u64,
    prior_window_bytes: u64,
    /// Whether the window was full in this round trip, and in the previous one.
    window_limited: [bool; 2],
    pacing_rate: Bandwidth,
    idle_restart: bool,
    has_rtt: bool,
    probe_timeouts: u32,
}

impl Bbr3 {
    /// OnInit().
    fn new(config: Bbr3Config, now: Time, start: &PathStart) -> Self {
        let mtu_bytes = start.mtu_bytes.max(1);
        let mut bbr = Self {
            config,
            rng: Pcg64Mcg::seed_from_u64(start.seed),
            mtu_bytes,
            initial_window_bytes: start.initial_window_bytes,
            state: Bbr3State::Startup,
            sampler: RateSampler::default(),
            rounds: RoundCounter::default(),
            round_start: false,
            next_number: 0,
            bandwidth_filter: WindowedMax::new(BANDWIDTH_CYCLES),
            bandwidth: Bandwidth::ZERO,
            full_pipe: FullPipe::default(),
            filled: false,
            aggregation: AckAggregation::new(now),
            min_rtt: MinRtt::new(now),
            cycle: Cycle::default(),
            raise: Raise::default(),
            inflight_longterm: UNBOUNDED,
            bandwidth_shortterm: UNBOUNDED_RATE,
            inflight_shortterm: UNBOUNDED,
            bandwidth_latest: Bandwidth::ZERO,
            inflight_latest: 0,
            loss_rounds: RoundCounter::default(),
            loss_round_start: false,
            loss_in_round: false,
            loss_ranges: 0,
            last_lost: None,
            undo: UndoState::default(),
            recovery: LossRecovery::default(),
            window_bytes: start.initial_window_bytes,
            prior_window_bytes: 0,
            window_limited: [false; 2],
            pacing_rate: MIN_RATE,
            idle_restart: false,
            has_rtt: false,
            probe_timeouts: 0,
        };
        bbr.bound_window();
        bbr.pace_initially(NOMINAL_RTT);
        bbr
    }

    fn max_bandwidth(&self) -> Bandwidth {
        self.bandwidth_filter.get().unwrap_or(Bandwidth::ZERO)
    }

    /// InitPacingRate().
    fn pace_initially(&mut self, rtt: Duration) {
        let rtt = rtt.max(Duration::from_micros(1));
        let rate = Bandwidth::from_bytes_and_time(self.window_bytes, rtt);
        self.pacing_rate = STARTUP_PACING_GAIN.of_rate(rate).clamp(MIN_RATE, MAX_RATE);
    }

    /// SetPacingRateWithGain().
    fn set_pacing_rate(&mut self, gain: Gain) {
        let rate = self.config.margin().of_rate(gain.of_rate(self.bandwidth));
        if self.filled || rate > self.pacing_rate {
            self.pacing_rate = rate.clamp(MIN_RATE, MAX_RATE);
        }
    }

    /// C.is_cwnd_limited.
    fn is_window_limited(&self) -> bool {
        self.window_limited.contains(&true)
    }

    /// UpdateRound().
    fn update_round(&mut self, event: &CongestionEvent<'_>) {
        self.loss_round_start = self.loss_rounds.on_acked(event.acked);
        self.round_start = self.rounds.on_acked(event.acked);
        if self.round_start {
            self.cycle.rounds += 1;
            self.window_limited = [false, self.window_limited[0]];
        }
    }

    /// UpdateMaxBw().
    fn update_max_bandwidth(&mut self, sample: &RateSample) {
        let Some(rate) = sample.rate.map(|rate| rate.min(MAX_RATE)) else { return };
        if !sample.app_limited || rate >= self.max_bandwidth() {
            self.bandwidth_filter.add(self.cycle.count, rate);
        }
    }

    /// UpdateACKAggregation().
    fn update_aggregation(&mut self, event: &CongestionEvent<'_>) {
        self.aggregation.set_rounds(match self.filled {
            true => EXTRA_ACKED_ROUNDS,
            false => STARTUP_EXTRA_ACKED_ROUNDS,
        });
        let acked = Acknowledged {
            bytes: event.acked.iter().map(|packet| packet.bytes).sum(),
            round: self.rounds.rounds(),
            rate: self.bandwidth,
            window_bytes: self.window_bytes,
        };
        self.aggregation.on_acked(event.now, &acked);
    }

    /// UpdateModelAndState().
    fn update_model(&mut self, event: &CongestionEvent<'_>, sample: &RateSample) {
        self.update_round(event);
        self.update_latest(sample);
        self.update_max_bandwidth(sample);
        self.adapt_short_term();
        self.update_aggregation(event);
        self.check_full_pipe(sample);
        self.check_startup_done(sample);
        self.check_drained(event);
        self.update_cycle(event, sample);
        self.update_min_rtt(event);
        self.check_probe_rtt(event);
        self.advance_latest(sample);
        self.bandwidth = self.max_bandwidth().min(self.bandwidth_shortterm);
    }

    /// HandleLostPacket() for each, in order.
    fn note_losses(&mut self, event: &CongestionEvent<'_>) {
        if !event.lost.is_empty() && !self.recovery.is_active() {
            self.save_state();
        }
        for packet in event.lost {
            self.note_loss();
            let follows = self.last_lost.is_some_and(|last| packet.number == last + 1);
            self.loss_ranges += u64::from(!follows);
            self.last_lost = Some(packet.number);
            if let Some(sample) = self.sampler.on_lost(packet) {
                self.judge_loss(event, &sample);
            }
        }
        if !event.lost.is_empty() {
            self.recovery.on_lost(event.lost, self.next_number);
        }
    }

    /// "ECN": the draft has no specific response and treats marks as congestion. Here a mark counts as a
    /// loss, and a mark while probing ends the probe, as a loss ends Reno's growth.
    fn note_marks(&mut self, event: &CongestionEvent<'_>) {
        if event.ecn_ce == 0 {
            return;
        }
        self.note_loss();
        if self.cycle.is_probe {
            self.on_too_high(event, event.prior_in_flight_bytes, event.app_limited);
        }
    }

    /// The end of HandleSpuriousLossDetection().
    fn return_to_probe(&mut self, undo: Option<Undo>) {
        let measuring = matches!(self.state, Bbr3State::ProbeRtt(_));
        match undo {
            Some(Undo::Startup) if !matches!(self.state, Bbr3State::Startup) => {
                self.filled = false;
                if !measuring {
                    self.transition_to(Bbr3State::Startup);
                }
            }
            Some(Undo::Up) if !measuring && !matches!(self.state, Bbr3State::Up) => {
                self.start_refill();
            }
            _ => {}
        }
    }

    /// Changes the state; every transition uses this.
    fn transition_to(&mut self, next: Bbr3State) {
        let (from, to) = (self.state.name(), next.name());
        assert!(self.state.may_become(&next), "{from} does not lead to {to}");
        self.state = next;
    }
}

impl ControllerConfig for Bbr3Config {
    fn name(&self) -> &'static str {
        "bbr3"
    }

    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Bbr3::new(*self, now, start))
    }
}

impl Controller for Bbr3 {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        // HandleRestartFromIdle().
        if packet.prior_in_flight_bytes == 0 && self.sampler.is_app_limited() {
            self.idle_restart = true;
            self.aggregation.restart(packet.time);
            if self.state.is_probe_bw() {
                self.set_pacing_rate(Gain::ONE);
            } else {
                self.check_probe_rtt_done(packet.time);
            }
        }
        let in_flight = packet.prior_in_flight_bytes.saturating_add(packet.bytes);
        self.window_limited[0] |= in_flight.saturating_add(self.mtu_bytes) > self.window_bytes;
        self.next_number = packet.number + 1;
        self.rounds.on_sent(packet);
        self.loss_rounds.on_sent(packet);
        self.sampler.on_sent(packet);
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        self.note_losses(event);
        self.note_marks(event);
        let sample = self.sampler.on_acked(event);
        if event.app_limited {
            self.sampler.on_app_limited(event.in_flight_bytes);
        }
        if event.acked.is_empty() {
            return;
        }
        self.probe_timeouts = 0;
        self.recovery.on_acked(event.acked);
        if self.recovery.take_left() {
            self.restore_window();
        }
        if let Some(rtt) = event.rtt.filter(|_| !self.has_rtt) {
            self.has_rtt = true;
            self.pace_initially(rtt.smoothed);
        }
        if let Some(sample) = sample {
            self.update_model(event, &sample);
        }
        self.set_pacing_rate(self.state.pacing_gain());
        self.update_window(event);
    }

    fn on_packet_discarded(&mut self, number: u64) {
        self.sampler.on_discarded(number);
    }

    fn on_spurious_loss(&mut self, _now: Time, packet: &LostPacket) {
        self.sampler.on_spurious_loss(packet);
        self.recovery.on_spurious_loss();
        if self.recovery.take_left() {
            self.undo_losses();
            self.bound_window();
        }
    }

    /// The first probe timeout only tests whether the last packets were lost, and must not change anything
    /// (RFC 9002, Section 6.2). The second comes at about the time of persistent congestion (RFC 9002,
    /// Section 7.6), and counts as a retransmission timeout.
    fn on_probe_timeout(&mut self, _now: Time) {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        if self.probe_timeouts == PROBE_TIMEOUTS_PER_RTO {
            self.save_state();
            self.recovery.on_timeout(self.next_number);
            self.collapse_window();
        }
    }

    fn on_app_limited(&mut self, _now: Time, in_flight_bytes: u64) {
        self.sampler.on_app_limited(in_flight_bytes);
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes.max(1);
        self.bound_window();
    }

    fn init_from_path(&mut self, now: Time, path: &PathModel) {
        let Some((bandwidth, rtt)) = warm_start_estimates(path) else { return };
        self.bandwidth_filter.clear();
        self.bandwidth_filter.add(self.cycle.count, bandwidth);
        self.bandwidth = bandwidth;
        self.min_rtt = MinRtt::known(now, rtt);
        self.has_rtt = true;
        self.filled = true;
        self.undo = UndoState::default();
        self.recovery = LossRecovery::default();
        self.reset_congestion_signals();
        let target = self.inflight_bytes(bandwidth, WINDOW_GAIN);
        let window_bytes = if path.window_bytes == 0 { target } else { path.window_bytes };
        let least = MIN_WINDOW_PACKETS * self.mtu_bytes;
        self.window_bytes = window_bytes.min(target).max(least);
        self.prior_window_bytes = self.window_bytes;
        self.inflight_longterm = UNBOUNDED;
        // With a standing queue as after startup; without one the rate may be far below the path's.
        if path.standing_queue(STANDING_QUEUE_RTT_RATIO).is_some() {
            self.enter_drain();
        } else {
            self.start_refill();
        }
        self.set_pacing_rate(self.state.pacing_gain());
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn steady_state_window_bytes(&self) -> u64 {
        match self.state {
            Bbr3State::ProbeRtt(_) => self.window_bytes.max(self.prior_window_bytes),
            _ => self.window_bytes,
        }
    }

    fn pacing_rate(&self) -> Bandwidth {
        self.pacing_rate
    }

    fn metrics(&self) -> ControllerMetrics {
        let min_rtt = self.min_rtt.min.unwrap_or_default();
        let bound = |bytes| if bytes == UNBOUNDED { 0.0 } else { bytes as f64 };
        ControllerMetrics {
            state: self.state.name(),
            pacing_rate: self.pacing_rate,
            window_bytes: self.window_bytes,
            figures: vec![
                ("bandwidth_mbps", self.bandwidth.mbps()),
                ("max_bandwidth_mbps", self.max_bandwidth().mbps()),
                ("min_rtt_ms", min_rtt.as_secs_f64() * 1e3),
                ("pacing_gain", self.state.pacing_gain().as_f64()),
                ("window_gain", self.state.window_gain().as_f64()),
                ("rounds", self.rounds.rounds() as f64),
                // Zero without a bound.
                ("inflight_longterm_bytes", bound(self.inflight_longterm)),
                ("inflight_shortterm_bytes", bound(self.inflight_shortterm)),
                ("extra_acked_bytes", self.aggregation.excess_bytes(self.bandwidth) as f64),
            ],
        }
    }
}
