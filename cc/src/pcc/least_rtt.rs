use std::time::Duration;

use crate::Time;
use crate::estimators::WindowedMin;

/// The least round trip is that of so long.
const WINDOW: Duration = Duration::from_secs(60);
/// Round trips that stay beyond what the window covers for so long are those of a longer path.
const LONGER_AFTER: Duration = Duration::from_secs(3);
/// And for so many of them.
const LONGER_ROUND_TRIPS: u32 = 10;
/// Most that they may vary, as a share of what they are beyond.
const MOST_SPREAD: f64 = 0.2;
/// To what the rate must have fallen meanwhile, as a share of what it was: by as much a queue would
/// have become shorter.
const FALLEN_RATE: f64 = 0.8;
/// If it has not, the window does, to this share, for so many round trips.
const TRIED_WINDOW: f64 = 0.75;
const TRIED_ROUND_TRIPS: u32 = 4;

/// The round trip of the path without a queue, for the window of a sender that minds latency.
///
/// That window covers one and a half of it and a slack. A longer queue is no news, but the longer it
/// is the later comes feedback: on a link that slows down, without a bound, it grows by seconds.
/// A path that has become much longer has a window that is too small, by which rates come down,
/// which the window follows. A queue then becomes shorter, a path does not: round trips that stay
/// beyond the window, and the same while the rate falls, are the path's. Where the rate goes up and
/// down instead, a smaller window tells (over forty seeds of 20 ms that become 200, vivace-latency
/// had 0.86 of the link without that, and 0.92 with it). (The 60 s alone left
/// vivace-latency 68 % of the link after 20 ms had become 200, proteus 46, allegro-latency 15. If
/// they may vary, it is the queue of recorded LTE links that is taken for the path: 24 s of queue. If
/// the rate need not fall, it is a queue that a window on the limit keeps.)
#[derive(Debug)]
pub(super) struct LeastRtt {
    memory: WindowedMin<Duration>,
    slack: Duration,
    beyond: Option<Beyond>,
}

/// Round trips that are longer than the window covers.
#[derive(Clone, Copy, Debug)]
struct Beyond {
    since: Time,
    least: Duration,
    most: Duration,
    /// The rate then, 10^6 bit/s.
    rate_mbps: f64,
    /// Until when the window is smaller, to see whether round trips become shorter.
    trial_ends: Option<Time>,
}

impl LeastRtt {
    pub(super) fn new(slack: Duration) -> Self {
        let memory = WindowedMin::new(WINDOW.as_nanos() as u64);
        Self { memory, slack, beyond: None }
    }

    /// A sample, and the rate in force. If it shows that the path has become longer, the rate from
    /// which it had come down for no other reason.
    pub(super) fn add(
        &mut self,
        now: Time,
        latest: Duration,
        smoothed: Duration,
        rate_mbps: f64,
    ) -> Option<f64> {
        self.memory.add(now.as_nanos(), latest);
        let covered = self.usual()?;
        if latest <= covered || smoothed <= covered {
            self.beyond = None;
            return None;
        }
        let fresh =
            Beyond { since: now, least: smoothed, most: smoothed, rate_mbps, trial_ends: None };
        let mut beyond = self.beyond.unwrap_or(fresh);
        beyond.least = beyond.least.min(smoothed);
        beyond.most = beyond.most.max(smoothed);
        // The smallest one may have been forgotten since: then what was beyond it is beyond no longer.
        let excess = beyond.least.saturating_sub(covered);
        if beyond.most - beyond.least > excess.mul_f64(MOST_SPREAD) {
            beyond = fresh;
        }
        let lasts = now.since(beyond.since) > LONGER_AFTER.max(smoothed * LONGER_ROUND_TRIPS);
        if lasts && beyond.trial_ends.is_none() {
            beyond.trial_ends = Some(now + smoothed * TRIED_ROUND_TRIPS);
        }
        self.beyond = Some(beyond);
        let fallen = rate_mbps < FALLEN_RATE * beyond.rate_mbps;
        let tried = beyond.trial_ends.is_some_and(|end| now >= end);
        if !(lasts && fallen || tried) {
            return None;
        }
        self.beyond = None;
        self.memory.clear();
        self.memory.add(now.as_nanos(), beyond.least);
        Some(beyond.rate_mbps)
    }

    /// The time that the window is to cover, if a round trip has been seen.
    pub(super) fn covered(&self) -> Option<Duration> {
        let usual = self.usual()?;
        let tries = self.beyond.is_some_and(|beyond| beyond.trial_ends.is_some());
        Some(if tries { usual.mul_f64(TRIED_WINDOW) } else { usual })
    }

