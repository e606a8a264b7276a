use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::app_rate::AppRate;
use super::config::{PccConfig, Steps};
use super::fixed_step::FixedStep;
use super::gradient::Gradient;
use super::monitor_interval::IntervalOutcome;
use super::noise::Judge;
use super::policy::{MeasuredInterval, RatePolicy, RoundState};
use super::start_up::{MIN_START_UP_REACHED_FRACTION, StartUp, StartUpStep};
use super::utility::{FilteredOutcome, Utility};
use crate::Tuning;

/// Share of its rate that an interval must reach to count although the application ran out of data
/// for a moment, as a relay that refills its buffer often does.
const MIN_REACHED_FRACTION: f64 = 0.97;
/// A sender that has data but cannot reach its rate (CPU, window) lowers the rate towards this multiple of the rate
/// reached. Chosen by `a_rate_that_the_sender_cannot_reach_comes_down_to_it`.
const MAX_RATE_OVER_SENT: f64 = 1.25;
/// Factor of that decrease in one round.
const OVER_SENT_DECREASE: f64 = 0.9;
/// Factor by which an interval without feedback lowers the rate (Section 4.3).
const TIMEOUT_DECREASE: f64 = 0.5;
/// Consecutive timeouts that mean an outage. The path is then unknown and the rate a small fraction of its
/// capacity: start-up runs again, as after a timeout in TCP (RFC 5681, Section 3.1). The paper never runs
/// start-up again, and would increase the rate by 5 % a decision.
const OUTAGE_TIMEOUTS: u32 = 2;

/// Least rate while a standing queue drains after a warm start, as a share of the rate.
/// Measured in docs/research/mcc.md (Migration).
const MIN_DRAIN_GAIN: f64 = 0.5;

/// Bounds of rates, by the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathBounds {
    pub(super) floor_mbps: f64,
    pub(super) ceiling_mbps: f64,
    /// One packet a round trip.
    pub(super) packet_mbps: f64,
    /// RTT from which on a queue stands; `None` while the base RTT is unknown.
    pub(super) standing_queue_rtt_s: Option<f64>,
}

impl Default for PathBounds {
    fn default() -> Self {
        Self {
            floor_mbps: 0.0,
            ceiling_mbps: f64::INFINITY,
            packet_mbps: 0.0,
            standing_queue_rtt_s: None,
        }
    }
}

/// Decides rates from the outcomes of monitor intervals.
///
/// Has no notion of packets or time: a caller requests the next interval, sends at its rate, and
/// returns its outcome. Start-up has one interval per round. After it a [`RatePolicy`] plans the
/// intervals of a round and decides from their outcomes.
#[derive(Debug)]
pub(super) struct RateControl {
    config: PccConfig,
    utility: Utility,
    judge: Judge,
    rng: Pcg64Mcg,
    /// Present until the first rate is found.
    start_up: Option<StartUp>,
    policy: Box<dyn RatePolicy>,
    central_mbps: f64,
    path: PathBounds,
    /// The intervals of the round: their gains, ids while they are out, and results.
    gains: Vec<f64>,
    ids: Vec<Option<u64>>,
    results: Vec<Option<MeasuredInterval>>,
    next_id: u64,
    timeouts: u32,
    decisions: u64,
    app_rate: AppRate,
    /// The rate before a drop of the path's rate, until it is reported.
    rate_before_drop_mbps: Option<f64>,
}

impl RateControl {
    pub(super) fn new(config: PccConfig, start_mbps: f64, seed: u64) -> Self {
        let policy: Box<dyn RatePolicy> = match config.steps {
            Steps::Gradient => Box::new(Gradient::new(config)),
            Steps::Fixed => Box::new(FixedStep::new(config)),
        };
        let mut control = Self {
            utility: config.utility,
            judge: Judge::new(&config),
            rng: Pcg64Mcg::seed_from_u64(seed),
            start_up: Some(StartUp::new(&config)),
            policy,
            central_mbps: start_mbps,
            path: PathBounds::default(),
            gains: Vec::new(),
            ids: Vec::new(),
            results: Vec::new(),
            next_id: 0,
            timeouts: 0,
            decisions: 0,
            app_rate: AppRate::default(),
            rate_before_drop_mbps: None,
            config,
        };
        control.begin_single(1.0);
        control
    }

