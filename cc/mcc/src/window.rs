use std::collections::VecDeque;
use std::time::Duration;

use millrace_cc::Time;

use crate::Record;
use crate::record::Nanos;

/// How far back it goes: as far as BBR goes without a look at the smallest round trip.
const SPAN: Duration = Duration::from_secs(10);
/// How often the counts are noted.
const STEP: Duration = Duration::from_secs(1);

/// What a connection was like over the last [`SPAN`]. What was before may have been another path.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The one that goes on; apart from the others, because each record touches it and no other.
    open: Option<Step>,
    /// Those before it; the first is the oldest.
    steps: VecDeque<Step>,
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

/// The counts when it began, which only grow but for late packets, and what RTTs it has seen.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Time,
    delivered_bytes: u64,
    lost_bytes: u64,
    rtt: Option<(Nanos, Nanos)>,
}

impl Window {
    pub(crate) fn hear(&mut self, record: &Record) {
        let Record { now, delivered_bytes, lost_bytes, latest_rtt, .. } = *record;
        let begins = Step { at: now, delivered_bytes, lost_bytes, rtt: None };
        if let Some(over) = self.open.filter(|open| now - open.at >= STEP) {
            self.steps.push_back(over);
            self.open = Some(begins);
            // One step stays that began before the span, or the oldest that there is.
            while self.steps.get(1).is_some_and(|second| now - second.at >= SPAN) {
                self.steps.pop_front();
            }
        }
        let open = self.open.get_or_insert(begins);
        if !latest_rtt.is_zero() {
            let (least, most) = open.rtt.unwrap_or((latest_rtt, latest_rtt));
            open.rtt = Some((least.min(latest_rtt), most.max(latest_rtt)));
        }
    }

    /// Until `newest`, which has been heard.
    pub(crate) fn recent(&self, newest: &Record) -> Recent {
        let all = || self.steps.iter().chain(&self.open);
        let Some(first) = all().next() else { return Recent::default() };
        // A late packet takes its loss back: the counts can shrink by it.
        let lost = newest.lost_bytes.saturating_sub(first.lost_bytes);
        let delivered = newest.delivered_bytes.saturating_sub(first.delivered_bytes);
        let seconds = (newest.now - first.at).as_secs_f64();
        let of_all = |part: u64, all: f64| if all > 0.0 { part as f64 / all } else { 0.0 };
        let rtts = || all().filter_map(|step| step.rtt);
        Recent {
            loss: of_all(lost, (lost + delivered) as f64),
            delivery_mbps: of_all(delivered * 8, seconds * 1e6),
            min_rtt: rtts().map(|(least, _)| least).min().unwrap_or_default().get(),
            max_rtt: rtts().map(|(_, most)| most).max().unwrap_or_default().get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_cc::PathModel;

    use super::*;

    fn record(s: u64, delivered_bytes: u64, lost_bytes: u64, rtt_ms: u64) -> Record {
        let at = Time::from_nanos(s * 1_000_000_000);
        let latest_rtt = Duration::from_millis(rtt_ms).into();
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
        let mut recent = Recent::default();
        let mut hear = |record: Record| {
            window.hear(&record);
            window.recent(&record)
        };
        // A tenth is lost for 20 s, then nothing for 5 s, then nothing for 10 more.
        for s in 0..=20 {
            recent = hear(record(s, delivered, lost, 40 + s));
            (delivered, lost) = (delivered + 900_000, lost + 100_000);
        }
        assert!((recent.loss - 0.1).abs() < 1e-9, "{recent:?}");
        assert!((recent.delivery_mbps - 7.2).abs() < 1e-9, "{recent:?}");
        let ms = Duration::from_millis;
        assert_eq!((recent.min_rtt, recent.max_rtt), (ms(50), ms(60)));
        for s in 21..=25 {
            recent = hear(record(s, delivered, lost, 100));
            delivered += 1_000_000;
        }
        assert!((recent.loss - 0.06).abs() < 0.02, "{recent:?}");
        assert_eq!((recent.min_rtt, recent.max_rtt), (ms(55), ms(100)));
        for s in 26..=40 {
            recent = hear(record(s, delivered, lost, 100));
            delivered += 1_000_000;
        }
        assert_eq!(recent.loss, 0.0);
        assert!(window.steps.len() <= 12);
    }

    #[test]
    fn of_nothing_it_says_nothing() {
        let mut window = Window::default();
        let nothing = record(0, 0, 0, 0);
        assert_eq!(window.recent(&nothing), Recent::default());
        window.hear(&nothing);
        assert_eq!(window.recent(&nothing), Recent::default());
    }
}
