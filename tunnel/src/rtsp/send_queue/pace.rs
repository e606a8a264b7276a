//! Whether media come in real time: by how much their timestamps advance in the time in which they arrive.
//!
//! The lead is media time less arrival time. Of a source in real time it does not rise beyond what it was: after a break
//! the source catches up at most. Of a faster source its highest value rises without end. A burst at the beginning, by
//! which a server fills the player's buffer or sends the group of pictures that it has, raises it once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// For how long the lead must not have risen before a source counts as one in real time.
pub(super) const OBSERVATION_TIME: Duration = Duration::from_secs(2);
/// How much the lead may rise in that time, for jitter: up to a quarter faster than real time counts as real time.
const MAX_OBSERVED_RISE_S: f64 = 0.5;
/// How far back the lead is compared.
const LEAD_WINDOW: Duration = Duration::from_secs(10);
/// Longest burst of a source in real time: the group of pictures that a server keeps for new players has one to four
/// seconds with most cameras.
const MAX_BURST_S: f64 = 4.0;
/// After a longer silence, as of a session that is paused, a source is observed as if it had just begun. Otherwise it
/// could be faster for as long as it was silent before.
const MAX_SILENCE: Duration = Duration::from_secs(1);
/// Timestamps that jump by more begin a new timeline.
const MAX_JUMP_S: f64 = 10.0;
/// Resolution of the record.
const RECORD_INTERVAL: Duration = Duration::from_millis(100);

/// What is known of a source's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceVerdict {
    /// It has not been observed for long enough, or is between the two.
    Unknown,
    /// Real time.
    RealTime,
    /// Faster than real time, for longer than a burst.
    Faster,
}

/// The pace of one medium.
#[derive(Debug)]
pub(super) struct MediaPace {
    clock_hz: u32,
    newest: Option<PacketArrival>,
    /// The highest lead so far at some instants, the oldest first.
    peaks: VecDeque<(Instant, f64)>,
}

#[derive(Clone, Copy, Debug)]
struct PacketArrival {
    at: Instant,
    timestamp: u32,
    lead_s: f64,
}

impl MediaPace {
    /// Of an encoding with so many units a second, which is not 0.
    pub(super) fn new(clock_hz: u32) -> Self {
        Self { clock_hz, newest: None, peaks: VecDeque::new() }
    }

    /// Forgets what was seen.
    pub(super) fn reset(&mut self) {
        self.newest = None;
        self.peaks.clear();
    }

    /// A packet with this timestamp has arrived.
    pub(super) fn take(&mut self, timestamp: u32, at: Instant) {
        let next = self.newest.and_then(|newest| {
            let silence = at.saturating_duration_since(newest.at);
            let units = timestamp.wrapping_sub(newest.timestamp) as i32;
            let advance_s = f64::from(units) / f64::from(self.clock_hz);
            let goes_on = silence <= MAX_SILENCE && advance_s.abs() <= MAX_JUMP_S;
            goes_on.then_some(newest.lead_s + advance_s - silence.as_secs_f64())
        });
        if next.is_none() {
            self.reset();
        }
        let lead_s = next.unwrap_or(0.0);
        self.newest = Some(PacketArrival { at, timestamp, lead_s });
        self.record(at, lead_s);
    }

    fn record(&mut self, at: Instant, lead_s: f64) {
        let peak_s = self.peaks.back().map_or(lead_s, |(_, peak_s)| peak_s.max(lead_s));
        // The first entry stays as it is: what a burst is measured from.
        match self.peaks.len() {
            2.. if at.saturating_duration_since(self.peaks[self.peaks.len() - 1].0)
                < RECORD_INTERVAL =>
            {
                if let Some(newest) = self.peaks.back_mut() {
                    newest.1 = peak_s;
                }
            }
            _ => self.peaks.push_back((at, peak_s)),
        }
        // One entry remains that is as old as the window.
        while self.peaks.get(1).is_some_and(|it| at.saturating_duration_since(it.0) >= LEAD_WINDOW)
        {
            self.peaks.pop_front();
        }
    }

    /// By how much the highest lead has risen in the last `span`.
    fn rise_s(&self, span: Duration, now: Instant) -> f64 {
        let Some((_, newest_s)) = self.peaks.back() else { return 0.0 };
        let is_before = |it: &&(Instant, f64)| now.saturating_duration_since(it.0) >= span;
        let base = self.peaks.iter().rev().find(is_before).or(self.peaks.front());
        base.map_or(0.0, |(_, base_s)| newest_s - base_s)
    }

