use std::time::Duration;

use super::abandonment::Abandonment;
use super::bola::BolaRule;
use super::insufficient_buffer::InsufficientBuffer;
use super::rung_choice::RungChoice;
use super::setup::{BitrateStrategy, PlayerSetup};
use super::switch_history::SwitchHistory;

/// Level above which the mix of rules goes to BOLA; below half of it, back to the throughput (dash.js 5.2.1,
/// `core/Settings.js`, `abr.hybridSwitchBufferTime`).
const BOLA_FROM_S: f64 = 12.0;
/// At most so much counts as an empty buffer (`buffer.stallThreshold` there).
const EMPTY_S: f64 = 0.3;

/// The rules of a player: which rung is next (dash.js 5.2.1, `AbrController.js` and `ABRRulesCollection.js`). Of several
/// rules the lowest rung counts.
#[derive(Clone, Debug)]
pub(super) struct RungSelector {
    strategy: BitrateStrategy,
    buffer_target_s: f64,
    uses_bola: bool,
    bola: Option<BolaRule>,
    insufficient_buffer: InsufficientBuffer,
    history: SwitchHistory,
    pub abandonment: Abandonment,
}

impl RungSelector {
    pub(super) fn new(setup: &PlayerSetup) -> Self {
        Self {
            strategy: setup.strategy,
            buffer_target_s: setup.buffer_target.as_secs_f64(),
            uses_bola: setup.strategy == BitrateStrategy::Bola,
            bola: None,
            insufficient_buffer: InsufficientBuffer::default(),
            history: SwitchHistory::default(),
            abandonment: Abandonment::default(),
        }
    }

    fn is_dynamic(&self) -> bool {
        self.strategy == BitrateStrategy::Dynamic
    }

    /// The rung to go to, if it is another one, and how long the next request is to be delayed.
    pub(super) fn choose(&mut self, choice: &RungChoice<'_>) -> (Option<usize>, Duration) {
        let (main, delay) = if self.uses_bola {
            self.choose_by_level(choice)
        } else {
            (self.choose_by_throughput(choice), Duration::ZERO)
        };
        let rungs = [main].into_iter().chain(self.limits(choice));
        let Some(rung) = rungs.flatten().min() else { return (None, delay) };
        self.history.push(choice.current, rung);
        let is_blocked = self.abandonment.blocks_higher_rungs(choice.now_s);
        let is_other = rung < choice.current || (rung > choice.current && !is_blocked);
        if is_other {
            self.on_rung(rung);
        }
        (is_other.then_some(rung), delay)
    }

    /// BOLA's choice, and the delay that it wants.
    fn choose_by_level(&mut self, choice: &RungChoice<'_>) -> (Option<usize>, Duration) {
        if self.bola.is_none() {
            self.bola = BolaRule::new(choice.ladder, self.buffer_target_s);
        }
        let Some(bola) = &mut self.bola else { return (None, Duration::ZERO) };
        let (rung, delay_s) = bola.choose(choice);
        (rung, Duration::from_secs_f64(delay_s))
    }

    fn choose_by_throughput(&self, choice: &RungChoice<'_>) -> Option<usize> {
        if choice.level_s <= EMPTY_S || self.abandonment.blocks_higher_rungs(choice.now_s) {
            return None;
        }
        choice.estimate.safe_kbps().map(|kbps| choice.ladder.best_within(kbps))
    }

    /// The highest rungs that the other rules of the mix allow.
    fn limits(&self, choice: &RungChoice<'_>) -> [Option<usize>; 2] {
        if !self.is_dynamic() {
            return [None, None];
        }
        let is_empty = choice.level_s <= EMPTY_S;
        [self.insufficient_buffer.limit(choice, is_empty), self.history.limit()]
    }

    fn on_rung(&mut self, rung: usize) {
        if let Some(bola) = &mut self.bola {
            bola.on_rung(rung);
        }
    }

    /// The buffer has this much media: called before and after each change.
    pub(super) fn on_level(&mut self, level_s: f64) {
        if self.is_dynamic() {
            let from_s = if self.uses_bola { BOLA_FROM_S / 2.0 } else { BOLA_FROM_S };
            self.uses_bola = level_s >= from_s;
        }
        if let Some(bola) = self.bola.as_mut().filter(|_| level_s <= EMPTY_S) {
            bola.on_empty();
        }
    }

