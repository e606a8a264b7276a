use std::collections::VecDeque;
use std::time::Duration;

use crate::Time;

/// Which RTT counts as that of the path without the flow's own queue: T in Eq. 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The smallest of the window (Iris-min).
    Min,
    /// The median of the window (Iris-mid): competes with flows that fill the buffer.
    Mid,
}

/// Most RTTs that are kept: an epoch is rarely shorter than 25 ms.
const MOST_SAMPLES: usize = 512;

/// T: the RTT from which a queue is counted, from the epochs' mean RTTs of the last while.
///
/// Of the means, not of single packets: jitter that every epoch has is no queue.
#[derive(Debug)]
pub(super) struct TargetDelay {
    kind: Target,
    samples: VecDeque<(Time, Duration)>,
    sorted: Vec<Duration>,
    target: Option<Duration>,
    lowest_at: Option<Time>,
}

impl TargetDelay {
    pub(super) fn new(kind: Target) -> Self {
        Self { kind, samples: VecDeque::new(), sorted: Vec::new(), target: None, lowest_at: None }
    }

    /// An epoch's mean RTT. Those older than `window` are forgotten, and those within `tolerance`
    /// of the smallest confirm it.
    pub(super) fn add(&mut self, at: Time, rtt: Duration, window: Duration, tolerance: Duration) {
        self.samples.push_back((at, rtt));
        let old = |(time, _): &(Time, Duration)| at.since(*time) > window;
        while self.samples.len() > MOST_SAMPLES || self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
        self.update(tolerance);
    }

    fn update(&mut self, tolerance: Duration) {
        self.sorted.clear();
        self.sorted.extend(self.samples.iter().map(|(_, rtt)| *rtt));
        let (min, max) = (self.sorted.iter().min().copied(), self.sorted.iter().max().copied());
        let (Some(min), Some(max)) = (min, max) else { return };
        let mut newest = self.samples.iter().rev();
        self.lowest_at = newest.find(|(_, rtt)| *rtt <= min + tolerance).map(|(at, _)| *at);
        let middle = self.sorted.len() / 2;
        self.target = Some(match self.kind {
            Target::Min => min,
            // The paper's median alone follows the flow's own queue without end: packets of
            // its own above the median raise the median. Half way between the extremes
            // bounds it to twice the queue load where nobody else fills the buffer.
            Target::Mid => {
                let median = *self.sorted.select_nth_unstable(middle).1;
                median.min(min + (max - min) / 2)
            }
        });
    }

    /// T; `None` before the first epoch.
    pub(super) fn get(&self) -> Option<Duration> {
        self.target
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
        self.update(Duration::ZERO);
    }
}
