//! Filters for noise in RTTs: those of Proteus (SIGCOMM '20, Section 5), or Vivace's thresholds.

use std::collections::VecDeque;
use std::time::Duration;

use super::config::{NoiseFilter, PccConfig};
use super::monitor_interval::IntervalOutcome;
use super::utility::FilteredOutcome;
use crate::Time;

/// A gap between acknowledgements that differs by this factor from the gap before it, relative to the
/// usual factor, starts a burst (Proteus, Section 5).
const BURST_GAP_RATIO: f64 = 50.0;
/// Weight of the newest value in all running means of Proteus (Section 5).
const EWMA_WEIGHT: f64 = 0.1;
/// Intervals of a trend (Proteus, Section 5).
const TREND_INTERVALS: usize = 6;
/// A trend further from its mean than this many mean deviations is significant (Proteus, Section 5).
const TREND_DEVIATIONS: f64 = 2.0;
/// An RTT deviation further above its mean than this many mean deviations is significant. The value and the
/// next one are those of the published implementation of Proteus.
const RTT_DEVIATIONS: f64 = 4.0;
/// Smaller RTT deviations are never significant, s.
const MIN_DEVIATION_S: f64 = 0.001;

/// Rejects RTT samples of acknowledgements that a link held back and released in a burst: they measure
/// the link's scheduling, not the queue.
#[derive(Debug, Default)]
pub(super) struct AckFilter {
    last_ack: Option<Time>,
    last_gap: Duration,
    usual_ratio: Option<f64>,
    in_burst: bool,
}

impl AckFilter {
    /// Whether a sample is to be used; `mean` is the RTT's.
    pub(super) fn admits(&mut self, now: Time, rtt: Duration, mean: Duration) -> bool {
        let gap = self.last_ack.map_or(Duration::ZERO, |last| now.since(last));
        self.last_ack = Some(now);
        if gap.is_zero() {
            return !self.in_burst;
        }
        let before = std::mem::replace(&mut self.last_gap, gap);
        if before.is_zero() {
            return true;
        }
        let (gap, before) = (gap.as_secs_f64(), before.as_secs_f64());
        let ratio = (gap / before).max(before / gap);
        let usual = self.usual_ratio.unwrap_or(ratio);
        if ratio > BURST_GAP_RATIO * usual {
            self.in_burst = true;
        } else if rtt < mean {
            self.in_burst = false;
        }
        self.usual_ratio = Some(usual + EWMA_WEIGHT * (ratio - usual));
        !self.in_burst
    }
}

/// A running mean and the running mean deviation from it.
#[derive(Clone, Copy, Debug)]
struct Usual {
    mean: f64,
    spread: f64,
}

impl Usual {
    fn add(&mut self, value: f64, distance: f64) {
        self.spread += EWMA_WEIGHT * (distance.abs() - self.spread);
        self.mean += EWMA_WEIGHT * (value - self.mean);
    }
}

/// The RTT over the last intervals, and its usual variation on this path.
#[derive(Debug, Default)]
struct Trend {
    rtts_s: VecDeque<f64>,
    last_slope: f64,
    slope: Option<Usual>,
    deviation: Option<Usual>,
}

/// Verdict of a [`Trend`] on one more interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Course {
    /// The RTT grows as it usually does not.
    rises: bool,
    /// The RTT is less steady than usual, or its trend is unusual.
    unsteady: bool,
}

impl Trend {
    fn on_interval(&mut self, outcome: &IntervalOutcome) -> Course {
        if outcome.rtt_s <= 0.0 {
            return Course::default();
        }
        if self.rtts_s.len() == TREND_INTERVALS {
            self.rtts_s.pop_front();
        }
        self.rtts_s.push_back(outcome.rtt_s);
        if self.rtts_s.len() < TREND_INTERVALS {
            return Course::default();
        }
        let slope = self.slope_now();
        let unusual = self.judge_slope(slope);
        Course {
            rises: unusual && slope > 0.0,
            unsteady: self.judge_deviation(outcome.deviation_s) || unusual,
        }
    }

    /// Seconds an interval, by least squares.
    fn slope_now(&self) -> f64 {
        let middle = (TREND_INTERVALS - 1) as f64 / 2.0;
        let along = |at: usize| at as f64 - middle;
        let over: f64 = self.rtts_s.iter().enumerate().map(|(at, rtt)| along(at) * rtt).sum();
        over / (0..TREND_INTERVALS).map(|at| along(at).powi(2)).sum::<f64>()
    }

