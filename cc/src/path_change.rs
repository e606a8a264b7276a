use std::time::Duration;

use crate::Time;

// No paper or RFC has these thresholds. docs/research/mcc.md has their measurements.

/// The baseline covers the shortest and longest RTTs of this long, up to twice as long.
/// Chosen by `recurring_queue_is_not_a_path_change`.
const BASELINE_SPAN: Duration = Duration::from_secs(5);
/// Recent RTTs are those of this long, up to twice as long, or of [`RECENT_RTTS`] round trips if that is more. Shorter
/// than the baseline, so that a path that becomes longer repeatedly is still noticed.
/// Chosen by `a_path_that_changes_every_five_seconds_is_followed`.
const RECENT_SPAN: Duration = Duration::from_secs(1);
const RECENT_RTTS: u32 = 8;
/// A path change needs RTTs of at least this multiple of the longest recent RTT.
/// Chosen by `changes_of_both_directions_are_one_path_change_at_any_phase`.
const RTT_INCREASE_FACTOR: f64 = 1.5;
/// A path change needs RTTs of at most this multiple of the shortest baseline RTT. Chosen by the same test.
const RTT_DECREASE_FACTOR: f64 = 0.5;
/// Least share of the RTT that must change within one RTT, half of it between two samples. A queue grows and drains
/// gradually; a route changes at once, or one direction after the other.
/// Chosen by `growing_and_draining_queue_is_not_a_path_change`.
const STEP_FRACTION: f64 = 1.0 / 3.0;
/// Least share of the step that must persist while it is confirmed: after a link outage RTTs shrink again.
/// Chosen by `link_outage_is_not_a_path_change`.
const PLATEAU_FRACTION: f64 = 0.75;
/// Most that may be added to the step while it is confirmed, as a share of it: on a link that became slow RTTs grow.
/// Chosen by `slower_link_is_not_a_path_change`.
const MAX_GROWTH: f64 = 0.5;
/// How long the step must persist, in RTTs after the step. Chosen by `persistent_rtt_step_is_a_path_change`.
const CONFIRM_RTTS: f64 = 0.5;
/// Least samples within [`CONFIRM_RTTS`]: on a path that holds fewer packets each queued packet is a step.
/// Chosen by `queued_packets_on_a_tiny_path_are_not_a_path_change`.
const MIN_SAMPLES: u32 = 4;

/// Detects path changes (RTT steps, such as from a new route) in RTT samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathChange {
    last: Option<Duration>,
    /// The last one or two RTTs, kept apart from the baseline: samples between the changes of the two directions
    /// would otherwise become part of it.
    pending: RttHistory,
    /// [`RECENT_SPAN`] before `pending`.
    recent: RttHistory,
    /// [`BASELINE_SPAN`] before `pending`.
    baseline: RttHistory,
    candidate: Option<StepCandidate>,
}

/// A confirmed path change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConfirmedPathChange {
    /// RTTs since the change.
    pub(crate) now: RttRange,
    /// Shortest RTT of the baseline before the change.
    pub(crate) before: Duration,
}

/// Shortest and longest of some RTT samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RttRange {
    began: Time,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

impl RttRange {
    fn of(now: Time, rtt: Duration) -> Self {
        Self { began: now, least: rtt, most: rtt }
    }

    fn add(&mut self, rtt: Duration) {
        self.least = self.least.min(rtt);
        self.most = self.most.max(rtt);
    }
}

/// RTT ranges of the current span and of the one before it.
#[derive(Clone, Copy, Debug, Default)]
struct RttHistory {
    current: Option<RttRange>,
    earlier: Option<RttRange>,
}

impl RttHistory {
    fn of(range: RttRange) -> Self {
        Self { current: Some(range), earlier: None }
    }

    /// Adds a sample. Returns the range that is older than both spans, if one just expired.
    fn add(
        &mut self,
        now: Time,
        rtt: Duration,
        span: impl Fn(&RttRange) -> Duration,
    ) -> Option<RttRange> {
        let is_over = self.current.is_some_and(|range| now - range.began >= span(&range));
        let over =
            if is_over { std::mem::replace(&mut self.earlier, self.current.take()) } else { None };
        self.current.get_or_insert(RttRange::of(now, rtt)).add(rtt);
        over
    }

    fn ranges(&self) -> impl Iterator<Item = RttRange> {
        self.current.into_iter().chain(self.earlier)
    }

    fn least(&self) -> Option<Duration> {
        self.ranges().map(|range| range.least).min()
    }

    fn most(&self) -> Option<Duration> {
        self.ranges().map(|range| range.most).max()
    }
}

/// An RTT step that is not confirmed yet.
#[derive(Clone, Copy, Debug)]
struct StepCandidate {
    /// Bounds within which the following samples confirm it.
    bounds: (Duration, Duration),
    is_longer: bool,
    samples: u32,
    seen: RttRange,
}