    /// A segment has come, requested and finished at these times; the buffer has `level_s` without it.
    pub(super) fn on_segment(&mut self, index: u64, rung: usize, times_s: [f64; 2], level_s: f64) {
        self.insufficient_buffer.on_segment();
        if let Some(bola) = &mut self.bola {
            bola.on_segment(index, rung, times_s, level_s);
        }
    }

    /// The rule gave the request for a segment up in favour of `rung`.
    pub(super) fn on_abandoned(&mut self, index: u64, rung: usize, now_s: f64, level_s: f64) {
        self.abandonment.begin(index, now_s);
        self.history.clear();
        self.on_rung(rung);
        if let Some(bola) = &mut self.bola {
            bola.on_abandoned(now_s, level_s);
        }
    }

    /// Whether requests may be given up at all.
    pub(super) fn may_abandon(&self) -> bool {
        self.is_dynamic()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::ladder::BitrateLadder;
    use super::super::throughput::ThroughputEstimate;
    use super::*;

    fn selector(strategy: BitrateStrategy) -> RungSelector {
        RungSelector::new(&PlayerSetup {
            strategy,
            ..PlayerSetup::new(Arc::new(BitrateLadder::recorded()))
        })
    }

    fn chosen(
        selector: &mut RungSelector,
        kbps: u64,
        level_s: f64,
        current: usize,
    ) -> Option<usize> {
        let ladder = BitrateLadder::recorded();
        let mut estimate = ThroughputEstimate::default();
        if kbps > 0 {
            estimate.add(kbps * 125, 1000);
        }
        let choice =
            RungChoice { now_s: 20.0, level_s, current, ladder: &ladder, estimate: &estimate };
        selector.choose(&choice).0
    }

    #[test]
    fn the_throughput_rule_takes_nine_tenths_of_the_estimate() {
        let mut selector = selector(BitrateStrategy::Throughput);
        assert_eq!(chosen(&mut selector, 0, 5.0, 1), None, "nothing is known");
        // 0.9 x 1744 = 1569.6, 0.9 x 1745 = 1570.5.
        assert_eq!(chosen(&mut selector, 1744, 5.0, 0), Some(1));
        assert_eq!(chosen(&mut selector, 1745, 5.0, 0), Some(2));
        assert_eq!(chosen(&mut selector, 1745, 5.0, 2), None, "the same");
        assert_eq!(chosen(&mut selector, 1745, 0.2, 0), None, "the buffer is empty");
    }

    #[test]
    fn the_mix_goes_to_bola_at_12_s_and_back_below_6_s() {
        let mut selector = selector(BitrateStrategy::Dynamic);
        let mut used = Vec::new();
        for level_s in [1.0, 11.9, 12.0, 6.0, 5.9, 11.9] {
            selector.on_level(level_s);
            used.push(selector.uses_bola);
        }
        assert_eq!(used, [false, false, true, true, false, false]);
    }

    #[test]
    fn of_the_rules_of_the_mix_the_lowest_rung_counts() {
        let mut selector = selector(BitrateStrategy::Dynamic);
        assert_eq!(
            chosen(&mut selector, 4000, 1.0, 1),
            Some(4),
            "the first two segments are not judged"
        );
        for index in 0..2 {
            selector.on_segment(index, 1, [0.0, 1.0], 1.0);
        }
        // 4000 x 0.7 x 1 s = 2800.
        assert_eq!(chosen(&mut selector, 4000, 1.0, 1), Some(3));
    }

    #[test]
    fn no_higher_rung_for_ten_seconds_after_a_request_was_given_up() {
        let mut selector = selector(BitrateStrategy::Dynamic);
        selector.on_abandoned(7, 1, 10.5, 3.0);
        selector.on_segment(7, 1, [0.0, 1.0], 1.0);
        selector.on_segment(8, 1, [0.0, 1.0], 1.0);
        assert_eq!(chosen(&mut selector, 4000, 5.0, 1), None, "at 20 s");
        assert_eq!(chosen(&mut selector, 400, 1.0, 1), Some(0), "a lower one is allowed");
        selector.abandonment.begin(9, 10.0);
        assert_eq!(chosen(&mut selector, 4000, 5.0, 1), Some(4), "10 s later");
    }
}
