use std::time::Duration;

use crate::estimators::{WindowedMax, WindowedMin};
use crate::{RttSample, Time};

/// RTTmin is the smallest RTT of this long (Section 2.1): the queue empties more often than that,
/// and a longer path is noticed.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// RTTmax is the largest RTT of this many smoothed RTTs (Section 2.2).
const MAX_RTT_WINDOW_RTTS: u32 = 4;
/// The queue is nearly empty while its delay is at most this share of its range (Section 2.2).
const MAX_NEARLY_EMPTY_FRACTION: f64 = 0.1;

/// Most that the comparison with that share may be off by rounding, for ranges below [`MAX_EXACT`].
const ROUNDING_NS: f64 = 2.0;
/// A day: all nanoseconds below it are exact in `f64`, with a fraction of more than ten bits.
const MAX_EXACT: Duration = Duration::from_secs(86_400);

fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}

/// The queueing delay, from RTT samples.
#[derive(Debug)]
pub(super) struct Delay {
    min: WindowedMin<Duration>,
    /// RTTstanding: the smallest RTT of half a smoothed RTT, which delayed or bunched
    /// acknowledgements do not affect (Section 2.1).
    standing: WindowedMin<Duration>,
    max: WindowedMax<Duration>,
}

impl Default for Delay {
    fn default() -> Self {
        Self {
            min: WindowedMin::new(MIN_RTT_WINDOW.as_nanos() as u64),
            standing: WindowedMin::new(0),
            max: WindowedMax::new(0),
        }
    }
}

impl Delay {
    pub(super) fn add(&mut self, now: Time, rtt: &RttSample) {
        self.standing.set_window(nanos(rtt.smoothed / 2));
        self.max.set_window(nanos(rtt.smoothed * MAX_RTT_WINDOW_RTTS));
        self.min.add(now.as_nanos(), rtt.latest);
        self.standing.add(now.as_nanos(), rtt.latest);
        self.max.add(now.as_nanos(), rtt.latest);
    }

    /// Warm start: adds a sample and the smallest RTT that another algorithm measured.
    pub(super) fn init_from_path(&mut self, now: Time, rtt: &RttSample) {
        self.add(now, rtt);
        self.min.add(now.as_nanos(), rtt.min);
    }

    /// RTTstanding and d_q = RTTstanding - RTTmin.
    pub(super) fn standing_and_queueing(&self) -> Option<(Duration, Duration)> {
        let (standing, min) = (self.standing.get()?, self.min.get()?);
        Some((standing, standing.saturating_sub(min)))
    }

    /// d_q < 0.1 * (RTTmax - RTTmin) (Section 2.2); a path without any delay counts too.
    pub(super) fn is_queue_nearly_empty(&self) -> bool {
        let (Some((_, queueing)), Some(max), Some(min)) =
            (self.standing_and_queueing(), self.max.get(), self.min.get())
        else {
            return true;
        };
        let range = max.saturating_sub(min);
        // `mul_f64` is slow, and rounds to a nanosecond: it only matters near the limit.
        let beyond_ns = nanos(queueing) as f64 - MAX_NEARLY_EMPTY_FRACTION * nanos(range) as f64;
        match beyond_ns.abs() > ROUNDING_NS && range < MAX_EXACT {
            true => beyond_ns < 0.0,
            false => queueing <= range.mul_f64(MAX_NEARLY_EMPTY_FRACTION),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(delay: &mut Delay, now_ms: u64, rtt_ms: u64) {
        let latest = Duration::from_millis(rtt_ms);
        let smoothed = Duration::from_millis(100);
        let now = Time::from_nanos(now_ms * 1_000_000);
        delay.add(now, &RttSample { latest, smoothed, variation: latest / 10, min: latest });
    }

    fn figures(delay: &Delay) -> (u128, u128) {
        let (standing, queueing) = delay.standing_and_queueing().expect("a sample");
        (standing.as_millis(), queueing.as_millis())
    }

    #[test]
    fn the_standing_rtt_is_the_least_of_half_a_round_trip() {
        let mut delay = Delay::default();
        add(&mut delay, 0, 100);
        add(&mut delay, 10, 130);
        assert_eq!(figures(&delay), (100, 0));
        add(&mut delay, 40, 120);
        add(&mut delay, 51, 140);
        assert_eq!(figures(&delay), (120, 20));
        add(&mut delay, 10_040, 150);
        assert_eq!(figures(&delay), (150, 30), "the 100 ms are more than ten seconds ago");
    }

    #[test]
    fn nearly_empty_is_exact_near_the_limit() {
        for (range_ns, ends_ns) in (1..4_000_u64).map(|step| (step * 7_919, step * 200_000_000_000))
        {
            let rtt = |ns: u64| {
                let latest = Duration::from_millis(20) + Duration::from_nanos(ns);
                RttSample { latest, smoothed: latest, variation: latest / 10, min: latest }
            };
            for queue_ns in (range_ns / 10).saturating_sub(4)..=(range_ns / 10 + 4).min(range_ns) {
                let mut delay = Delay::default();
                delay.add(Time::from_nanos(ends_ns), &rtt(0));
                delay.add(Time::from_nanos(ends_ns), &rtt(range_ns));
                // Half a round trip later: the standing RTT is the new sample.
                delay.add(Time::from_nanos(ends_ns + 15_000_000), &rtt(queue_ns));
                delay.standing.clear();
                delay.standing.add(ends_ns + 15_000_000, rtt(queue_ns).latest);
                let limit = Duration::from_nanos(range_ns).mul_f64(MAX_NEARLY_EMPTY_FRACTION);
                let expected = Duration::from_nanos(queue_ns) <= limit;
                assert_eq!(delay.is_queue_nearly_empty(), expected, "{queue_ns} of {range_ns}");
            }
        }
    }

    #[test]
    fn a_queue_is_nearly_empty_at_a_tenth_of_its_range() {
        let mut delay = Delay::default();
        assert!(delay.is_queue_nearly_empty(), "nothing is known of it");
        add(&mut delay, 0, 100);
        assert!(delay.is_queue_nearly_empty());
        add(&mut delay, 60, 200);
        assert!(!delay.is_queue_nearly_empty());
        add(&mut delay, 120, 111);
        assert!(!delay.is_queue_nearly_empty());
        add(&mut delay, 130, 110);
        assert!(delay.is_queue_nearly_empty());
        // The 200 ms are more than four round trips ago: now 10 ms are the whole range.
        add(&mut delay, 600, 110);
        assert!(!delay.is_queue_nearly_empty());
    }
}