impl PathChange {
    /// Processes a sample. Returns the path change that it confirms, if any.
    pub(crate) fn on_rtt(&mut self, now: Time, rtt: Duration) -> Option<ConfirmedPathChange> {
        let last = self.last.replace(rtt);
        if self.candidate.is_some() {
            return self.confirm(now, last?, rtt);
        }
        self.candidate = last.and_then(|last| self.detect_step(now, last, rtt));
        if self.candidate.is_none() {
            self.record(now, rtt);
        }
        None
    }

    fn detect_step(&self, now: Time, last: Duration, rtt: Duration) -> Option<StepCandidate> {
        let (least, most) = (self.baseline.least()?, self.recent.most()?);
        let is_longer = rtt > most.mul_f64(RTT_INCREASE_FACTOR);
        if !is_longer && rtt >= least.mul_f64(RTT_DECREASE_FACTOR) {
            return None;
        }
        let (before_least, before_most) = self.just_before(now, last, rtt);
        let (step, within, of) = if is_longer {
            (rtt.saturating_sub(last), rtt.saturating_sub(before_least), rtt)
        } else {
            (last.saturating_sub(rtt), before_most.saturating_sub(rtt), before_most)
        };
        if step < of.mul_f64(STEP_FRACTION / 2.0) || within < of.mul_f64(STEP_FRACTION) {
            return None;
        }
        // After a step down RTTs may grow: the next packets meet an empty queue first.
        let bounds = if is_longer {
            let step = rtt - most;
            (most + step.mul_f64(PLATEAU_FRACTION), rtt + step.mul_f64(MAX_GROWTH))
        } else {
            (Duration::ZERO, least - (least - rtt).mul_f64(MAX_GROWTH))
        };
        Some(StepCandidate { bounds, is_longer, samples: 1, seen: RttRange::of(now, rtt) })
    }

    /// Shortest and longest sample of the RTT that ended with `last`, before the round trip measured by `rtt`. It
    /// includes the step of the direction that changed first.
    fn just_before(&self, now: Time, last: Duration, rtt: Duration) -> (Duration, Duration) {
        let is_fresh =
            self.pending.current.is_some_and(|range| now - range.began < range.most.max(rtt) * 2);
        let ranges = self.pending.ranges().filter(|_| is_fresh);
        ranges.fold((last, last), |(least, most), range| {
            (least.min(range.least), most.max(range.most))
        })
    }

    fn confirm(&mut self, now: Time, last: Duration, rtt: Duration) -> Option<ConfirmedPathChange> {
        let candidate = self.candidate.as_mut()?;
        candidate.seen.add(rtt);
        candidate.samples += 1;
        let StepCandidate { seen, is_longer, samples, bounds } = *candidate;
        if !(bounds.0..=bounds.1).contains(&rtt) {
            // One direction may change before the other, in two steps.
            self.candidate =
                self.detect_step(now, last, rtt).filter(|next| next.is_longer == is_longer);
        } else if now - seen.began < seen.least.mul_f64(CONFIRM_RTTS) {
            return None;
        } else if samples < MIN_SAMPLES {
            self.candidate = None;
        } else {
            return self.restart_with(seen);
        }
        if self.candidate.is_none() {
            // The path is unchanged: the candidate's samples belong to its history.
            self.record(now, seen.least);
            self.record(now, seen.most);
        }
        None
    }

    /// Starts the histories again with `seen` alone.
    fn restart_with(&mut self, seen: RttRange) -> Option<ConfirmedPathChange> {
        let before = self.baseline.least()?;
        let history = RttHistory::of(seen);
        *self = Self { last: self.last, recent: history, baseline: history, ..Self::default() };
        Some(ConfirmedPathChange { now: seen, before })
    }

    fn record(&mut self, now: Time, rtt: Duration) {
        let Some(over) = self.pending.add(now, rtt, |range| range.most) else { return };
        let recent_span =
            |range: &RttRange| RECENT_SPAN.max(range.most * RECENT_RTTS).min(BASELINE_SPAN);
        for rtt in [over.least, over.most] {
            self.recent.add(now, rtt, recent_span);
            self.baseline.add(now, rtt, |_| BASELINE_SPAN);
        }
    }

