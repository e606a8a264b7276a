use std::time::Duration;

use crate::Time;

/// What the shortest and the longest round trip of a path were is known of this long, or twice as long.
const SPAN: Duration = Duration::from_secs(5);
/// Of late is this long, or twice as long, or so many round trips where that is more. A path that becomes longer
/// again and again is none that has been as long before; a queue that comes again comes in small steps.
const LATELY: Duration = Duration::from_secs(1);
const LATELY_ROUND_TRIPS: u32 = 8;
/// A path is another one where its round trips are so many times as long as the longest of late, or as short as
/// this part of the shortest.
const LONGER: f64 = 1.5;
const SHORTER: f64 = 0.5;
/// And where so much of the round trip came within one, and half of it from one sample to the next: a queue
/// grows and drains by what comes in between, a route changes at once, or one way after the other.
const STEP: f64 = 1.0 / 3.0;
/// Of that step so much must stay for this part of a round trip: behind a link that stood still round trips shrink again...
const STAYS: f64 = 0.75;
/// ...and not more than this be added: behind one that has become slow they grow.
const GROWS: f64 = 0.5;
const STAYS_FOR: f64 = 0.5;
/// Samples in that time, at least: a path that holds fewer packets has a step of its own with each that waits.
const SAMPLES: u32 = 4;

/// Finds out from round trips when a path has become another one, as by a change of route.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathChange {
    last: Option<Duration>,
    /// Of the last round trip or two: what comes between the changes of the two ways would pass for what was
    /// before.
    pending: Recent,
    /// What was before those.
    lately: Recent,
    known: Recent,
    suspect: Option<Suspect>,
}

/// A path that has become another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its round trips now.
    pub(crate) now: Span,
    /// The shortest of before.
    pub(crate) before: Duration,
}

/// The least and the most of some round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    began: Time,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

impl Span {
    fn of(now: Time, rtt: Duration) -> Self {
        Self { began: now, least: rtt, most: rtt }
    }

    fn add(&mut self, rtt: Duration) {
        self.least = self.least.min(rtt);
        self.most = self.most.max(rtt);
    }
}

/// What came within a stretch of time, and in the one before it.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    current: Option<Span>,
    earlier: Option<Span>,
}

impl Recent {
    fn of(span: Span) -> Self {
        Self { current: Some(span), earlier: None }
    }

    /// Takes in a round trip; what is older than both stretches.
    fn add(
        &mut self,
        now: Time,
        rtt: Duration,
        stretch: impl Fn(&Span) -> Duration,
    ) -> Option<Span> {
        let is_over = self.current.is_some_and(|span| now - span.began >= stretch(&span));
        let over =
            if is_over { std::mem::replace(&mut self.earlier, self.current.take()) } else { None };
        self.current.get_or_insert(Span::of(now, rtt)).add(rtt);
        over
    }

    fn spans(&self) -> impl Iterator<Item = Span> {
        self.current.into_iter().chain(self.earlier)
    }

    fn least(&self) -> Option<Duration> {
        self.spans().map(|span| span.least).min()
    }

    fn most(&self) -> Option<Duration> {
        self.spans().map(|span| span.most).max()
    }
}

/// Round trips since a step.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// The bounds that they must keep to.
    bounds: (Duration, Duration),
    is_longer: bool,
    samples: u32,
    seen: Span,
}

impl PathChange {
    /// Takes in a sample; says when the path has become another one.
    pub(crate) fn on_rtt(&mut self, now: Time, rtt: Duration) -> Option<Change> {
        let last = self.last.replace(rtt);
        if self.suspect.is_some() {
            return self.follow(now, last?, rtt);
        }
        self.suspect = last.and_then(|last| self.suspected(now, last, rtt));
        if self.suspect.is_none() {
            self.note(now, rtt);
        }
        None
    }

    fn suspected(&self, now: Time, last: Duration, rtt: Duration) -> Option<Suspect> {
        let (least, most) = (self.known.least()?, self.lately.most()?);
        let is_longer = rtt > most.mul_f64(LONGER);
        if !is_longer && rtt >= least.mul_f64(SHORTER) {
            return None;
        }
        let (before_least, before_most) = self.just_before(now, last, rtt);
        let (step, within, of) = if is_longer {
            (rtt.saturating_sub(last), rtt.saturating_sub(before_least), rtt)
        } else {
            (last.saturating_sub(rtt), before_most.saturating_sub(rtt), before_most)
        };
        if step < of.mul_f64(STEP / 2.0) || within < of.mul_f64(STEP) {
            return None;
        }
        // Round trips that are shorter may get longer: whatever comes meets an empty queue first.
        let bounds = if is_longer {
            let step = rtt - most;
            (most + step.mul_f64(STAYS), rtt + step.mul_f64(GROWS))
        } else {
            (Duration::ZERO, least - (least - rtt).mul_f64(GROWS))
        };
        Some(Suspect { bounds, is_longer, samples: 1, seen: Span::of(now, rtt) })
    }

    /// The least and the most of the round trip that ended with `last`, before the one of `rtt`: of two ways the one
    /// that changed first counts. What was sent just after it did is heard of when all of `rtt` is over.
    fn just_before(&self, now: Time, last: Duration, rtt: Duration) -> (Duration, Duration) {
        let is_fresh =
            self.pending.current.is_some_and(|span| now - span.began < span.most.max(rtt) * 2);
        let spans = self.pending.spans().filter(|_| is_fresh);
        spans.fold((last, last), |(least, most), span| (least.min(span.least), most.max(span.most)))
    }

