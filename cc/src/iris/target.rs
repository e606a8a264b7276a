use std::collections::VecDeque;
use std::time::Duration;

use crate::Time;
use crate::estimators::WindowedMin;

/// Which RTT counts as the path's RTT without a queue: T in Eq. 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The smallest of the window (Iris-min).
    Min,
    /// The median of the window (Iris-mid): competes with flows that fill the buffer.
    Mid,
}

/// Most RTTs that are kept: at 50 ms an epoch, those of 25 s.
const MAX_SAMPLES: usize = 512;
/// Windows for which the smallest RTT is remembered. With one, T becomes the RTT of a full buffer if no drain
/// succeeds in that time. With more, a longer path stays unused for longer.
/// Chosen by `a_full_buffer_is_not_taken_for_the_path` (tests/controllers/tests/iris.rs) and `another_route_is_followed`
/// (lab/sim/tests/real_conditions.rs).
const MIN_RTT_WINDOWS: u32 = 3;

/// T: the RTT above which delay counts as queueing, from the epochs' recent mean RTTs.
///
/// Means and not single packets, because jitter that every epoch has does not come from a queue.
#[derive(Debug)]
pub(super) struct TargetDelay {
    kind: Target,
    /// Whether the median is at most the middle of the extremes.
    median_bound: bool,
    samples: VecDeque<(Time, Duration)>,
    sorted: Vec<Duration>,
    /// The smallest RTT of several windows, so that a queue kept by other flows does not become T.
    memory: WindowedMin<Duration>,
    target: Option<Duration>,
    lowest: Option<Duration>,
    lowest_at: Option<Time>,
    flat: bool,
}

impl TargetDelay {
    pub(super) fn new(kind: Target, median_bound: bool) -> Self {
        Self {
            kind,
            median_bound,
            samples: VecDeque::new(),
            sorted: Vec::new(),
            memory: WindowedMin::new(0),
            target: None,
            lowest: None,
            lowest_at: None,
            flat: true,
        }
    }

    /// Adds an epoch's mean RTT. RTTs older than `window` expire; RTTs within `tolerance` of the smallest
    /// confirm it.
    pub(super) fn add(&mut self, at: Time, rtt: Duration, window: Duration, tolerance: Duration) {
        self.samples.push_back((at, rtt));
        let old = |(time, _): &(Time, Duration)| at.since(*time) > window;
        while self.samples.len() > MAX_SAMPLES || self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
        let memory = window * MIN_RTT_WINDOWS;
        self.memory.set_window(u64::try_from(memory.as_nanos()).unwrap_or(u64::MAX));
        self.memory.add(at.as_nanos(), rtt);
        self.update(tolerance);
    }

    fn update(&mut self, tolerance: Duration) {
        self.sorted.clear();
        self.sorted.extend(self.samples.iter().map(|(_, rtt)| *rtt));
        let (min, max) = (self.sorted.iter().min().copied(), self.sorted.iter().max().copied());
        let (Some(min), Some(max)) = (min, max) else { return };
        let lowest = self.memory.get().unwrap_or(min);
        self.lowest = Some(lowest);
        self.flat = max <= min + tolerance;
        let mut newest = self.samples.iter().rev();
        self.lowest_at = newest.find(|(_, rtt)| *rtt <= min + tolerance).map(|(at, _)| *at);
        let middle = self.sorted.len() / 2;
        self.target = Some(match self.kind {
            Target::Min => lowest,
            // The paper's median alone is unbounded: the flow's own queue raises it. The middle of
            // the extremes bounds it to twice the queue load without flows that fill the buffer.
            Target::Mid => {
                let median = *self.sorted.select_nth_unstable(middle).1;
                match self.median_bound {
                    true => median.min(lowest + (max - lowest) / 2),
                    false => median,
                }
            }
        });
    }

    /// T; `None` before the first epoch.
    pub(super) fn get(&self) -> Option<Duration> {
        self.target
    }

    /// The smallest RTT.
    pub(super) fn lowest(&self) -> Option<Duration> {
        self.lowest
    }

    /// Whether all RTTs of the window are within the tolerance.
    pub(super) fn is_flat(&self) -> bool {
        self.flat
    }

    /// When the smallest RTT of the window was last seen.
    pub(super) fn lowest_at(&self) -> Option<Time> {
        self.lowest_at
    }

    /// Discards RTTs before `at`, after a path change.
    pub(super) fn forget_before(&mut self, at: Time) {
        while self.samples.len() > 1 && self.samples.front().is_some_and(|(time, _)| *time < at) {
            self.samples.pop_front();
        }
        self.memory.clear();
        for (time, rtt) in &self.samples {
            self.memory.add(time.as_nanos(), *rtt);
        }
        self.update(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);
    const TOLERANCE: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_smallest_of_the_window_counts_until_it_is_old() {
        let mut target = TargetDelay::new(Target::Min, true);
        for (time, rtt) in [(0, 60), (100, 50), (200, 70), (300, 51), (400, 80)] {
            target.add(at(time), ms(rtt), WINDOW, TOLERANCE);
        }
        assert_eq!((target.get(), target.lowest_at()), (Some(ms(50)), Some(at(300))), "confirmed");
        assert!(!target.is_flat());
        target.add(at(10_250), ms(90), WINDOW, TOLERANCE);
        assert_eq!((target.get(), target.lowest_at()), (Some(ms(50)), Some(at(300))));
        target.add(at(30_250), ms(90), WINDOW, TOLERANCE);
        assert_eq!((target.get(), target.lowest_at()), (Some(ms(51)), Some(at(30_250))));
        target.forget_before(at(30_250));
        assert_eq!(target.get(), Some(ms(90)));
    }

    #[test]
    fn the_median_is_bounded_by_the_middle_of_the_extremes() {
        let mut target = TargetDelay::new(Target::Mid, true);
        for (time, rtt) in [50, 60, 62, 90, 100].into_iter().enumerate() {
            target.add(at(time as u64), ms(rtt), WINDOW, TOLERANCE);
        }
        assert_eq!((target.get(), target.lowest()), (Some(ms(62)), Some(ms(50))));
        for time in 5..50 {
            target.add(at(time), ms(100), WINDOW, TOLERANCE);
        }
        assert_eq!(target.get(), Some(ms(75)));
        let mut papers = TargetDelay::new(Target::Mid, false);
        for (time, rtt) in [50, 100, 100, 100].into_iter().enumerate() {
            papers.add(at(time as u64), ms(rtt), WINDOW, TOLERANCE);
        }
        assert_eq!(papers.get(), Some(ms(100)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut target = TargetDelay::new(Target::Min, true);
        (0..10_000).for_each(|time| target.add(at(time / 100), ms(50), WINDOW, TOLERANCE));
        assert_eq!(target.samples.len(), MAX_SAMPLES);
        assert!(target.is_flat());
    }
}