    /// Shortest and longest RTT of the last five to ten seconds.
    pub(crate) fn baseline(&self) -> Option<(Duration, Duration)> {
        Some((self.baseline.least()?, self.baseline.most()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sample every `every_ms`. Returns when path changes were detected, and whether the path became longer.
    fn changes(every_ms: u64, rtts_ms: impl IntoIterator<Item = u64>) -> Vec<(u64, bool)> {
        changes_at((0..).step_by(every_ms as usize).zip(rtts_ms))
    }

    fn changes_at(samples: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, bool)> {
        let mut change = PathChange::default();
        let mut found = Vec::new();
        for (ms, rtt_ms) in samples {
            let now = Time::from_nanos(ms * 1_000_000);
            if let Some(change) = change.on_rtt(now, Duration::from_millis(rtt_ms)) {
                found.push((ms, change.now.least > change.before));
            }
        }
        found
    }

    fn steady(ms: u64, times: usize) -> impl Iterator<Item = u64> {
        std::iter::repeat_n(ms, times)
    }

    #[test]
    fn persistent_rtt_step_is_a_path_change() {
        // Detected half a round trip after the step, in both directions.
        let up_and_down = steady(60, 200).chain(steady(800, 400)).chain(steady(60, 100));
        assert_eq!(changes(5, up_and_down), [(1400, true), (3030, false)]);
    }

    #[test]
    fn steps_of_one_direction_after_the_other_are_one_path_change() {
        let in_two = steady(60, 200).chain(steady(430, 6)).chain(steady(800, 400));
        assert_eq!(changes(5, in_two), [(1430, true)]);
    }

    #[test]
    fn gradual_change_of_both_directions_is_one_path_change() {
        let in_two = steady(34, 500).chain(steady(50, 8)).chain(steady(66, 250));
        assert_eq!(changes(2, in_two), [(1050, true)]);
        let back = steady(90, 500).chain(steady(55, 12)).chain(steady(20, 250));
        assert_eq!(changes(2, back).len(), 1);
    }

    /// One sample per packet, sent every `every_ms`, while both directions of a path change at `at_ms`.
    fn both_ways(every_ms: f64, at_ms: f64, from_ms: f64, to_ms: f64) -> Vec<(f64, f64)> {
        let one_way = |at: f64| if at < at_ms { from_ms / 2.0 } else { to_ms / 2.0 };
        let mut samples: Vec<_> = (0..(at_ms / every_ms) as usize + 400)
            .map(|number| {
                let sent = number as f64 * every_ms;
                let there = sent + one_way(sent);
                let back = there + one_way(there);
                (back, back - sent)
            })
            .collect();
        samples.sort_by(|one, other| one.0.total_cmp(&other.0));
        samples
    }

    #[test]
    fn changes_of_both_directions_are_one_path_change_at_any_phase() {
        for (from_ms, to_ms) in
            [(20.0, 58.0), (34.0, 66.0), (57.0, 90.0), (90.0, 20.0), (100.0, 45.0)]
        {
            for phase in 0..100 {
                let at_ms = 1000.0 + from_ms * f64::from(phase) / 50.0;
                let mut change = PathChange::default();
                let found =
                    both_ways(1.5, at_ms, from_ms, to_ms).into_iter().filter_map(|(at, rtt)| {
                        let millis = |ms: f64| Duration::from_secs_f64(ms / 1000.0);
                        change.on_rtt(Time::ZERO + millis(at), millis(rtt))
                    });
                assert_eq!(found.count(), 1, "from {from_ms} to {to_ms} ms at {at_ms}");
            }
        }
    }

    #[test]
    fn a_path_that_changes_every_five_seconds_is_followed() {
        let moving = [58, 91, 34, 66].into_iter().flat_map(|ms| steady(ms, 1250));
        assert_eq!(changes(4, moving), [(5048, true), (10_020, false), (15_036, true)]);
    }

    #[test]
    fn recurring_queue_is_not_a_path_change() {
        // A video's segments fill it, and it drains between them.
        let up = || (0..100).map(|step| 60 + 5 * step / 2);
        let once = || up().chain(steady(310, 100)).chain(steady(60, 600));
        let again = (0..5).flat_map(|_| once());
        assert_eq!(changes(5, again), []);
    }

    #[test]
    fn growing_and_draining_queue_is_not_a_path_change() {
        // It grows by half of the time that passes, and drains again.
        let up = (0..200).map(|step| 60 + 5 * step / 2);
        let down = (0..200).map(|step| 560 - 5 * step / 2);
        assert_eq!(changes(5, steady(60, 200).chain(up).chain(down)), []);
    }

    #[test]
    fn link_outage_is_not_a_path_change() {
        // Packets that waited for 700 ms leave at once; later arrivals waited less.
        let after = (0..70).map(|packet| 760 - 10 * packet);
        assert_eq!(changes(1, steady(60, 1000).chain(after).chain(steady(60, 2000))), []);
    }

    #[test]
    fn slower_link_is_not_a_path_change() {
        // A packet takes 60 ms, and each packet waits for one more than the packet before it.
        let before = (0..1000).step_by(5).zip(steady(60, 200));
        let growing = (1..30).map(|packet| (1000 + 60 * packet, 60 + 60 * packet));
        assert_eq!(changes_at(before.chain(growing)), []);
    }

    #[test]
    fn jitter_is_not_a_path_change() {
        let jitter = (0..2000_u64).map(|number| 50 + (number * 7919) % 20);
        assert_eq!(changes(5, jitter), []);
    }

    #[test]
    fn a_few_samples_do_not_confirm_a_path_change() {
        assert_eq!(changes(5, steady(60, 100).chain(steady(300, 3))), []);
        assert_eq!(changes(5, steady(60, 100).chain(steady(300, 50))).len(), 1);
    }

    /// A packet takes 12 ms: with two more in the queue the round trip is twice as long.
    #[test]
    fn queued_packets_on_a_tiny_path_are_not_a_path_change() {
        assert_eq!(changes(12, steady(24, 400).chain(steady(48, 400))), []);
        assert_eq!(changes(3, steady(24, 400).chain(steady(48, 400))).len(), 1);
    }
}