    pub(super) fn central_mbps(&self) -> f64 {
        self.central_mbps
    }

    /// The least rate of the path.
    pub(super) fn least_mbps(&self) -> f64 {
        self.path.floor_mbps
    }

    /// The rate while no interval is open.
    pub(super) fn waiting_mbps(&self) -> f64 {
        let gain = if self.is_starting() { 1.0 } else { self.policy.waiting_gain() };
        self.bounded(self.central_mbps * gain)
    }

    pub(super) fn last_gradient(&self) -> f64 {
        self.policy.last_gradient()
    }

    pub(super) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Whether the path seems to carry far more than the rate.
    pub(super) fn is_below_capacity(&self) -> bool {
        self.policy.is_below_capacity()
    }

    /// The rate before a drop of the path's rate. Returned once.
    pub(super) fn take_rate_drop(&mut self) -> Option<f64> {
        self.rate_before_drop_mbps.take()
    }

    pub(super) fn is_starting(&self) -> bool {
        self.start_up.is_some()
    }

    pub(super) fn state(&self) -> &'static str {
        if self.is_starting() { "starting" } else { self.policy.state() }
    }

    pub(super) fn tune(&mut self, tuning: Tuning) -> bool {
        self.utility.tune(tuning)
    }

    /// Round trips that the next interval takes.
    pub(super) fn interval_round_trips(&mut self) -> f64 {
        let [shortest, longest] = self.config.interval_round_trips;
        if longest <= shortest {
            return shortest;
        }
        let part = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        shortest + part * (longest - shortest)
    }

    /// Sets the bounds of all rates.
    pub(super) fn bound(&mut self, path: PathBounds) {
        self.path = PathBounds { floor_mbps: path.floor_mbps.min(path.ceiling_mbps), ..path };
        self.set_central(self.central_mbps);
    }

    /// One packet a round trip, if the intervals of the round met a standing queue. Not at rates whose least change is
    /// more than `queued_increase_packets`.
    fn queued_packet_mbps(&self) -> Option<f64> {
        let limit_s = self.path.standing_queue_rtt_s?;
        let known = || self.results.iter().flatten().filter(|it| it.outcome.rtt_s > 0.0);
        let sum: f64 = known().map(|it| it.outcome.rtt_s).sum();
        let (packet, rate) = (self.path.packet_mbps, self.central_mbps);
        let counts = self.config.queued_increase_packets? * packet >= self.config.min_change * rate;
        (counts && sum > limit_s * known().count() as f64).then_some(packet)
    }

    /// Starts at another rate if nothing has been measured. Returns whether it does.
    pub(super) fn restart_at(&mut self, mbps: f64) -> bool {
        let fresh = self.start_up.as_ref().is_some_and(StartUp::is_fresh);
        if fresh {
            self.set_central(mbps);
            self.begin_single(1.0);
        }
        fresh
    }

    /// Continues start-up, by doubling, from a rate that the path carries.
    pub(super) fn start_up_from(&mut self, mbps: f64) {
        self.start_up = Some(StartUp::new(&self.config));
        self.set_central(mbps);
        self.begin_single(1.0);
    }

    /// Warm start at another algorithm's rate, without start-up.
    pub(super) fn warm_start_at(&mut self, mbps: f64) {
        self.policy.on_warm_start();
        self.continue_from(mbps);
    }

    /// Continues from a known rate, without start-up.
    pub(super) fn learn_from(&mut self, mbps: f64) {
        self.policy.restart();
        self.continue_from(mbps);
    }

    fn continue_from(&mut self, mbps: f64) {
        self.start_up = None;
        self.set_central(mbps);
        self.begin_round();
    }

    /// Continues from a known rate after one interval that drains a queue of `queue_round_trips`.
    pub(super) fn drain_and_learn_from(&mut self, mbps: f64, queue_round_trips: f64) {
        let [_, longest] = self.config.interval_round_trips;
        let gain = (1.0 - queue_round_trips / longest.max(1.0)).max(MIN_DRAIN_GAIN);
        self.set_central(mbps);
        self.start_up = Some(StartUp::draining(&self.config, mbps));
        self.begin_single(gain);
    }

    fn bounded(&self, mbps: f64) -> f64 {
        mbps.clamp(self.path.floor_mbps, self.path.ceiling_mbps)
    }

    fn set_central(&mut self, mbps: f64) {
        self.central_mbps = self.bounded(mbps);
    }

    /// The rate of the next interval to measure and its id; `None` while results of the
    /// round are pending.
    pub(super) fn next_probe(&mut self) -> Option<(u64, f64)> {
        let missing = |at: &usize| self.ids[*at].is_none() && self.results[*at].is_none();
        let at = (0..self.gains.len()).find(missing)?;
        let id = self.next_id;
        self.next_id += 1;
        self.ids[at] = Some(id);
        Some((id, self.bounded(self.central_mbps * self.gains[at])))
    }

    /// The interval `id` was given up: it is scheduled again.
    pub(super) fn on_given_up(&mut self, id: u64) {
        if let Some(found) = self.ids.iter_mut().find(|found| **found == Some(id)) {
            *found = None;
        }
    }

    /// Processes the outcome of the interval `id`. Intervals of earlier rounds are ignored.
    pub(super) fn on_outcome(&mut self, id: u64, outcome: IntervalOutcome) {
        let seen = self.judge.observe(&outcome);
        let Some(at) = self.ids.iter().position(|found| *found == Some(id)) else { return };
        self.ids[at] = None;
        self.timeouts = 0;
        let reached = outcome.sent_mbps / outcome.target_mbps;
        // An interval without enough data shows nothing of the path: it is run again.
        let decides = match &self.start_up {
            // Applies to any limit: a slow sender (a busy machine) would end the doubling, or let it continue
            // without a test. The threshold is lower than below, because a doubling shows more than a small step.
            Some(start_up) => {
                reached >= MIN_START_UP_REACHED_FRACTION || start_up.shows_queue(&outcome, &seen)
            }
            None => reached >= MIN_REACHED_FRACTION || !outcome.app_limited,
        };
        self.app_rate.on_outcome(&outcome);
        if outcome.packets == 0 || !decides {
            return self.slow_down_bursts(&outcome, &seen);
        }
        if self.detect_rate_drop(&outcome, &seen) {
            return;
        }
        self.results[at] = Some(MeasuredInterval { gain: self.gains[at], outcome, seen });
        match &mut self.start_up {
            Some(start_up) => {
                let step = start_up.on_outcome(&self.utility, &outcome, &seen);
                self.on_start_up(step);
            }
            None => self.on_result(),
        }
    }

    /// Restarts at the delivery rate, or at half of the rate, if the path became so much slower that the rest of the
    /// round shows nothing. Returns whether it did.
    fn detect_rate_drop(&mut self, outcome: &IntervalOutcome, seen: &FilteredOutcome) -> bool {
        if !self.is_starting() && self.config.halve_at_loss.is_some_and(|limit| seen.loss > limit) {
            self.decisions += 1;
            self.set_central(self.central_mbps / 2.0);
            self.policy.restart();
            self.begin_round();
            return true;
        }
        let delivered = outcome.delivered_mbps;
        if self.is_starting() || delivered <= 0.0 || delivered >= self.central_mbps {
            return false;
        }
        let sure = outcome.significant_loss(seen.loss);
        let falls = self.config.fall_at_loss.is_some_and(|limit| sure > limit);
        if falls {
            self.decisions += 1;
            self.rate_before_drop_mbps = Some(self.central_mbps);
            self.set_central(delivered);
            self.policy.restart();
            self.begin_round();
        }
        falls
    }

    /// Lowers the rate if an interval without enough data overflowed a buffer.
    fn slow_down_bursts(&mut self, outcome: &IntervalOutcome, seen: &FilteredOutcome) {
        let central = self.central_mbps;
        if let Some(mbps) = self.app_rate.after_burst(&self.config, central, outcome, seen.loss) {
            self.decisions += 1;
            self.learn_from(mbps);
        }
    }

    fn on_start_up(&mut self, step: StartUpStep) {
        match step {
            StartUpStep::Faster { confirmed_mbps } => {
                self.set_central(confirmed_mbps);
                self.begin_single(2.0);
            }
            StartUpStep::Drain { mbps } => {
                self.set_central(mbps);
                self.begin_single(1.0);
            }
            StartUpStep::Done { mbps } => self.learn_from(mbps),
        }
    }

    fn on_result(&mut self) {
        if self.results.iter().all(Option::is_some) && self.lower_to_sent_rate() {
            return;
        }
        let round = RoundState {
            central_mbps: self.central_mbps,
            queued_packet_mbps: self.queued_packet_mbps(),
            utility: &self.utility,
            results: &self.results,
        };
        if let Some(mbps) = self.policy.decide(&round) {
            self.decisions += 1;
            self.set_central(mbps);
            self.begin_round();
        }
    }

    /// Lowers the rate if the rates of the round were not reached: its outcomes show nothing then. Returns
    /// whether they were not.
    fn lower_to_sent_rate(&mut self) -> bool {
        let (mut most, mut least) = (0.0_f64, f64::INFINITY);
        let (mut highest, mut lowest) = (0.0_f64, f64::INFINITY);
        for measured in self.results.iter().flatten() {
            most = most.max(measured.outcome.sent_mbps);
            least = least.min(measured.outcome.sent_mbps);
            highest = highest.max(measured.outcome.target_mbps);
            lowest = lowest.min(measured.outcome.target_mbps);
        }
        let alone = self.results.len() == 1;
        let sent = if alone { most * MAX_RATE_OVER_SENT >= highest } else { self.in_order() };
        if sent && most - least >= (highest - lowest) / 2.0 {
            return false;
        }
        if most * MAX_RATE_OVER_SENT < self.central_mbps {
            let lower = (self.central_mbps * OVER_SENT_DECREASE).max(most * MAX_RATE_OVER_SENT);
            self.set_central(lower);
        }
        self.policy.restart();
        self.begin_round();
        true
    }

    /// Whether each pair's faster probe was sent faster.
    fn in_order(&self) -> bool {
        self.results.chunks_exact(2).all(|pair| match pair {
            [Some(a), Some(b)] => {
                (a.gain - b.gain) * (a.outcome.sent_mbps - b.outcome.sent_mbps) > 0.0
            }
            _ => true,
        })
    }

    /// An interval stayed without feedback for too long (Section 4.3), or consecutive probe timeouts
    /// show that nothing arrives.
    pub(super) fn on_timeout(&mut self) {
        self.timeouts += 1;
        self.set_central(self.central_mbps * TIMEOUT_DECREASE);
        self.policy.restart();
        if self.timeouts >= OUTAGE_TIMEOUTS || self.is_starting() {
            self.start_up = Some(StartUp::new(&self.config));
            self.begin_single(1.0);
        } else {
            self.begin_round();
        }
    }

    fn begin_single(&mut self, gain: f64) {
        self.gains.clear();
        self.gains.push(gain);
        self.await_results();
    }

    fn begin_round(&mut self) {
        self.gains.clear();
        self.policy.plan(self.central_mbps, &mut self.rng, &mut self.gains);
        self.await_results();
    }

    fn await_results(&mut self) {
        self.ids.clear();
        self.ids.resize(self.gains.len(), None);
        self.results.clear();
        self.results.resize(self.gains.len(), None);
    }
}

#[cfg(test)]
#[path = "rate_control_tests.rs"]
pub(super) mod tests;
