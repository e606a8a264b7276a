use std::collections::VecDeque;
use std::time::Duration;

use millrace_cc::Time;

use crate::Record;

/// How far back it goes: as far as BBR goes without a look at the smallest round trip.
const SPAN: Duration = Duration::from_secs(10);
/// How often the counts are noted.
const STEP: Duration = Duration::from_secs(1);

/// What a connection was like over the last [`SPAN`]. What was before may have been another path.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The first is the oldest.
    steps: VecDeque<Step>,
    newest: Counts,
}

/// See [`Window`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    /// Share of bytes lost; zero before anything was sent.
    pub(crate) loss: f64,
    /// Mean delivery rate, pauses included.
    pub(crate) delivery_mbps: f64,
    /// Smallest and largest RTT; zero where there was no sample.
    pub(crate) min_rtt: Duration,
    pub(crate) max_rtt: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// When it began.
    first: Counts,
    rtt: Option<(Duration, Duration)>,
}

/// Counts that only grow, but for late packets.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    at: Time,
    delivered_bytes: u64,
    lost_bytes: u64,
}

impl Window {
    pub(crate) fn hear(&mut self, record: &Record) {
        let Record { now, delivered_bytes, lost_bytes, latest_rtt, .. } = *record;
        self.newest = Counts { at: now, delivered_bytes, lost_bytes };
        if self.steps.back().is_none_or(|last| now - last.first.at >= STEP) {
            self.steps.push_back(Step { first: self.newest, rtt: None });
        }
        // One step stays that began before the span, or the oldest that there is.
        while self.steps.get(1).is_some_and(|second| now - second.first.at >= SPAN) {
            self.steps.pop_front();
        }
        if let Some(step) = self.steps.back_mut().filter(|_| !latest_rtt.is_zero()) {
            let (least, most) = step.rtt.unwrap_or((latest_rtt, latest_rtt));
            step.rtt = Some((least.min(latest_rtt), most.max(latest_rtt)));
        }
    }

    pub(crate) fn recent(&self) -> Recent {
        let (Some(oldest), newest) = (self.steps.front(), &self.newest) else {
            return Recent::default();
        };
        let first = &oldest.first;
        // A late packet takes its loss back: the counts can shrink by it.
        let lost = newest.lost_bytes.saturating_sub(first.lost_bytes);
        let delivered = newest.delivered_bytes.saturating_sub(first.delivered_bytes);
        let seconds = (newest.at - first.at).as_secs_f64();
        let of_all = |part: u64, all: f64| if all > 0.0 { part as f64 / all } else { 0.0 };
        let rtts = || self.steps.iter().filter_map(|step| step.rtt);
        Recent {
            loss: of_all(lost, (lost + delivered) as f64),
            delivery_mbps: of_all(delivered * 8, seconds * 1e6),
            min_rtt: rtts().map(|(least, _)| least).min().unwrap_or_default(),
            max_rtt: rtts().map(|(_, most)| most).max().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_cc::PathModel;

    use super::*;

    fn record(s: u64, delivered_bytes: u64, lost_bytes: u64, rtt_ms: u64) -> Record {
        let at = Time::from_nanos(s * 1_000_000_000);
        let latest_rtt = Duration::from_millis(rtt_ms);
        Record {
            latest_rtt,
            delivered_bytes,
            lost_bytes,
            ..Record::new(1, at, &PathModel::default())
        }
    }

    #[test]
    fn it_is_of_the_last_ten_seconds() {
        let mut window = Window::default();
        let (mut delivered, mut lost) = (0, 0);
        // A tenth is lost for 20 s, then nothing for 5 s, then nothing for 10 more.
        for s in 0..=20 {
            window.hear(&record(s, delivered, lost, 40 + s));
            (delivered, lost) = (delivered + 900_000, lost + 100_000);
        }
        let recent = window.recent();
        assert!((recent.loss - 0.1).abs() < 1e-9, "{recent:?}");
        assert!((recent.delivery_mbps - 7.2).abs() < 1e-9, "{recent:?}");
        let ms = Duration::from_millis;
        assert_eq!((recent.min_rtt, recent.max_rtt), (ms(50), ms(60)));
        for s in 21..=25 {
            window.hear(&record(s, delivered, lost, 100));
            delivered += 1_000_000;
        }
        let recent = window.recent();
        assert!((recent.loss - 0.06).abs() < 0.02, "{recent:?}");
        assert_eq!((recent.min_rtt, recent.max_rtt), (ms(55), ms(100)));
        for s in 26..=40 {
            window.hear(&record(s, delivered, lost, 100));
            delivered += 1_000_000;
        }
        assert_eq!(window.recent().loss, 0.0);
        assert!(window.steps.len() <= 12);
    }

    #[test]
    fn of_nothing_it_says_nothing() {
        let mut window = Window::default();
        assert_eq!(window.recent(), Recent::default());
        window.hear(&record(0, 0, 0, 0));
        assert_eq!(window.recent(), Recent::default());
    }
}