    fn usual(&self) -> Option<Duration> {
        Some(self.memory.get()? * 3 / 2 + self.slack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Adds a sample each 100 ms from one time to another.
    fn feed(least: &mut LeastRtt, from_ms: u64, to_ms: u64, rtt: impl Fn(u64) -> Duration) {
        feed_at(least, from_ms, to_ms, rtt, |at| 20.0 / (at - from_ms + 100) as f64);
    }

    fn feed_at(
        least: &mut LeastRtt,
        from_ms: u64,
        to_ms: u64,
        rtt: impl Fn(u64) -> Duration,
        mbps: impl Fn(u64) -> f64,
    ) {
        for at in (from_ms..to_ms).step_by(100) {
            least.add(Time::from_nanos(at * 1_000_000), rtt(at), rtt(at), mbps(at));
        }
    }

    fn of_20_ms() -> LeastRtt {
        let mut least = LeastRtt::new(100 * MS);
        feed(&mut least, 0, 1_000, |_| 20 * MS);
        assert_eq!(least.covered(), Some(130 * MS));
        least
    }

    #[test]
    fn what_was_beyond_a_round_trip_that_is_forgotten_is_beyond_no_longer() {
        let mut least = LeastRtt::new(Duration::ZERO);
        let mut add = |ms: u64, latest: u32, smoothed: u32| {
            let now = Time::from_nanos(ms * 1_000_000);
            least.add(now, latest * MS, smoothed * MS, 1.0)
        };
        add(0, 10, 10);
        for ms in (100..59_900).step_by(100) {
            add(ms, 14, 14);
        }
        // Beyond 15 ms; then the 10 ms are a minute old, 21 ms are covered, and so would the 20 ms have been.
        assert_eq!(add(59_950, 30, 20), None);
        assert_eq!(add(60_050, 100, 60), None);
    }

    #[test]
    fn a_queue_that_goes_or_changes_is_not_the_path() {
        let mut least = of_20_ms();
        for start in (1_000..20_000).step_by(4_000) {
            feed(&mut least, start, start + 3_900, |_| 500 * MS);
            feed(&mut least, start + 3_900, start + 4_000, |_| 120 * MS);
        }
        feed(&mut least, 21_000, 40_000, |at| (500 + at % 1_000 / 5) as u32 * MS);
        assert_eq!(least.covered(), Some(130 * MS));
    }

    #[test]
    fn a_queue_that_the_window_keeps_shows_when_that_is_smaller() {
        let mut least = of_20_ms();
        let mut tried = 0;
        for at in (1_000..60_000).step_by(100) {
            let window = least.covered().expect("a round trip has been seen");
            tried += u32::from(window < 130 * MS);
            // 20 Mbit/s wanted, 16 carried.
            least.add(Time::from_nanos(at * 1_000_000), window * 20 / 16, window * 20 / 16, 20.0);
        }
        assert_eq!(least.covered(), Some(130 * MS));
        // One sample of each, as the first that is shorter ends it.
        assert!((10..=20).contains(&tried), "{tried} of 590 samples with a smaller window");
    }

    #[test]
    fn a_longer_path_is_known_though_the_rate_does_not_fall() {
        let mut least = of_20_ms();
        feed_at(&mut least, 1_000, 4_700, |_| 200 * MS, |_| 20.0);
        assert_eq!(least.covered(), Some(97_500 * MS / 1_000), "a smaller window is tried");
        feed_at(&mut least, 4_700, 5_100, |_| 200 * MS, |_| 20.0);
        assert_eq!(least.covered(), Some(400 * MS));
    }

    #[test]
    fn a_longer_path_is_known_after_three_seconds_or_ten_round_trips() {
        let mut least = of_20_ms();
        feed(&mut least, 1_000, 4_000, |_| 200 * MS);
        assert_eq!(least.covered(), Some(130 * MS));
        feed(&mut least, 4_000, 4_200, |at| (200 + at % 10) as u32 * MS);
        assert_eq!(least.covered(), Some(400 * MS));
        feed(&mut least, 7_000, 17_000, |_| 1_000 * MS);
        assert_eq!(least.covered(), Some(400 * MS), "ten round trips are ten seconds");
        feed(&mut least, 17_000, 17_200, |_| 1_000 * MS);
        assert_eq!(least.covered(), Some(1_600 * MS));
        feed(&mut least, 18_000, 18_100, |_| 20 * MS);
        assert_eq!(least.covered(), Some(130 * MS), "a shorter one at once");
    }
}
