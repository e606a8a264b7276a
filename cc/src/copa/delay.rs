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
        let nanos = |span: Duration| span.as_nanos() as u64;
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
        queueing <= max.saturating_sub(min).mul_f64(MAX_NEARLY_EMPTY_FRACTION)
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