    fn follow(&mut self, now: Time, last: Duration, rtt: Duration) -> Option<Change> {
        let suspect = self.suspect.as_mut()?;
        suspect.seen.add(rtt);
        suspect.samples += 1;
        let Suspect { seen, is_longer, samples, bounds } = *suspect;
        if !(bounds.0..=bounds.1).contains(&rtt) {
            // One way may change before the other, in two steps.
            self.suspect =
                self.suspected(now, last, rtt).filter(|next| next.is_longer == is_longer);
        } else if now - seen.began < seen.least.mul_f64(STAYS_FOR) {
            return None;
        } else if samples < SAMPLES {
            self.suspect = None;
        } else {
            return self.begin_with(seen);
        }
        if self.suspect.is_none() {
            // The path is the same: all of it belongs to what is known of it.
            self.note(now, seen.least);
            self.note(now, seen.most);
        }
        None
    }

    /// From now on nothing is known but `seen`.
    fn begin_with(&mut self, seen: Span) -> Option<Change> {
        let before = self.known.least()?;
        let recent = Recent::of(seen);
        *self = Self { last: self.last, lately: recent, known: recent, ..Self::default() };
        Some(Change { now: seen, before })
    }

    fn note(&mut self, now: Time, rtt: Duration) {
        let Some(over) = self.pending.add(now, rtt, |span| span.most) else { return };
        for rtt in [over.least, over.most] {
            self.lately.add(now, rtt, |span| LATELY.max(span.most * LATELY_ROUND_TRIPS).min(SPAN));
            self.known.add(now, rtt, |_| SPAN);
        }
    }

    /// The shortest and the longest round trip of the last five to ten seconds.
    pub(crate) fn known(&self) -> Option<(Duration, Duration)> {
        Some((self.known.least()?, self.known.most()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample each so many milliseconds; at which of them the path has become another one.
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
    fn a_step_that_stays_is_another_path() {
        // Known half a round trip after the step, either way.
        let up_and_down = steady(60, 200).chain(steady(800, 400)).chain(steady(60, 100));
        assert_eq!(changes(5, up_and_down), [(1400, true), (3030, false)]);
    }

    #[test]
    fn one_way_after_the_other_is_one_change() {
        let in_two = steady(60, 200).chain(steady(430, 6)).chain(steady(800, 400));
        assert_eq!(changes(5, in_two), [(1430, true)]);
    }

    #[test]
    fn twice_as_long_one_way_after_the_other_is_a_change_too() {
        let in_two = steady(34, 500).chain(steady(50, 8)).chain(steady(66, 250));
        assert_eq!(changes(2, in_two), [(1050, true)]);
        let back = steady(90, 500).chain(steady(55, 12)).chain(steady(20, 250));
        assert_eq!(changes(2, back).len(), 1);
    }

    /// A sample for each packet, one each `every_ms`, while both ways of a path change at `at_ms`.
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
    fn both_ways_at_once_are_a_change_whenever_they_do() {
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
    fn a_path_that_moves_each_five_seconds_is_followed() {
        let moving = [58, 91, 34, 66].into_iter().flat_map(|ms| steady(ms, 1250));
        assert_eq!(changes(4, moving), [(5048, true), (10_020, false), (15_036, true)]);
    }

    #[test]
    fn a_queue_that_comes_again_and_again_is_none() {
        // As a video's segments fill it, and drained meanwhile.
        let up = || (0..100).map(|step| 60 + 5 * step / 2);
        let once = || up().chain(steady(310, 100)).chain(steady(60, 600));
        let again = (0..5).flat_map(|_| once());
        assert_eq!(changes(5, again), []);
    }

    #[test]
    fn a_queue_is_none() {
        // It grows by half of the time that passes, and drains again.
        let up = (0..200).map(|step| 60 + 5 * step / 2);
        let down = (0..200).map(|step| 560 - 5 * step / 2);
        assert_eq!(changes(5, steady(60, 200).chain(up).chain(down)), []);
    }

    #[test]
    fn a_link_that_stood_still_is_none() {
        // What waited for 700 ms leaves at once, and the later it came the less it waited.
        let after = (0..70).map(|packet| 760 - 10 * packet);
        assert_eq!(changes(1, steady(60, 1000).chain(after).chain(steady(60, 2000))), []);
    }

    #[test]
    fn a_link_that_has_become_slow_is_none() {
        // A packet takes 60 ms, and one more waits with each.
        let before = (0..1000).step_by(5).zip(steady(60, 200));
        let growing = (1..30).map(|packet| (1000 + 60 * packet, 60 + 60 * packet));
        assert_eq!(changes_at(before.chain(growing)), []);
    }

    #[test]
    fn jitter_is_none() {
        let jitter = (0..2000_u64).map(|number| 50 + (number * 7919) % 20);
        assert_eq!(changes(5, jitter), []);
    }

    #[test]
    fn a_few_samples_are_not_enough() {
        assert_eq!(changes(5, steady(60, 100).chain(steady(300, 3))), []);
        assert_eq!(changes(5, steady(60, 100).chain(steady(300, 50))).len(), 1);
    }

    /// A packet takes 12 ms: with two more in the queue the round trip is twice as long.
    #[test]
    fn a_few_packets_are_no_path() {
        assert_eq!(changes(12, steady(24, 400).chain(steady(48, 400))), []);
        assert_eq!(changes(3, steady(24, 400).chain(steady(48, 400))).len(), 1);
    }
}
