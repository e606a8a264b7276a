//! Version 1: draft-cardwell-iccrg-bbr-congestion-control-00, whose sections are cited here, with
//! the behaviour of Linux 4.10 to 4.19 where the draft does not specify one.
//!
//! - `startup`, `drain`, `probe_bw`, `probe_rtt`: one file per state.
//! - `state`: the common part of the states, and the gains.
//! - `window`: the congestion window, also during recovery.
//! - `policer`: detects token buckets.

mod config;
mod drain;
mod policer;
mod probe_bw;
mod probe_rtt;
mod startup;
mod state;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

pub use config::BbrConfig;
use policer::{Policer, PolicerInput, Totals};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use state::{BbrState, STARTUP_GAIN};

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

/// BBRMinPipeCwnd (Section 4.2.3.3).
const MIN_WINDOW_PACKETS: u64 = 4;
/// Bounds the send quantum (Section 4.2.2).
const MAX_QUANTUM_BYTES: u64 = 64 * 1024;
/// Below this rate the send quantum is one packet (Linux, `bbr_min_tso_rate`).
const MIN_TWO_PACKET_QUANTUM_RATE: Bandwidth = Bandwidth::from_bits_per_s(1_200_000);

/// The controller of BBR version 1, with the settings of a [`BbrConfig`].
#[derive(Debug)]
pub struct Bbr {
    config: BbrConfig,
    rng: Pcg64Mcg,
    mtu_bytes: u64,
    initial_window_bytes: u64,
    state: BbrState,
    sampler: RateSampler,
    rounds: RoundCounter,
    next_number: u64,
    bandwidth_filter: WindowedMax<Bandwidth>,
    full_pipe: FullPipe,
    policer: Policer,
    aggregation: AckAggregation,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    recovery: LossRecovery,
    window_bytes: u64,
    prior_window_bytes: u64,
    pacing_rate: Bandwidth,
    idle_restart: bool,
    has_rtt: bool,
    probe_timeouts: u32,
}

impl Bbr {
    fn new(config: BbrConfig, now: Time, start: &PathStart) -> Self {
        let mtu_bytes = start.mtu_bytes.max(1);
        let mut bbr = Self {
            config,
            rng: Pcg64Mcg::seed_from_u64(start.seed),
            mtu_bytes,
            initial_window_bytes: start.initial_window_bytes,
            state: BbrState::Startup,
            sampler: RateSampler::default(),
            rounds: RoundCounter::default(),
            next_number: 0,
            bandwidth_filter: WindowedMax::new(config.bandwidth_rounds),
            full_pipe: FullPipe::default(),
            policer: Policer::default(),
            aggregation: AckAggregation::new(now),
            min_rtt: None,
            min_rtt_at: now,
            recovery: LossRecovery::default(),
            window_bytes: start.initial_window_bytes,
            prior_window_bytes: 0,
            pacing_rate: MIN_RATE,
            idle_restart: false,
            has_rtt: false,
            probe_timeouts: 0,
        };
        bbr.bound_window();
        bbr.pace_initially(NOMINAL_RTT);
        bbr
    }

    /// BBR.BtlBw.
    fn max_bandwidth(&self) -> Bandwidth {
        self.bandwidth_filter.get().unwrap_or(Bandwidth::ZERO)
    }

    /// The bandwidth in use: a policer's rate if one was detected.
    fn bandwidth(&self) -> Bandwidth {
        self.policer.rate().unwrap_or_else(|| self.max_bandwidth())
    }

    fn pacing_gain(&self) -> Gain {
        match (&self.state, self.policer.rate()) {
            (BbrState::ProbeBw(_), Some(_)) => Gain::ONE,
            (state, _) => state.pacing_gain(),
        }
    }

    /// Section 4.2.1: the initial window per round trip, times startup's gain.
    fn pace_initially(&mut self, rtt: Duration) {
        let rtt = rtt.max(Duration::from_micros(1));
        let rate = Bandwidth::from_bytes_and_time(self.window_bytes, rtt);
        self.pacing_rate = self.paced(rate, STARTUP_GAIN);
    }

