//! Drops of the full queue over the worst window of a run.

use super::record::{RunRecord, SAMPLES_PER_SECOND};

/// Least length of a window, in samples. A link that slows down makes any sender lose for a moment; what is lost over
/// this long is lost by the sender's rules.
const MIN_WINDOW: usize = 30 * SAMPLES_PER_SECOND;
/// Least length of a window in round trips: a sender hears of its losses after one.
const MIN_WINDOW_RTTS: f64 = 3.0;

/// Largest share of the packets sent in a window that the full queue dropped. A window ends at each sample, and is 30 s
/// or three round trips long, whichever is more. `None` of a run that is shorter or sends nothing.
pub(super) fn worst_drop_rate(record: &RunRecord) -> Option<f64> {
    let mut sums = vec![(0, 0)];
    for counts in &record.packets {
        let (sent, dropped) = sums[sums.len() - 1];
        sums.push((sent + counts.sent, dropped + counts.dropped));
    }
    let mut rtt_s = 0.0_f64;
    let mut worst = None;
    for end in 1..sums.len() {
        let samples = record.flows.iter().filter_map(|flow| flow.rtt_s.get(end - 1).copied()?);
        if let Some(longest) = samples.reduce(f64::max) {
            rtt_s = longest;
        }
        let rtts = (MIN_WINDOW_RTTS * rtt_s * SAMPLES_PER_SECOND as f64).ceil() as usize;
        let Some(start) = end.checked_sub(rtts.max(MIN_WINDOW)) else { continue };
        let sent = sums[end].0 - sums[start].0;
        let dropped = sums[end].1 - sums[start].1;
        if sent > 0 {
            let rate = dropped as f64 / sent as f64;
            worst = Some(worst.map_or(rate, |worst: f64| worst.max(rate)));
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::super::record::{FlowRecord, SentAndDropped};
    use super::*;

    /// Ten packets a sample, of which some are dropped, with round trips of `rtt_s`.
    fn record(dropped: impl Iterator<Item = u64>, rtt_s: f64) -> RunRecord {
        let packets: Vec<_> = dropped.map(|dropped| SentAndDropped { sent: 10, dropped }).collect();
        let flow = FlowRecord { rtt_s: vec![Some(rtt_s); packets.len()], ..FlowRecord::default() };
        RunRecord { packets, flows: vec![flow], ..RunRecord::default() }
    }

    #[test]
    fn the_worst_thirty_seconds_count() {
        // All packets of ten of a hundred seconds are lost.
        let dropped = || (0..1000).map(|at| if (400..500).contains(&at) { 10 } else { 0 });
        let worst = worst_drop_rate(&record(dropped(), 0.04)).expect("a window");
        assert!((worst - 1.0 / 3.0).abs() < 1e-9, "{worst}");
        let long = worst_drop_rate(&record(dropped(), 20.0)).expect("a window of a minute");
        assert!((long - 1.0 / 6.0).abs() < 1e-9, "{long}");
    }

    #[test]
    fn a_run_that_is_shorter_than_a_window_has_no_figure() {
        assert_eq!(worst_drop_rate(&record((0..299).map(|_| 1), 0.04)), None);
        assert_eq!(worst_drop_rate(&record((0..300).map(|_| 1), 0.04)), Some(0.1));
        assert_eq!(worst_drop_rate(&record((0..300).map(|_| 1), 11.0)), None);
    }
}
