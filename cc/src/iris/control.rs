use std::time::Duration;

use super::IrisConfig;
use super::epoch::Outcome;
use super::losses::Losses;
use super::slope::DelaySlope;
use super::target::TargetDelay;
use crate::Time;
use crate::estimators::WindowedMax;

/// gamma of Eq. 13: weight of the newest receiving rate.
const RECEIVED_WEIGHT: f64 = 0.8;
/// Start-up ends when less than this share of its rate is received while a queue is there.
const QUEUE_RECEIVED: f64 = 0.9;
/// It also ends when this many packets and this share of an epoch are lost beyond the random
/// losses: a doubling that is too much loses up to half.
const START_UP_LOST: (u64, f64) = (3, 0.2);
/// Rate while the queue drains, as a share of what is received.
const DRAIN_GAIN: f64 = 0.5;
/// Longest that the rate stays that low.
const LONGEST_DRAIN: Duration = Duration::from_secs(2);
/// Least time from one drain to the next, as a share of T's window.
const BETWEEN_DRAINS: f64 = 0.2;
/// An overload that lasts for so many decisions is not going away by Eq. 6, which takes at
/// most delta/epoch (6 %) off the rate.
const OVERLOADED_DECISIONS: u32 = 3;
/// What counts as overload, in multiples of B.
const OVERLOAD: f64 = 3.0;
/// The most that a rise grows to, as a share of the rate.
const MOST_RISE: f64 = 0.25;
/// A queue load below this share of B is none: then the rise doubles.
const NO_LOAD: f64 = 0.5;
/// After losses of its own the flow rises at Eq. 6's pace only, for so many round trips.
const CAREFUL_ROUNDS: u32 = 20;
/// Highest receiving rates are remembered for this long.
const CAPACITY_WINDOW: Duration = Duration::from_secs(10);
/// Sending below this share of the highest receiving rate is below capacity.
const BELOW_CAPACITY: f64 = 0.9;
/// So is a queue load below this share of B.
const EMPTY: f64 = 0.25;
/// Least and largest rate, 10^6 bit/s: a packet every half second, and where arithmetic ends.
pub(super) const RATES_MBPS: (f64, f64) = (0.02, 100_000.0);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Doubling.
    Starting,
    /// Letting the queue drain until then, to go on at the rate.
    Draining { until: Time, from: Time, resume_mbps: f64 },
    /// Eq. 7.
    Steady,
}

/// Decides rates from the outcomes of epochs (Sections IV and V).
#[derive(Debug)]
pub(super) struct Control {
    config: IrisConfig,
    state: State,
    rate_mbps: f64,
    decision: u64,
    mtu_bytes: u64,
    target: TargetDelay,
    slope: DelaySlope,
    losses: Losses,
    capacity: WindowedMax<u64>,
    /// r^ of the epoch before.
    received_before: Option<f64>,
    rtt_before: Option<Duration>,
    received_mbps: f64,
    load_packets: f64,
    rises: u32,
    overloaded: u32,
    careful_until: Time,
    last_drain: Option<Drain>,
}

/// What a drain is to show.
#[derive(Clone, Copy, Debug)]
struct Drain {
    from: Time,
    /// RTT and T before it.
    rtt: Duration,
    target: Duration,
    /// Its epochs' smallest RTT.
    lowest: Option<Duration>,
    judged: bool,
}

impl Control {
    pub(super) fn new(config: IrisConfig, start_mbps: f64, mtu_bytes: u64) -> Self {
        Self {
            state: State::Starting,
            rate_mbps: bounded(start_mbps),
            decision: 0,
            mtu_bytes,
            target: TargetDelay::new(config.target),
            slope: DelaySlope::new(config.epoch()),
            losses: Losses::default(),
            capacity: WindowedMax::new(CAPACITY_WINDOW.as_nanos() as u64),
            received_before: None,
            rtt_before: None,
            received_mbps: start_mbps,
            load_packets: 0.0,
            rises: 0,
            overloaded: 0,
            careful_until: Time::ZERO,
            last_drain: None,
            config,
        }
    }

    pub(super) fn rate_mbps(&self) -> f64 {
        self.rate_mbps
    }

    /// The rate that the window is for: not that of a drain.
    pub(super) fn lasting_mbps(&self) -> f64 {
        match self.state {
            State::Draining { resume_mbps, .. } => resume_mbps.max(self.rate_mbps),
            _ => self.rate_mbps,
        }
    }

    /// Count of the decision in force.
    pub(super) fn decision(&self) -> u64 {
        self.decision
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.state == State::Starting && self.decision == 0
    }