    fn paced(&self, bandwidth: Bandwidth, gain: Gain) -> Bandwidth {
        let margin = Gain::new(100 - self.config.pacing_margin_percent as u32, 100);
        margin.of_rate(gain.of_rate(bandwidth)).clamp(MIN_RATE, MAX_RATE)
    }

    /// BBRSetPacingRateWithGain (Section 4.2.1): does not decrease before the pipe was full once.
    fn set_pacing_rate(&mut self, gain: Gain) {
        let rate = self.paced(self.bandwidth(), gain);
        if self.full_pipe.is_full() || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn totals(&self, now: Time) -> Totals {
        Totals {
            at: now,
            delivered_bytes: self.sampler.delivered_bytes(),
            lost_bytes: self.sampler.lost_bytes(),
        }
    }

    /// BBRUpdateBtlBw (Section 4.1.2.3), with Linux' policer detection.
    fn update_bandwidth(
        &mut self,
        event: &CongestionEvent<'_>,
        sample: &RateSample,
        round_start: bool,
    ) {
        if self.config.policer_detection {
            let over = self.policer.on_acked(&PolicerInput {
                totals: self.totals(event.now),
                has_losses: !event.lost.is_empty(),
                round_start,
                app_limited: sample.app_limited,
                probing_bandwidth: matches!(self.state, BbrState::ProbeBw(_)),
            });
            if over {
                self.enter_probe_bw(event.now);
            }
        }
        // A rate that the application limited is a lower bound of the path's rate.
        let Some(rate) = sample.rate.map(|rate| rate.min(MAX_RATE)) else { return };
        if !sample.app_limited || rate >= self.max_bandwidth() {
            self.bandwidth_filter.add(self.rounds.rounds(), rate);
        }
    }

    /// BBRUpdateModelAndState (Section 4.1).
    fn update_model(&mut self, event: &CongestionEvent<'_>, sample: &RateSample, acked_bytes: u64) {
        let round_start = self.rounds.on_acked(event.acked);
        self.recovery.conserving &= !round_start;
        self.update_bandwidth(event, sample, round_start);
        if self.config.ack_aggregation {
            let acked = Acknowledged {
                bytes: acked_bytes,
                round: self.rounds.rounds(),
                rate: self.bandwidth(),
                window_bytes: self.window_bytes,
            };
            self.aggregation.on_acked(event.now, &acked);
        }
        self.update_cycle(event);
        self.check_full_pipe(sample, round_start);
        self.check_drained(event);
        self.update_min_rtt(event, round_start);
    }

    fn note_losses(&mut self, event: &CongestionEvent<'_>) {
        if event.lost.is_empty() {
            return;
        }
        for packet in event.lost {
            self.sampler.on_lost(packet);
        }
        if !self.recovery.is_active() {
            self.save_window();
        }
        self.recovery.on_lost(event.lost, self.next_number);
    }

    fn on_timeout(&mut self, now: Time) {
        self.save_window();
        self.recovery.on_timeout(self.next_number);
        self.collapse_window();
        // Linux, `bbr_set_state`: like the end of a round with a loss.
        self.full_pipe.forget_baseline();
        if self.config.policer_detection && self.policer.rate().is_none() {
            self.policer.on_acked(&PolicerInput {
                totals: self.totals(now),
                has_losses: true,
                round_start: true,
                app_limited: false,
                probing_bandwidth: false,
            });
        }
    }

    /// Changes the state; every transition uses this.
    fn transition_to(&mut self, next: BbrState) {
        let (from, to) = (self.state.name(), next.name());
        assert!(self.state.may_become(&next), "{from} does not lead to {to}");
        self.state = next;
    }
}

impl ControllerConfig for BbrConfig {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Bbr::new(*self, now, start))
    }
}

