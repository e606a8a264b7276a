//! From outcomes of epochs to rates: one file per state.

mod drain;
mod start_up;
mod state;
mod steady;
mod trial;

use std::time::Duration;

use state::{DrainMeasurement, Feedback, IrisState, START_GAIN};

use super::config::IrisConfig;
use super::epoch::EpochOutcome;
use super::losses::{Count, LossVerdict, Losses};
use super::slope::DelaySlope;
use super::target::TargetDelay;
use crate::Time;
use crate::estimators::WindowedMax;

/// gamma of Eq. 13: weight of the newest receiving rate.
const RECEIVED_WEIGHT: f64 = 0.8;
/// The highest receiving rate of this long bounds an epoch's receiving rate: more is only shown by compressed
/// acknowledgements. As long as BBR's bandwidth window in time (draft-cardwell-iccrg-bbr-congestion-control-00,
/// Section 4.1.2).
const CAPACITY_WINDOW: Duration = Duration::from_secs(10);
/// Most epochs of a round trip.
/// Chosen by `steady_epochs_last_a_quarter_of_a_long_round_trip`.
const MAX_EPOCHS_PER_RTT: u32 = 4;
/// T's window is at least this many decisions.
/// Chosen by `round_trips_of_a_tenth_of_a_millisecond_and_of_two_seconds_work` (lab/sim/tests/real_conditions.rs).
const MIN_WINDOW_DECISIONS: u32 = 8;
/// An RTT confirms the smallest RTT if it is above it by at most this share of the delay of B packets.
const CONFIRM_TOLERANCE: f64 = 0.1;
/// Least and largest rate, 10^6 bit/s: a packet every half second, and a bound that keeps arithmetic finite.
const RATE_BOUNDS_MBPS: (f64, f64) = (0.02, 100_000.0);

/// Decides rates from the outcomes of epochs (Sections IV and V).
///
/// A decision stands until an epoch that was sent at its rate is complete. The paper decides with each
/// epoch: on a path of 800 ms these are 16 decisions before the feedback of the first.
#[derive(Debug)]
pub(super) struct Control {
    config: IrisConfig,
    state: IrisState,
    rate_mbps: f64,
    decision: u64,
    mtu_bytes: u64,
    target: TargetDelay,
    slope: DelaySlope,
    losses: Losses,
    start_losses: Count,
    capacity: WindowedMax<u64>,
    /// r^ and RTT of the previous epoch.
    received_before: Option<f64>,
    rtt_before: Option<Duration>,
    received_mbps: f64,
    load_packets: f64,
    /// B, or the part of it that the buffer holds.
    load_target: f64,
    load_before_trial: f64,
    /// Delay above the smallest RTT.
    queue: Duration,
    trial_queue: Duration,
    rises: u32,
    careful_until: Time,
    overloaded: u32,
    last_drain: Option<DrainMeasurement>,
    useless_drains: u32,
    drain_decision: u64,
    trial_decision: u64,
    tried_decision: u64,
    /// Decision whose start-up epoch lacked data.
    unclear_decision: Option<u64>,
    trial_mbps: f64,
    trial_since: Time,
}

impl Control {
    pub(super) fn new(config: IrisConfig, start_mbps: f64, mtu_bytes: u64) -> Self {
        Self {
            state: IrisState::Starting { until: None, good_mbps: bounded(start_mbps) },
            rate_mbps: bounded(start_mbps),
            decision: 0,
            mtu_bytes,
            target: TargetDelay::new(config.target, config.extensions.median_bound),
            slope: DelaySlope::new(config.epoch(), config.slope, config.extensions.slope_bound),
            losses: Losses::default(),
            start_losses: Count::default(),
            capacity: WindowedMax::new(CAPACITY_WINDOW.as_nanos() as u64),
            received_before: None,
            rtt_before: None,
            received_mbps: bounded(start_mbps),
            load_packets: 0.0,
            load_target: config.load_packets,
            load_before_trial: config.load_packets,
            queue: Duration::ZERO,
            trial_queue: Duration::ZERO,
            rises: 0,
            careful_until: Time::ZERO,
            overloaded: 0,
            last_drain: None,
            useless_drains: 0,
            drain_decision: 0,
            trial_decision: 0,
            tried_decision: 0,
            unclear_decision: None,
            trial_mbps: 0.0,
            trial_since: Time::ZERO,
            config,
        }
    }

