use std::collections::VecDeque;
use std::time::Duration;

use millrace_cc::Time;

use crate::ConnectionRecord;
use crate::record::Nanos;

/// Length of the window: the interval after which BBR measures the smallest round trip again.
const WINDOW_LENGTH: Duration = Duration::from_secs(10);
/// Length of a step.
const STEP_LENGTH: Duration = Duration::from_secs(1);

/// State of a connection over the last [`WINDOW_LENGTH`]. Older state may belong to another path.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The current step, kept apart because each record changes only this step.
    open: Option<WindowStep>,
    /// Completed steps, the oldest first.
    steps: VecDeque<WindowStep>,
}

/// Summary of a [`Window`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    /// Share of bytes lost; zero before the first byte.
    pub(crate) loss: f64,
    /// Mean delivery rate, pauses included.
    pub(crate) delivery_mbps: f64,
    /// Smallest RTT; zero without a sample.
    pub(crate) min_rtt: Duration,
    /// Largest RTT; zero without a sample.
    pub(crate) max_rtt: Duration,
}

/// The counters when the step began, and the smallest and largest RTT in it. Late packets lower `lost_bytes`.
#[derive(Clone, Copy, Debug)]
struct WindowStep {
    at: Time,
    delivered_bytes: u64,
    lost_bytes: u64,
    rtt: Option<(Nanos, Nanos)>,
}

impl Window {
    pub(crate) fn ingest(&mut self, record: &ConnectionRecord) {
        let ConnectionRecord { now, delivered_bytes, lost_bytes, latest_rtt, .. } = *record;
        let begins = WindowStep { at: now, delivered_bytes, lost_bytes, rtt: None };
        if let Some(over) = self.open.filter(|open| now - open.at >= STEP_LENGTH) {
            self.steps.push_back(over);
            self.open = Some(begins);
            // Keeps one step that began before the span.
            while self.steps.get(1).is_some_and(|second| now - second.at >= WINDOW_LENGTH) {
                self.steps.pop_front();
            }
        }
        let open = self.open.get_or_insert(begins);
        if !latest_rtt.is_zero() {
            let (least, most) = open.rtt.unwrap_or((latest_rtt, latest_rtt));
            open.rtt = Some((least.min(latest_rtt), most.max(latest_rtt)));
        }
    }

    /// Summary up to `newest`, the record ingested last.
    pub(crate) fn recent(&self, newest: &ConnectionRecord) -> Recent {
        let all = || self.steps.iter().chain(&self.open);
        let Some(first) = all().next() else { return Recent::default() };
        // A late packet reverts its loss, so that the counters can shrink.
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

    fn record(s: u64, delivered_bytes: u64, lost_bytes: u64, rtt_ms: u64) -> ConnectionRecord {
        let at = Time::from_nanos(s * 1_000_000_000);
        let latest_rtt = Duration::from_millis(rtt_ms).into();
        ConnectionRecord {
            latest_rtt,
            delivered_bytes,
            lost_bytes,
            ..ConnectionRecord::new(1, at, &PathModel::default())
        }
    }

    #[test]
    fn window_covers_last_ten_seconds() {
        let mut window = Window::default();
        let (mut delivered, mut lost) = (0, 0);
        let mut recent = Recent::default();
        let mut ingest = |record: ConnectionRecord| {
            window.ingest(&record);
            window.recent(&record)
        };
        // 10 % loss for 20 s, no loss for 5 s, no loss for 15 s.
        for s in 0..=20 {
            recent = ingest(record(s, delivered, lost, 40 + s));
            (delivered, lost) = (delivered + 900_000, lost + 100_000);
        }
        assert!((recent.loss - 0.1).abs() < 1e-9, "{recent:?}");
        assert!((recent.delivery_mbps - 7.2).abs() < 1e-9, "{recent:?}");
        let ms = Duration::from_millis;
        assert_eq!((recent.min_rtt, recent.max_rtt), (ms(50), ms(60)));
        for s in 21..=25 {
            recent = ingest(record(s, delivered, lost, 100));
            delivered += 1_000_000;
        }
        assert!((recent.loss - 0.06).abs() < 0.02, "{recent:?}");
        assert_eq!((recent.min_rtt, recent.max_rtt), (ms(55), ms(100)));
        for s in 26..=40 {
            recent = ingest(record(s, delivered, lost, 100));
            delivered += 1_000_000;
        }
        assert_eq!(recent.loss, 0.0);
        assert!(window.steps.len() <= 12);
    }

    #[test]
    fn window_without_samples_is_default() {
        let mut window = Window::default();
        let nothing = record(0, 0, 0, 0);
        assert_eq!(window.recent(&nothing), Recent::default());
        window.ingest(&nothing);
        assert_eq!(window.recent(&nothing), Recent::default());
    }
}
