use std::collections::VecDeque;
use std::time::Duration;

use crate::Time;
use crate::estimators::WindowedMin;

/// Which RTT counts as that of the path without the flow's own queue: T in Eq. 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The smallest of the window (Iris-min).
    Min,
    /// The median of the window (Iris-mid): competes with flows that fill the buffer.
    Mid,
}

/// Most RTTs that are kept: at 50 ms an epoch, those of 25 s.
const MOST_SAMPLES: usize = 512;
/// The smallest RTT is remembered for so many windows. With one, T becomes the RTT of a full buffer
/// when no drain succeeds for 5 s, and no flow sees a queue any more.
/// With six, a path that had become ten times longer carried 7 % (Iris-mid) until 30 s had passed.
const REMEMBERED_WINDOWS: u32 = 3;

/// T: the RTT from which a queue is counted, from the epochs' mean RTTs of the last while.
///
/// Of the means, not of single packets: jitter that every epoch has is no queue.
#[derive(Debug)]
pub(super) struct TargetDelay {
    kind: Target,
    samples: VecDeque<(Time, Duration)>,
    sorted: Vec<Duration>,
    /// The smallest of several windows: a queue that others keep is not to become T.
    memory: WindowedMin<Duration>,
    target: Option<Duration>,
    lowest: Option<Duration>,
    lowest_at: Option<Time>,
    flat: bool,
}

impl TargetDelay {
    pub(super) fn new(kind: Target) -> Self {
        Self {
            kind,
            samples: VecDeque::new(),
            sorted: Vec::new(),
            memory: WindowedMin::new(0),
            target: None,
            lowest: None,
            lowest_at: None,
            flat: true,
        }
    }

    /// An epoch's mean RTT. Those older than `window` are forgotten, and those within `tolerance`
    /// of the smallest confirm it.
    pub(super) fn add(&mut self, at: Time, rtt: Duration, window: Duration, tolerance: Duration) {
        self.samples.push_back((at, rtt));
        let old = |(time, _): &(Time, Duration)| at.since(*time) > window;
        while self.samples.len() > MOST_SAMPLES || self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
        let memory = window * REMEMBERED_WINDOWS;
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
            // The paper's median alone follows the flow's own queue without end: packets of
            // its own above the median raise the median. Half way between the extremes
            // bounds it to twice the queue load where nobody else fills the buffer.
            Target::Mid => {
                let median = *self.sorted.select_nth_unstable(middle).1;
                median.min(lowest + (max - lowest) / 2)
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

    /// Whether all RTTs of the window are alike.
    pub(super) fn is_flat(&self) -> bool {
        self.flat
    }

    /// When the smallest RTT of the window was last seen.
    pub(super) fn lowest_at(&self) -> Option<Time> {
        self.lowest_at
    }

    /// Forgets what was before `at`: the path is another one.
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
        let mut target = TargetDelay::new(Target::Min);
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
        let mut target = TargetDelay::new(Target::Mid);
        for (time, rtt) in [50, 60, 62, 90, 100].into_iter().enumerate() {
            target.add(at(time as u64), ms(rtt), WINDOW, TOLERANCE);
        }
        assert_eq!((target.get(), target.lowest()), (Some(ms(62)), Some(ms(50))));
        for time in 5..50 {
            target.add(at(time), ms(100), WINDOW, TOLERANCE);
        }
        assert_eq!(target.get(), Some(ms(75)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut target = TargetDelay::new(Target::Min);
        (0..10_000).for_each(|time| target.add(at(time / 100), ms(50), WINDOW, TOLERANCE));
        assert_eq!(target.samples.len(), MOST_SAMPLES);
        assert!(target.is_flat());
    }
}