    pub(super) fn set_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes;
    }

    fn set(&mut self, rate_mbps: f64) {
        self.rate_mbps = bounded(rate_mbps);
        self.decision += 1;
    }

    /// Time passes.
    pub(super) fn on_time(&mut self, now: Time) {
        if let State::Draining { until, resume_mbps, .. } = self.state
            && now >= until
        {
            self.state = State::Steady;
            self.received_before = None;
            self.set(resume_mbps);
        }
    }

    /// Packets of `mbps` in `time`: a queue load.
    fn packets(&self, mbps: f64, time: Duration) -> f64 {
        mbps * 1e6 / 8.0 * time.as_secs_f64() / self.mtu_bytes as f64
    }

    /// An epoch is complete; `rtt` is the smoothed RTT.
    pub(super) fn on_outcome(&mut self, now: Time, outcome: &Outcome, rtt: Duration) {
        let Some(epoch_rtt) = outcome.rtt else { return };
        let tolerance = self.config.load_packets
            / 10.0
            / self.packets(self.received_mbps, Duration::from_secs(1)).max(1e-9);
        self.target.add(
            now,
            epoch_rtt,
            self.config.window() + (rtt + self.config.epoch()) * 3,
            Duration::from_secs_f64(tolerance.min(1.0)),
        );
        self.judge_drain(outcome, epoch_rtt);
        let target = self.target.get().unwrap_or(epoch_rtt);
        self.load_packets = self.packets(outcome.sent_mbps, epoch_rtt.saturating_sub(target));
        self.learn(outcome, epoch_rtt);

        let peak = self.capacity.get().unwrap_or(0) as f64 / 1e6;
        let below_capacity = self.state == State::Starting
            && outcome.stretch.is_none_or(|s| s > QUEUE_RECEIVED)
            && (outcome.lost as f64) < START_UP_LOST.1 * outcome.packets as f64
            || self.load_packets < EMPTY * self.config.load_packets
            || outcome.sent_mbps < BELOW_CAPACITY * peak;
        let hold = rtt + self.config.epoch();
        let round = self.packets(outcome.sent_mbps, hold);
        let arriving = self.losses.on_epoch((outcome.packets, outcome.lost), round, below_capacity);
        let Some(stretch) = outcome.stretch else { return };
        let newest = outcome.sent_mbps * stretch * arriving;
        let before = self.received_before.replace(newest).unwrap_or(newest);
        let received = RECEIVED_WEIGHT * newest + (1.0 - RECEIVED_WEIGHT) * before;
        if outcome.decision != self.decision {
            return;
        }
        match self.state {
            State::Starting => self.start_up(now, outcome, newest, epoch_rtt, target),
            State::Draining { .. } => {}
            State::Steady if outcome.partial => {}
            State::Steady => {
                self.received_mbps = received;
                self.capacity.add(now.as_nanos(), (received * 1e6) as u64);
                if arriving < 1.0 {
                    self.careful_until = now + hold * CAREFUL_ROUNDS;
                    self.rises = 0;
                }
                self.steady(now, received, epoch_rtt, target, hold);
            }
        }
    }

    /// A point for k: the RTT's rise over the excess of the sending rate.
    fn learn(&mut self, outcome: &Outcome, rtt: Duration) {
        let before = self.rtt_before.replace(rtt);
        if let (Some(before), Some(stretch), false) = (before, outcome.stretch, outcome.partial) {
            let rise = rtt.as_secs_f64() - before.as_secs_f64();
            self.slope.add(outcome.duration, outcome.sent_mbps * (1.0 - stretch), rise);
        }
    }

    fn start_up(
        &mut self,
        now: Time,
        outcome: &Outcome,
        received: f64,
        rtt: Duration,
        target: Duration,
    ) {
        let queue = self.load_packets > self.config.load_packets
            && received < QUEUE_RECEIVED * outcome.sent_mbps;
        let lost = outcome.lost as f64 / outcome.packets.max(1) as f64;
        let losing =
            outcome.lost >= START_UP_LOST.0 && lost > self.losses.random() + START_UP_LOST.1;
        if queue || losing {
            self.slope.fit();
            self.received_mbps = received.min(outcome.sent_mbps);
            self.capacity.add(now.as_nanos(), (self.received_mbps * 1e6) as u64);
            self.drain(now, self.received_mbps, rtt, target);
        } else if !outcome.partial {
            self.received_mbps = received;
            self.set(outcome.sent_mbps * 2.0);
        }
    }

    /// Halves the rate for as long as the queue needs to leave, and an epoch more to see it.
    fn drain(&mut self, now: Time, resume_mbps: f64, rtt: Duration, target: Duration) {
        let queue = rtt.saturating_sub(target);
        let time = queue.mul_f64(1.0 / (1.0 - DRAIN_GAIN)) + self.config.epoch();
        let until = now + time.min(LONGEST_DRAIN);
        self.state = State::Draining { until, from: now, resume_mbps };
        self.last_drain = Some(Drain { from: now, rtt, target, lowest: None, judged: false });
        self.overloaded = 0;
        self.rises = 0;
        self.set(resume_mbps * DRAIN_GAIN);
    }

    /// Eq. 7.
    fn steady(
        &mut self,
        now: Time,
        received: f64,
        rtt: Duration,
        target: Duration,
        hold: Duration,
    ) {
        let excess = self.load_packets - self.config.load_packets;
        let k = self.slope.get(received);
        let delta_s = self.config.delta_ms / 1e3;
        // M: the load's error is to be gone after `hold`, but for 1 - gain of it.
        let needed = delta_s / k * 1e6 / 8.0 / self.mtu_bytes as f64 * hold.as_secs_f64()
            / self.config.loop_gain;
        let expansion = self.config.expansion_packets.unwrap_or(needed);
        let step = -delta_s * (excess / expansion).tanh() / k;
        let queue_s = rtt.saturating_sub(target).as_secs_f64();
        debug_assert!(queue_s >= 0.0);

        let idle = self.load_packets < NO_LOAD * self.config.load_packets;
        self.rises = if idle && now >= self.careful_until { self.rises + 1 } else { 0 };
        let step = match self.rises.saturating_sub(1) {
            0 => step,
            doublings => (step * 2_f64.powi(doublings.min(16) as i32)).min(MOST_RISE * received),
        };
        self.overloaded = if excess > (OVERLOAD - 1.0) * self.config.load_packets {
            self.overloaded + 1
        } else {
            0
        };
        if self.needs_drain(now) {
            return self.drain(now, received, rtt, target);
        }
        self.set(received + step);
    }

    fn needs_drain(&self, now: Time) -> bool {
        let since = self.last_drain.map_or(Duration::MAX, |drain| now.since(drain.from));
        if since < self.config.window().mul_f64(BETWEEN_DRAINS) {
            return false;
        }
        let stale = self.target.lowest_at().is_some_and(|at| now.since(at) > self.config.window());
        stale || self.overloaded >= OVERLOADED_DECISIONS
    }

    /// The drain's epochs tell whether the queue was the flow's: if the RTT hardly fell, T is
    /// of another path, or others hold the queue.
    fn judge_drain(&mut self, outcome: &Outcome, rtt: Duration) {
        let Some(drain) = &mut self.last_drain else { return };
        if drain.judged || outcome.closed <= drain.from {
            return;
        }
        drain.lowest = Some(drain.lowest.map_or(rtt, |lowest| lowest.min(rtt)));
        if matches!(self.state, State::Draining { .. }) || outcome.decision != self.decision {
            return;
        }
        drain.judged = true;
        let fallen = drain.rtt.saturating_sub(drain.lowest.unwrap_or(rtt));
        let expected = drain.rtt.saturating_sub(drain.target);
        if fallen * 2 < expected {
            self.target.forget_before(drain.from);
        }
    }

    /// No feedback: half the rate, and a new start if it goes on.
    pub(super) fn on_timeout(&mut self, outage: bool) {
        let rate = self.lasting_mbps() / 2.0;
        self.state = if outage { State::Starting } else { State::Steady };
        self.received_before = None;
        self.rtt_before = None;
        self.rises = 0;
        self.set(rate);
    }

    /// Goes on from a rate that is known.
    pub(super) fn go_on_at(&mut self, rate_mbps: f64) {
        self.state = State::Steady;
        self.received_mbps = bounded(rate_mbps);
        self.received_before = None;
        self.set(rate_mbps);
    }

    /// Starts again from `rate_mbps`.
    pub(super) fn start_at(&mut self, rate_mbps: f64) {
        self.rate_mbps = bounded(rate_mbps);
    }

    pub(super) fn state(&self) -> &'static str {
        match self.state {
            State::Starting => "starting",
            State::Draining { .. } => "draining",
            State::Steady => "steady",
        }
    }

    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let ms = |time: Option<Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        vec![
            ("received_mbps", self.received_mbps),
            ("queue_load_packets", self.load_packets),
            ("target_delay_ms", ms(self.target.get())),
            ("slope_ms_per_mbps", self.slope.get(self.received_mbps) * 1e3),
            ("fitted_slope_ms_per_mbps", self.slope.fitted().unwrap_or(0.0) * 1e3),
            ("random_loss", self.losses.random()),
            ("decisions", self.decision as f64),
        ]
    }
}

fn bounded(mbps: f64) -> f64 {
    if mbps.is_nan() { RATES_MBPS.0 } else { mbps.clamp(RATES_MBPS.0, RATES_MBPS.1) }
}