    /// What is known at `now`.
    pub(super) fn verdict(&self, now: Instant) -> PaceVerdict {
        let Some((began, _)) = self.peaks.front() else { return PaceVerdict::Unknown };
        if self.rise_s(LEAD_WINDOW, now) > MAX_BURST_S {
            return PaceVerdict::Faster;
        }
        let is_known = now.saturating_duration_since(*began) >= OBSERVATION_TIME;
        match is_known && self.rise_s(OBSERVATION_TIME, now) <= MAX_OBSERVED_RISE_S {
            true => PaceVerdict::RealTime,
            false => PaceVerdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK_HZ: u32 = 90_000;

    /// Frames of 40 ms, each with its arrival in milliseconds; what is known at each arrival.
    fn verdicts(arrivals_ms: impl IntoIterator<Item = f64>) -> Vec<PaceVerdict> {
        let (begin, mut pace) = (Instant::now(), MediaPace::new(CLOCK_HZ));
        let mut verdicts = Vec::new();
        for (number, at_ms) in arrivals_ms.into_iter().enumerate() {
            let at = begin + Duration::from_secs_f64(at_ms / 1e3);
            // They wrap around after two seconds.
            let timestamp = (number as u32 * CLOCK_HZ / 25).wrapping_sub(2 * CLOCK_HZ);
            pace.take(timestamp, at);
            verdicts.push(pace.verdict(at));
        }
        verdicts
    }

    #[test]
    fn a_source_in_real_time_is_known_after_two_seconds() {
        // Up to 200 ms late, and never ahead of an earlier one.
        let late = |number: u32| f64::from(number * 40 + number * 7919 % 200);
        let arrivals = (0..1000).scan(0.0, |latest: &mut f64, number| {
            *latest = latest.max(late(number));
            Some(*latest)
        });
        let seen = verdicts(arrivals);
        assert!(seen[..45].iter().all(|it| *it == PaceVerdict::Unknown));
        assert!(seen[60..].iter().all(|it| *it == PaceVerdict::RealTime));
    }

    #[test]
    fn a_faster_source_is_never_taken_for_one_in_real_time() {
        for speed in [1.3, 1.5, 2.0, 10.0, 100.0] {
            let seen = verdicts((0..2000).map(|number| f64::from(number) * 40.0 / speed));
            assert!(seen.iter().all(|it| *it != PaceVerdict::RealTime), "{speed} times");
            let first = seen.iter().position(|it| *it == PaceVerdict::Faster);
            // Where it was not, the queue has no room for it before it is.
            assert!(first.is_some() || speed < 1.4, "{speed} times");
        }
    }

    #[test]
    fn a_burst_at_the_beginning_delays_the_verdict() {
        // Three seconds at once.
        let seen = verdicts((0..500).map(|number| f64::from(u32::max(number, 75) - 75) * 40.0));
        assert!(seen.iter().all(|it| *it != PaceVerdict::Faster));
        assert!(seen[75 + 55..].iter().all(|it| *it == PaceVerdict::RealTime));
        // Eight seconds are a burst too, as soon as the window is over it.
        let seen = verdicts((0..800).map(|number| f64::from(u32::max(number, 200) - 200) * 40.0));
        assert_eq!(seen[200], PaceVerdict::Faster);
        assert_eq!(seen[799], PaceVerdict::RealTime);
    }

    #[test]
    fn a_source_that_catches_up_after_a_break_is_in_real_time() {
        // Nothing arrives between 4.0 and 4.9 s, then all of it.
        let late = |at_ms: f64| if (4000.0..4900.0).contains(&at_ms) { 4900.0 } else { at_ms };
        let seen = verdicts((0..300).map(|number| late(f64::from(number) * 40.0)));
        assert!(seen[60..].iter().all(|it| *it == PaceVerdict::RealTime));
    }

    #[test]
    fn after_a_pause_it_is_looked_at_again() {
        // Paused for a minute, then ten times faster.
        let at_ms = |number: u32| match number {
            0..100 => f64::from(number) * 40.0,
            _ => 64_000.0 + f64::from(number - 100) * 4.0,
        };
        let seen = verdicts((0..400).map(at_ms));
        assert_eq!(seen[99], PaceVerdict::RealTime);
        assert!(seen[100..].iter().all(|it| *it != PaceVerdict::RealTime));
        assert_eq!(seen[399], PaceVerdict::Faster);
    }

    #[test]
    fn a_jump_of_timestamps_begins_again() {
        let (begin, mut pace) = (Instant::now(), MediaPace::new(CLOCK_HZ));
        for number in 0..100 {
            pace.take(number * 3600, begin + Duration::from_millis(u64::from(number) * 40));
        }
        let at = begin + Duration::from_secs(4);
        assert_eq!(pace.verdict(at), PaceVerdict::RealTime);
        pace.take(1 << 30, at);
        assert_eq!(pace.verdict(at), PaceVerdict::Unknown);
    }
}
