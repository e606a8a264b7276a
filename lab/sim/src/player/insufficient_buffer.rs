use super::rung_choice::RungChoice;

/// Segments at the start for which the rule does not judge (dash.js 5.2.1, `core/Settings.js`,
/// `insufficientBufferRule.parameters.segmentIgnoreCount`).
const IGNORED_SEGMENTS: u32 = 2;
/// Share of the throughput that is counted on (`throughputSafetyFactor` there).
const SAFETY_FACTOR: f64 = 0.7;

/// The rule that a segment must come before the buffer is empty (dash.js 5.2.1, `InsufficientBufferRule.js`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InsufficientBuffer {
    segments: u32,
}

impl InsufficientBuffer {
    pub(super) fn on_segment(&mut self) {
        self.segments = self.segments.saturating_add(1);
    }

    /// The rung that is not to be exceeded.
    pub(super) fn limit(&self, choice: &RungChoice<'_>, is_empty: bool) -> Option<usize> {
        if self.segments < IGNORED_SEGMENTS {
            return None;
        }
        if is_empty {
            return Some(0);
        }
        let safe_kbps = choice.estimate.average_kbps()? * SAFETY_FACTOR;
        let kbps = safe_kbps * choice.level_s / choice.ladder.segment_s();
        (kbps > 0.0).then(|| choice.ladder.best_within(kbps))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ladder::BitrateLadder;
    use super::super::throughput::ThroughputEstimate;
    use super::*;

    #[test]
    fn the_buffer_bounds_the_rung_from_the_third_segment_on() {
        let ladder = BitrateLadder::recorded();
        let mut estimate = ThroughputEstimate::default();
        estimate.add(125_000, 1000);
        let at = |level_s| RungChoice {
            now_s: 9.0,
            level_s,
            current: 4,
            ladder: &ladder,
            estimate: &estimate,
        };
        let mut rule = InsufficientBuffer::default();
        rule.on_segment();
        assert_eq!(rule.limit(&at(1.0), false), None);
        rule.on_segment();
        // 1000 kbit/s x 0.7 x 1 s = 700; at 4 s 2800; at 0.5 s 350.
        assert_eq!(
            [1.0, 4.0, 0.5].map(|level_s| rule.limit(&at(level_s), false)),
            [Some(1), Some(3), Some(0)]
        );
        assert_eq!(rule.limit(&at(4.0), true), Some(0));
    }
}