    pub(super) fn rate_mbps(&self) -> f64 {
        self.rate_mbps
    }

    /// The rate outside of drains, for the window.
    pub(super) fn steady_state_mbps(&self) -> f64 {
        match self.state {
            IrisState::Draining { resume_mbps, .. } => bounded(resume_mbps.max(self.rate_mbps)),
            _ => self.rate_mbps,
        }
    }

    /// The smallest remembered RTT.
    pub(super) fn least_rtt(&self) -> Option<Duration> {
        self.target.lowest()
    }

    /// Number of the decision in force.
    pub(super) fn decision(&self) -> u64 {
        self.decision
    }

    /// Whether nothing has been decided.
    pub(super) fn is_fresh(&self) -> bool {
        self.decision == 0 && self.is_starting()
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(self.state, IrisState::Starting { .. })
    }

    pub(super) fn set_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes;
    }

    fn set(&mut self, rate_mbps: f64) {
        self.rate_mbps = bounded(rate_mbps);
        self.decision += 1;
    }

    /// Ends a drain or a tried rate that is over at `now`.
    pub(super) fn advance_to(&mut self, now: Time) {
        match self.state {
            IrisState::Draining { until, resume_mbps } if now >= until => {
                self.state = IrisState::Steady;
                self.set(resume_mbps);
            }
            IrisState::Starting { until: Some(until), good_mbps } if now >= until => {
                self.state = IrisState::Starting { until: None, good_mbps };
                self.set(good_mbps);
            }
            _ => {}
        }
    }

    /// Length of an epoch. The growth of the queue that it shows is extrapolated to a round trip: on a long
    /// path, the noise of a short epoch would make the rate vary.
    pub(super) fn epoch(&self, smoothed: Duration) -> Duration {
        match self.state {
            IrisState::Steady if self.config.extensions.long_epochs => {
                self.config.epoch().max(smoothed / MAX_EPOCHS_PER_RTT)
            }
            IrisState::Steady => self.config.epoch(),
            IrisState::Starting { .. } | IrisState::Draining { .. } => self.config.epoch(),
        }
    }

    /// Packets per second of a rate.
    fn per_second(&self, mbps: f64) -> f64 {
        mbps * 1e6 / 8.0 / self.mtu_bytes as f64
    }

    /// T's window: several decisions, so that a queue of seconds can drain before it becomes T.
    fn window(&self, hold: Duration) -> Duration {
        self.config.window().max(hold * MIN_WINDOW_DECISIONS)
    }

    fn load_of(&self, outcome: &EpochOutcome, queue: Duration) -> f64 {
        self.per_second(outcome.sent_mbps) * queue.as_secs_f64()
    }

    /// Processes a complete epoch; `smoothed` is the smoothed RTT.
    pub(super) fn on_outcome(&mut self, now: Time, outcome: &EpochOutcome, smoothed: Duration) {
        let Some(rtt) = outcome.rtt else { return };
        let hold = smoothed + self.epoch(smoothed);
        let target = self.update_target(now, rtt, hold);
        self.judge_drain(outcome, rtt);
        let lowest = self.target.lowest().unwrap_or(rtt);
        self.queue = rtt.saturating_sub(lowest);
        self.load_packets = self.load_of(outcome, rtt.saturating_sub(target));
        self.learn(outcome, rtt);
        let verdict = self.judge_losses(outcome, hold);
        let Some(stretch) = outcome.stretch else { return };
        let (newest_mbps, received_mbps) = self.receiving(outcome, stretch);
        let trial = verdict == LossVerdict::Trial;
        let feedback = Feedback {
            now,
            outcome: *outcome,
            stretch,
            newest_mbps,
            received_mbps,
            rtt,
            target,
            hold,
            trial,
        };
        match (verdict, self.state) {
            (LossVerdict::Excess { share }, _) => self.begin_trial(&feedback, share),
            (_, IrisState::Starting { .. }) if outcome.decision >= self.tried_decision => {
                self.start_up(&feedback);
            }
            _ if outcome.decision != self.decision => {}
            (_, IrisState::Starting { .. }) => {}
            (_, IrisState::Draining { .. }) => {}
            (_, IrisState::Steady) if outcome.partial => {}
            (_, IrisState::Steady) => self.steady(&feedback),
        }
    }

    /// Updates T with an epoch's RTT, and returns it.
    fn update_target(&mut self, now: Time, rtt: Duration, hold: Duration) -> Duration {
        // Longer than the drain interval, so that a drain confirms the smallest RTT before it expires.
        let window = self.window(hold) + hold * 3;
        let tolerance_packets = CONFIRM_TOLERANCE * self.config.load_packets;
        let tolerance_s =
            tolerance_packets / self.per_second(self.received_mbps).max(tolerance_packets);
        self.target.add(now, rtt, window, Duration::from_secs_f64(tolerance_s));
        self.target.get().unwrap_or(rtt)
    }

    /// r^_i (Eq. 12) and r_i (Eq. 13) of all packets sent: random loss does not lower the rate.
    fn receiving(&mut self, outcome: &EpochOutcome, stretch: f64) -> (f64, f64) {
        let highest = match self.state {
            // Packets of the tried rate are still arriving.
            IrisState::Starting { good_mbps, .. } if outcome.decision > self.tried_decision => {
                good_mbps * START_GAIN
            }
            _ => self.capacity.get().unwrap_or(0) as f64 / 1e6,
        };
        let newest = (outcome.sent_mbps * stretch).min(outcome.sent_mbps.max(highest));
        let before = self.received_before.unwrap_or(newest);
        // The receiving rate of a drain does not apply to the rate after it.
        self.received_before = (outcome.decision != self.drain_decision).then_some(newest);
        (newest, RECEIVED_WEIGHT * newest + (1.0 - RECEIVED_WEIGHT) * before)
    }

    fn note_received(&mut self, now: Time, mbps: f64) {
        self.received_mbps = mbps;
        self.capacity.add(now.as_nanos(), (mbps * 1e6) as u64);
    }

    /// Adds a point to the fit of k: the increase of the RTT over the excess of the sending rate.
    fn learn(&mut self, outcome: &EpochOutcome, rtt: Duration) {
        let before = self.rtt_before.replace(rtt);
        if let (Some(before), Some(stretch), false) = (before, outcome.stretch, outcome.partial) {
            let rise = rtt.as_secs_f64() - before.as_secs_f64();
            self.slope.add(outcome.duration, outcome.sent_mbps * (1.0 - stretch), rise);
        }
    }

    /// No feedback arrived: halves the rate, and restarts start-up in an `outage`. The paper does not cover this.
    pub(super) fn on_timeout(&mut self, outage: bool) {
        let rate = self.steady_state_mbps() / 2.0;
        self.state = match outage {
            true => IrisState::Starting { until: None, good_mbps: bounded(rate) },
            false => IrisState::Steady,
        };
        self.forget_last();
        self.set(rate);
        self.tried_decision = self.decision;
    }

    /// A packet that was declared lost was only late.
    pub(super) fn on_spurious_loss(&mut self) {
        self.losses.on_spurious_loss();
    }

    /// Continues from a known rate.
    pub(super) fn continue_at(&mut self, rate_mbps: f64) {
        self.state = IrisState::Steady;
        self.received_mbps = bounded(rate_mbps);
        self.forget_last();
        self.set(rate_mbps);
    }

    fn forget_last(&mut self) {
        self.received_before = None;
        self.rtt_before = None;
        self.rises = 0;
        self.overloaded = 0;
    }

    /// Changes the initial rate, before the first decision.
    pub(super) fn start_at(&mut self, rate_mbps: f64) {
        self.rate_mbps = bounded(rate_mbps);
    }

    pub(super) fn state(&self) -> &'static str {
        match self.state {
            IrisState::Starting { .. } => "starting",
            IrisState::Draining { .. } => "draining",
            IrisState::Steady => "steady",
        }
    }

    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let target = self.target.get().unwrap_or_default();
        vec![
            ("received_mbps", self.received_mbps),
            ("queue_load_packets", self.load_packets),
            ("target_delay_ms", target.as_secs_f64() * 1e3),
            ("slope_ms_per_mbps", self.slope.get(self.received_mbps) * 1e3),
            ("fitted_slope_ms_per_mbps", self.slope.fitted().unwrap_or(0.0) * 1e3),
            ("random_loss", self.losses.random()),
            ("decisions", self.decision as f64),
        ]
    }
}

fn bounded(mbps: f64) -> f64 {
    if mbps.is_nan() {
        RATE_BOUNDS_MBPS.0
    } else {
        mbps.clamp(RATE_BOUNDS_MBPS.0, RATE_BOUNDS_MBPS.1)
    }
}

#[cfg(test)]
mod long_path_tests;
