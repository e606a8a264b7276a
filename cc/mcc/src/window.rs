use std::collections::VecDeque;
use std::time::Duration;

use millrace_cc::Time;

/// How far back the share goes.
const SPAN: Duration = Duration::from_secs(10);
/// How often the counts are noted.
const STEP: Duration = Duration::from_secs(1);

/// Share of bytes lost over the last [`SPAN`], of counts that only grow.
#[derive(Debug, Default)]
pub(crate) struct LossWindow {
    /// The first is the oldest.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    delivered_bytes: u64,
    lost_bytes: u64,
}

impl LossWindow {
    /// The share at `now`, with these counts; zero before anything was sent.
    pub(crate) fn share(&mut self, now: Time, delivered_bytes: u64, lost_bytes: u64) -> f64 {
        if self.marks.back().is_none_or(|last| now - last.at >= STEP) {
            self.marks.push_back(Mark { at: now, delivered_bytes, lost_bytes });
        }
        // One mark stays that is older than the span, or the oldest that there is.
        while self.marks.get(1).is_some_and(|second| now - second.at >= SPAN) {
            self.marks.pop_front();
        }
        let Some(first) = self.marks.front() else { return 0.0 };
        // A late packet takes its loss back: the counts can shrink by it.
        let lost = lost_bytes.saturating_sub(first.lost_bytes);
        let delivered = delivered_bytes.saturating_sub(first.delivered_bytes);
        match lost + delivered {
            0 => 0.0,
            all => lost as f64 / all as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_last_ten_seconds() {
        let mut window = LossWindow::default();
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        let (mut delivered, mut lost) = (0, 0);
        let mut share = 0.0;
        // A tenth is lost for 20 s, then nothing for 5 s, then nothing for 10 more.
        for s in 0..=20 {
            share = window.share(at(s), delivered, lost);
            (delivered, lost) = (delivered + 900, lost + 100);
        }
        assert!((share - 0.1).abs() < 1e-9, "{share}");
        for s in 21..=25 {
            share = window.share(at(s), delivered, lost);
            delivered += 1000;
        }
        assert!((share - 0.06).abs() < 0.02, "{share}");
        for s in 26..=40 {
            share = window.share(at(s), delivered, lost);
            delivered += 1000;
        }
        assert_eq!(share, 0.0);
        assert!(window.marks.len() <= 12);
    }

    #[test]
    fn nothing_sent_is_nothing_lost() {
        let mut window = LossWindow::default();
        assert_eq!(window.share(Time::ZERO, 0, 0), 0.0);
        assert_eq!(window.share(Time::from_nanos(1), 0, 0), 0.0);
    }
}
