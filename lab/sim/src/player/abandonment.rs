use std::collections::BTreeSet;

use super::ladder::BitrateLadder;

/// Progress events before a download is judged (dash.js 5.2.1, `core/Settings.js`,
/// `abandonRequestsRule.parameters.minThroughputSamplesThreshold`).
const MIN_EVENTS: u32 = 6;
/// Time since the first byte before that (`minSegmentDownloadTimeThresholdInMs` there).
const MIN_DOWNLOAD_MS: u64 = 500;
/// Lengths of a segment that its download may take (`abandonDurationMultiplier` there).
const MAX_SEGMENT_LENGTHS: f64 = 1.8;
/// No higher rung for so long afterwards (`streaming.abandonLoadTimeout` there).
const BLOCKED_S: f64 = 10.0;

/// A download of a segment, at a progress event.
#[derive(Clone, Copy, Debug)]
pub(super) struct DownloadProgress {
    pub index: u64,
    pub rung: usize,
    pub events: u32,
    /// Of the body.
    pub loaded_bytes: u64,
    pub total_bytes: u64,
    /// From the first event to this one: time, and bytes in it.
    pub since_first_ms: u64,
    pub since_first_bytes: u64,
}

/// Requests that were given up because they would have taken too long (dash.js 5.2.1, `AbandonRequestsRule.js`).
#[derive(Clone, Debug, Default)]
pub(super) struct Abandonment {
    /// Each segment once: at most as many as the session has.
    segments: BTreeSet<u64>,
    blocked_until_s: Option<f64>,
}

impl Abandonment {
    /// The rung at which the segment should rather be fetched.
    pub(super) fn rung_instead(
        &self,
        ladder: &BitrateLadder,
        progress: &DownloadProgress,
    ) -> Option<usize> {
        let DownloadProgress { index, rung, events, loaded_bytes, total_bytes, .. } = *progress;
        let is_judged = events >= MIN_EVENTS && progress.since_first_ms > MIN_DOWNLOAD_MS;
        if !is_judged || loaded_bytes >= total_bytes || self.segments.contains(&index) || rung == 0
        {
            return None;
        }
        let kbps =
            (8.0 * progress.since_first_bytes as f64 / progress.since_first_ms as f64).round();
        let expected_s = total_bytes as f64 * 8.0 / kbps / 1000.0;
        if expected_s < ladder.segment_s() * MAX_SEGMENT_LENGTHS {
            return None;
        }
        let instead = ladder.best_within(kbps);
        let instead_bytes =
            total_bytes as f64 * ladder.kbps(instead) as f64 / ladder.kbps(rung) as f64;
        ((total_bytes - loaded_bytes) as f64 > instead_bytes).then_some(instead)
    }

    /// A request was given up.
    pub(super) fn begin(&mut self, index: u64, now_s: f64) {
        self.segments.insert(index);
        self.blocked_until_s = Some(now_s + BLOCKED_S);
    }

    pub(super) fn blocks_higher_rungs(&self, now_s: f64) -> bool {
        self.blocked_until_s.is_some_and(|until_s| now_s < until_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of 450,000 bytes at 3600 kbit/s, 100,000 bytes of which came in a second: 800 kbit/s, 4.5 s in all.
    const SLOW: DownloadProgress = DownloadProgress {
        index: 5,
        rung: 4,
        events: 6,
        loaded_bytes: 110_000,
        total_bytes: 450_000,
        since_first_ms: 1000,
        since_first_bytes: 100_000,
    };

    fn instead(progress: DownloadProgress) -> Option<usize> {
        Abandonment::default().rung_instead(&BitrateLadder::recorded(), &progress)
    }

    #[test]
    fn a_slow_download_is_given_up_for_the_rung_that_its_rate_carries() {
        // 340,000 bytes are missing, at 620 kbit/s the segment has 450,000 x 620 / 3600 = 77,500.
        assert_eq!(instead(SLOW), Some(1));
    }

    #[test]
    fn it_goes_on_when_it_is_early_fast_lowest_nearly_done_or_was_given_up_before() {
        let others = [
            DownloadProgress { events: 5, ..SLOW },
            DownloadProgress { since_first_ms: 500, since_first_bytes: 50_000, ..SLOW },
            DownloadProgress { rung: 0, ..SLOW },
            // 2000 kbit/s: 1.8 s.
            DownloadProgress { since_first_bytes: 250_125, ..SLOW },
            DownloadProgress { loaded_bytes: 380_000, ..SLOW },
        ];
        for progress in others {
            assert_eq!(instead(progress), None, "{progress:?}");
        }
        let mut abandonment = Abandonment::default();
        abandonment.begin(5, 1.0);
        assert_eq!(abandonment.rung_instead(&BitrateLadder::recorded(), &SLOW), None);
        assert!(abandonment.blocks_higher_rungs(10.9) && !abandonment.blocks_higher_rungs(11.0));
    }
}
