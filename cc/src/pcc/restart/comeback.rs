use std::time::Duration;

use crate::Time;

/// How long after a fall the path is asked first; then after twice as long, and so on.
const FIRST: Duration = Duration::from_secs(1);
/// So often: for half a minute.
const ASKED: u32 = 5;
/// From this share of the rate before the fall on it is back.
const BACK: f64 = 0.8;

/// Whether a path that has become slower carries again what it did.
///
/// Cellular links fall to a fraction for a second or two. From there a rise by the gradient takes
/// four round trips at least for each tenth, of intervals of ten packets: seconds each where
/// the fraction is small.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Comeback {
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    from_mbps: f64,
    next: Time,
    asked: u32,
}

impl Comeback {
    /// The path has become slower than `from_mbps`.
    pub(super) fn on_fall(&mut self, now: Time, from_mbps: f64) {
        // One that goes on in steps is one.
        let before = self.waiting.map_or(0.0, |waiting| waiting.from_mbps);
        let from_mbps = from_mbps.max(before);
        self.waiting = Some(Waiting { from_mbps, next: now + FIRST, asked: 0 });
    }

    /// What was asked had no answer.
    pub(super) fn on_silence(&mut self, now: Time) {
        if let Some(waiting) = &mut self.waiting {
            waiting.asked = waiting.asked.saturating_sub(1);
            waiting.next = now;
        }
    }

    /// Whether to ask now, at a rate of `mbps`.
    pub(super) fn is_due(&mut self, now: Time, mbps: f64) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        if mbps >= BACK * waiting.from_mbps || waiting.asked >= ASKED {
            self.waiting = None;
            return false;
        }
        let due = now >= waiting.next;
        if due {
            waiting.asked += 1;
            waiting.next = now + FIRST * 2_u32.pow(waiting.asked);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn it_asks_at_longer_and_longer_intervals_until_the_rate_is_back_or_half_a_minute_is_over() {
        let due = |comeback: &mut Comeback, until, mbps| -> Vec<u64> {
            (10..until).filter(|second| comeback.is_due(at(*second), mbps)).collect()
        };
        let mut comeback = Comeback::default();
        assert!(!comeback.is_due(at(9), 1.0), "nothing has fallen");
        comeback.on_fall(at(10), 4.0);
        assert_eq!(due(&mut comeback, 100, 1.0), [11, 13, 17, 25, 41]);
        comeback.on_fall(at(10), 4.0);
        assert_eq!(due(&mut comeback, 14, 1.0), [11, 13]);
        assert_eq!(due(&mut comeback, 100, 3.2), [] as [u64; 0], "it is back");
        assert_eq!(due(&mut comeback, 100, 1.0), [] as [u64; 0]);
    }

    #[test]
    fn a_fall_in_steps_is_one() {
        let mut comeback = Comeback::default();
        comeback.on_fall(at(10), 8.0);
        comeback.on_fall(at(11), 2.0);
        assert!(comeback.is_due(at(12), 6.0), "6 are not 8");
    }
}