    /// Learns from usual values only.
    fn judge_slope(&mut self, slope: f64) -> bool {
        let last = std::mem::replace(&mut self.last_slope, slope);
        let Some(usual) = &mut self.slope else {
            self.slope = Some(Usual { mean: 0.0, spread: slope.abs() });
            return false;
        };
        let unusual = (slope - usual.mean).abs() > TREND_DEVIATIONS * usual.spread;
        match unusual {
            true => self.last_slope = last,
            false => usual.add(slope, slope - last),
        }
        unusual
    }

    fn judge_deviation(&mut self, deviation: f64) -> bool {
        let Some(usual) = &mut self.deviation else {
            self.deviation = Some(Usual { mean: deviation, spread: deviation / 2.0 });
            return false;
        };
        let unusual =
            deviation > usual.mean + RTT_DEVIATIONS * usual.spread && deviation > MIN_DEVIATION_S;
        if !unusual {
            usual.add(deviation, deviation - usual.mean);
        }
        unusual
    }
}

/// Filters an interval's RTT statistics.
#[derive(Debug)]
pub(super) struct Judge {
    filter: NoiseFilter,
    gradient_filter: f64,
    gradient_errors: f64,
    gradient_quantum: f64,
    trend: Trend,
    previous_rtt_s: f64,
}

impl Judge {
    pub(super) fn new(config: &PccConfig) -> Self {
        Self {
            filter: config.noise_filter,
            gradient_filter: config.gradient_filter,
            gradient_errors: config.gradient_errors,
            gradient_quantum: config.gradient_quantum,
            trend: Trend::default(),
            previous_rtt_s: 0.0,
        }
    }

    /// Processes the next interval.
    pub(super) fn observe(&mut self, outcome: &IntervalOutcome) -> FilteredOutcome {
        let (gradient, deviation_s) = match self.filter {
            NoiseFilter::None => (self.above_thresholds(outcome), outcome.deviation_s),
            NoiseFilter::Floors => {
                let gradient = self.above_thresholds(outcome);
                (with_floors(gradient, outcome, self.gradient_filter), outcome.deviation_s)
            }
            NoiseFilter::Proteus => self.tolerated(outcome),
        };
        let previous_rtt_s = self.previous_rtt_s;
        if outcome.rtt_s > 0.0 {
            self.previous_rtt_s = outcome.rtt_s;
        }
        FilteredOutcome {
            rate_mbps: outcome.sent_mbps,
            loss: outcome.lost as f64 / outcome.packets.max(1) as f64,
            gradient,
            deviation_s,
            rtt_s: outcome.rtt_s,
            previous_rtt_s,
        }
    }

    /// Low-pass filter of the RTT gradient (Vivace, Section 4.3).
    fn above_thresholds(&self, outcome: &IntervalOutcome) -> f64 {
        let slope = outcome.slope;
        let noise = self.gradient_filter.max(self.gradient_errors * slope.error);
        match (slope.value.abs() < noise, self.gradient_quantum > 0.0) {
            (true, _) => 0.0,
            (false, false) => slope.value,
            (false, true) => (slope.value / self.gradient_quantum).trunc() * self.gradient_quantum,
        }
    }

    /// A gradient counts if it is larger than its regression error, or if the trend is significant.
    fn tolerated(&mut self, outcome: &IntervalOutcome) -> (f64, f64) {
        let course = self.trend.on_interval(outcome);
        let error = outcome.residual_s / outcome.duration_s.max(1e-9);
        let clear = outcome.slope.value.abs() > error;
        let gradient = if clear || course.rises { outcome.slope.value } else { 0.0 };
        let deviation = if clear || course.unsteady { outcome.deviation_s } else { 0.0 };
        (gradient, deviation)
    }
}