impl Controller for Bbr {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        // Section 4.3.6: an idle flow restarts at the path's rate.
        if packet.prior_in_flight_bytes == 0 && self.sampler.is_app_limited() {
            self.idle_restart = true;
            self.aggregation.restart(packet.time);
            match self.state {
                BbrState::ProbeBw(_) => self.set_pacing_rate(Gain::ONE),
                BbrState::ProbeRtt(_) => self.check_probe_rtt_done(packet.time),
                _ => {}
            }
        }
        self.next_number = packet.number + 1;
        self.rounds.on_sent(packet);
        self.sampler.on_sent(packet);
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        self.note_losses(event);
        let sample = self.sampler.on_acked(event);
        if event.app_limited {
            self.sampler.on_app_limited(event.in_flight_bytes);
        }
        if event.acked.is_empty() {
            return;
        }
        self.probe_timeouts = 0;
        self.recovery.on_acked(event.acked);
        if let Some(rtt) = event.rtt.filter(|_| !self.has_rtt) {
            self.has_rtt = true;
            self.pace_initially(rtt.smoothed);
        }
        let acked_bytes = event.acked.iter().map(|packet| packet.bytes).sum();
        if let Some(sample) = sample {
            self.update_model(event, &sample, acked_bytes);
        }
        self.set_pacing_rate(self.pacing_gain());
        self.update_window(event, acked_bytes);
    }

    fn on_packet_discarded(&mut self, number: u64) {
        self.sampler.on_discarded(number);
    }

    /// Linux, `bbr_undo_cwnd`, which is called once all losses of a recovery were spurious. If it were called
    /// for each of them, startup would never end on a path that keeps reordering.
    fn on_spurious_loss(&mut self, _now: Time, packet: &LostPacket) {
        self.sampler.on_spurious_loss(packet);
        self.recovery.on_spurious_loss();
        if self.recovery.take_left() {
            self.full_pipe.forget_rounds();
            self.policer.reset();
            self.window_bytes = self.window_bytes.max(self.prior_window_bytes);
        }
    }

    /// The first probe timeout only tests whether the last packets were lost, and must not change anything
    /// (RFC 9002, Section 6.2). The second comes at about the time of persistent congestion (RFC 9002,
    /// Section 7.6), and counts as TCP's retransmission timeout (Section 4.2.3.4).
    fn on_probe_timeout(&mut self, now: Time) {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        if self.probe_timeouts == PROBE_TIMEOUTS_PER_RTO {
            self.on_timeout(now);
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
        self.bandwidth_filter.add(self.rounds.rounds(), bandwidth);
        self.min_rtt = Some(rtt);
        self.min_rtt_at = now;
        self.has_rtt = true;
        self.full_pipe.set_full();
        self.policer.reset();
        self.recovery = LossRecovery::default();
        if path.standing_queue(STANDING_QUEUE_RTT_RATIO).is_some() {
            self.enter_probe_bw_after_probe(now);
        } else {
            self.enter_probe_bw(now);
        }
        self.set_pacing_rate(self.pacing_gain());
        let target = self.target_bytes(bandwidth, self.state.window_gain());
        let window_bytes = if path.window_bytes == 0 { target } else { path.window_bytes };
        self.window_bytes = window_bytes.min(target);
        self.window_bytes = self.window_bytes.max(MIN_WINDOW_PACKETS * self.mtu_bytes);
        self.prior_window_bytes = self.window_bytes;
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn steady_state_window_bytes(&self) -> u64 {
        match self.state {
            BbrState::ProbeRtt(_) => self.window_bytes.max(self.prior_window_bytes),
            _ => self.window_bytes,
        }
    }

    fn pacing_rate(&self) -> Bandwidth {
        self.pacing_rate
    }

    fn metrics(&self) -> ControllerMetrics {
        let min_rtt = self.min_rtt.unwrap_or_default();
        ControllerMetrics {
            state: self.state.name(),
            pacing_rate: self.pacing_rate,
            window_bytes: self.window_bytes,
            figures: vec![
                ("bandwidth_mbps", self.bandwidth().mbps()),
                ("min_rtt_ms", min_rtt.as_secs_f64() * 1e3),
                ("pacing_gain", self.pacing_gain().as_f64()),
                ("window_gain", self.state.window_gain().as_f64()),
                ("rounds", self.rounds.rounds() as f64),
                ("in_recovery", f64::from(u8::from(self.recovery.is_active()))),
                ("policed", f64::from(u8::from(self.policer.rate().is_some()))),
                ("extra_acked_bytes", self.aggregation.excess_bytes(self.bandwidth()) as f64),
            ],
        }
    }
}
