//! Segments of video-like viewers: when each was due, and when it was complete.

use std::time::{Duration, Instant};

use super::record::SegmentFigures;

/// A viewer asks for a segment so often, and needs it by the time of its next request.
pub const SEGMENT_INTERVAL: Duration = Duration::from_secs(1);

/// One segment.
#[derive(Debug, Clone, Copy)]
pub struct SegmentTime {
    /// When its request was due.
    pub due: Instant,
    /// Time from then to its last byte; `None` if that did not come.
    pub took: Option<Duration>,
    /// How late the request was sent.
    pub request_delay: Duration,
}

/// Bytes of a segment at this rate.
pub fn segment_bytes(mbps: f64) -> u64 {
    (mbps * 1e6 / 8.0 * SEGMENT_INTERVAL.as_secs_f64()).round() as u64
}

/// Figures of the segments whose successor fell due between these times; `None` without such a segment.
pub fn figures(segments: &[SegmentTime], from: Instant, to: Instant) -> Option<SegmentFigures> {
    let judged = segments.iter().filter(|segment| {
        let needed = segment.due + SEGMENT_INTERVAL;
        from < needed && needed <= to
    });
    let judged: Vec<&SegmentTime> = judged.collect();
    let is_late = |segment: &&&SegmentTime| segment.took.is_none_or(|it| it > SEGMENT_INTERVAL);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    (!judged.is_empty()).then(|| SegmentFigures {
        segments: judged.len(),
        late: judged.iter().filter(is_late).count(),
        p99_ms: percentile(judged.iter().filter_map(|it| it.took.map(ms)), 0.99),
        request_delay_p99_ms: percentile(judged.iter().map(|it| ms(it.request_delay)), 0.99),
    })
}

/// The smallest value that at least this part of all values does not exceed; 0 of none.
fn percentile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * part).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(due: Instant, took_ms: Option<u64>) -> SegmentTime {
        SegmentTime {
            due,
            took: took_ms.map(Duration::from_millis),
            request_delay: Duration::from_millis(2),
        }
    }

    #[test]
    fn two_megabits_are_a_quarter_of_a_megabyte_a_second() {
        assert_eq!(segment_bytes(2.0), 250_000);
    }

    #[test]
    fn only_segments_that_were_needed_in_the_interval_are_judged() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let segments = [
            // Needed at 1 s, the start of the interval, which does not have it.
            segment(at(0), None),
            segment(at(500), Some(900)),
            segment(at(600), Some(1500)),
            segment(at(700), None),
            // Needed after its end.
            segment(at(2001), None),
        ];
        let figures = figures(&segments, at(1000), at(3000)).unwrap();
        assert_eq!((figures.segments, figures.late), (3, 2));
        assert_eq!(figures.p99_ms, 1500.0);
        assert_eq!(figures.request_delay_p99_ms, 2.0);
    }

    #[test]
    fn without_a_segment_there_are_no_figures() {
        assert_eq!(figures(&[], Instant::now(), Instant::now()), None);
    }

    #[test]
    fn percentile_is_a_value_that_occurs() {
        let values = || (1..=200).map(f64::from);
        assert_eq!(percentile(values(), 0.99), 198.0);
        assert_eq!(percentile(values(), 0.5), 100.0);
        assert_eq!(percentile([7.0].into_iter(), 0.99), 7.0);
    }
}