/// The smaller of a gradient and that of the least RTTs; zero if these do not agree on the direction, or have less than
/// `least`.
fn with_floors(gradient: f64, outcome: &IntervalOutcome, least: f64) -> f64 {
    match outcome.floor_slope {
        Some(floors) if floors * gradient <= 0.0 || floors.abs() < least => 0.0,
        Some(floors) => floors.abs().min(gradient.abs()).copysign(gradient),
        None => gradient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimators::Slope;
    use crate::pcc::{PROTEUS_P, VIVACE_LATENCY};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn burst_after_a_gap_is_rejected_until_the_rtt_is_below_its_mean() {
        let mut filter = AckFilter::default();
        let mut now = Time::ZERO;
        for _ in 0..20 {
            now += ms(1);
            assert!(filter.admits(now, ms(30), ms(30)));
        }
        now += ms(80);
        assert!(!filter.admits(now, ms(110), ms(30)), "held back for 80 ms");
        for _ in 0..10 {
            now += ms(1);
            assert!(!filter.admits(now, ms(60), ms(40)), "still above the mean");
        }
        now += ms(1);
        assert!(filter.admits(now, ms(30), ms(35)));
        assert!(filter.admits(now, ms(30), ms(35)), "a gap of zero is no burst");
    }

    fn outcome(gradient: f64, error: f64, rtt_s: f64, residual_s: f64) -> IntervalOutcome {
        IntervalOutcome {
            target_mbps: 10.0,
            sent_mbps: 10.0,
            delivered_mbps: 10.0,
            slope: Slope { value: gradient, error },
            floor_slope: None,
            rtt_s,
            deviation_s: residual_s,
            residual_s,
            duration_s: 0.03,
            packets: 100,
            lost: 2,
            app_limited: false,
        }
    }

    #[test]
    fn thresholds_reject_small_and_uncertain_gradients() {
        let mut judge = Judge::new(&VIVACE_LATENCY);
        let mut gradient = |value, error| judge.observe(&outcome(value, error, 0.03, 0.0)).gradient;
        assert_eq!(gradient(0.009, 0.0), 0.0);
        assert_eq!(gradient(0.011, 0.0), 0.011);
        assert_eq!(gradient(-0.011, 0.0), -0.011);
        assert_eq!(gradient(0.05, 0.03), 0.0, "less than two errors");
    }

    #[test]
    fn a_gradient_that_the_least_rtts_do_not_have_is_noise() {
        let mut judge = Judge::new(&VIVACE_LATENCY);
        let mut gradient = |floor_slope| {
            judge
                .observe(&IntervalOutcome { floor_slope, ..outcome(0.03, 0.0, 0.03, 0.0) })
                .gradient
        };
        let seen = [Some(0.04), Some(0.02), Some(0.009), Some(-0.04), None].map(&mut gradient);
        assert_eq!(seen, [0.03, 0.02, 0.0, 0.0, 0.03]);
    }

    #[test]
    fn gradients_are_cut_to_multiples_of_the_quantum() {
        let config = VIVACE_LATENCY.as_nsdi18_code().expect("a member of Vivace");
        let mut judge = Judge::new(&config);
        let mut gradient = |value| judge.observe(&outcome(value, 0.5, 0.03, 0.0)).gradient;
        assert_eq!([0.019, -0.019, 0.02, 0.039].map(&mut gradient), [0.0, 0.0, 0.02, 0.02]);
        assert!((gradient(-0.061) + 0.06).abs() < 1e-12);
    }

    #[test]
    fn a_gradient_counts_if_it_is_larger_than_its_error_or_the_trend_is_unusual() {
        let mut judge = Judge::new(&PROTEUS_P);
        // Jitter of 1 ms: a gradient of 0.02 in 30 ms is 0.6 ms of it.
        let mut jitter = |up: bool| {
            let rtt_s = if up { 0.0305 } else { 0.0300 };
            judge.observe(&outcome(0.02, 0.01, rtt_s, 0.001))
        };
        for at in 0..40 {
            let seen = jitter(at % 3 == 0);
            assert_eq!((seen.gradient, seen.deviation_s), (0.0, 0.0), "{at}");
        }
        let clear = judge.observe(&outcome(0.05, 0.01, 0.0302, 0.001));
        assert_eq!((clear.gradient, clear.deviation_s), (0.05, 0.001));
        let counted = (1..=TREND_INTERVALS).filter(|at| {
            judge.observe(&outcome(0.02, 0.01, 0.0302 + *at as f64 * 0.001, 0.001)).gradient > 0.0
        });
        assert!(counted.count() >= 3, "six intervals of a millisecond each are a trend");
    }

    #[test]
    fn an_unusual_deviation_counts_and_a_usual_one_does_not() {
        let mut judge = Judge::new(&PROTEUS_P);
        let mut deviation = |ms: f64| judge.observe(&outcome(0.0, 0.0, 0.03, ms / 1e3)).deviation_s;
        for at in 0..30 {
            assert_eq!(deviation(if at % 2 == 0 { 0.9 } else { 1.1 }), 0.0);
        }
        assert_eq!(deviation(6.0), 0.006);
    }

    #[test]
    fn the_previous_rtt_and_the_loss_are_reported() {
        let mut judge = Judge::new(&VIVACE_LATENCY);
        assert_eq!(judge.observe(&outcome(0.0, 0.0, 0.03, 0.0)).previous_rtt_s, 0.0);
        let empty = IntervalOutcome { rtt_s: 0.0, ..outcome(0.0, 0.0, 0.0, 0.0) };
        assert_eq!(judge.observe(&empty).previous_rtt_s, 0.03);
        let seen = judge.observe(&outcome(0.0, 0.0, 0.04, 0.0));
        assert_eq!((seen.previous_rtt_s, seen.rtt_s, seen.loss), (0.03, 0.04, 0.02));
    }
}
