use std::collections::VecDeque;

/// Choices that are remembered, and that are needed for a judgement (dash.js 5.2.1, `core/Settings.js`,
/// `switchHistoryRule.parameters.sampleSize`).
const SAMPLE_SIZE: usize = 8;
/// Drops for each other choice above which a rung is avoided (`switchPercentageThreshold` there).
const MAX_DROP_RATIO: f64 = 0.075;

/// The last choices of a player, and the rule that avoids rungs that it had to leave (dash.js 5.2.1,
/// `SwitchRequestHistory.js` and `SwitchHistoryRule.js`).
#[derive(Clone, Debug, Default)]
pub(super) struct SwitchHistory {
    /// The rung at the time of each choice, and whether the choice was a lower one.
    choices: VecDeque<(usize, bool)>,
}

impl SwitchHistory {
    pub(super) fn push(&mut self, current: usize, chosen: usize) {
        self.choices.push_back((current, chosen < current));
        if self.choices.len() > SAMPLE_SIZE {
            self.choices.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        self.choices.clear();
    }

    /// The rung that is not to be exceeded.
    pub(super) fn limit(&self) -> Option<usize> {
        let highest = self.choices.iter().map(|(rung, _)| *rung).max()?;
        let (mut drops, mut stays) = (0, 0);
        for rung in 0..=highest {
            let of_rung = self.choices.iter().filter(|choice| choice.0 == rung);
            let count = of_rung.clone().count();
            let own_drops = of_rung.filter(|choice| choice.1).count();
            drops += own_drops;
            stays += count - own_drops;
            // Only drops: the ratio is infinite.
            let is_unsteady = drops as f64 > MAX_DROP_RATIO * stays as f64;
            if count > 0 && drops + stays >= SAMPLE_SIZE && is_unsteady {
                return Some(if own_drops > 0 { rung.saturating_sub(1) } else { rung });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(choices: &[(usize, usize)]) -> SwitchHistory {
        let mut history = SwitchHistory::default();
        choices.iter().for_each(|(current, chosen)| history.push(*current, *chosen));
        history
    }

    #[test]
    fn a_rung_that_had_to_be_left_is_avoided_after_eight_choices() {
        let mut choices = vec![(2, 2); 6];
        choices.push((2, 1));
        assert_eq!(history(&choices).limit(), None, "seven choices only");
        choices.push((1, 2));
        // Up to rung 1 there is one choice; with rung 2 eight, 1 drop of 7 others: 0.14.
        assert_eq!(history(&choices).limit(), Some(1));
        assert_eq!(history(&[(2, 2); 8]).limit(), None, "no drop");
    }

    #[test]
    fn old_choices_are_forgotten() {
        let mut choices = vec![(3, 1)];
        choices.extend([(1, 1); 8]);
        assert_eq!(history(&choices).limit(), None);
        choices.truncate(8);
        // Rung 1 has seven choices; rung 3 makes it eight, with the drop its own.
        assert_eq!(history(&choices).limit(), Some(2));
        let mut cleared = history(&choices);
        cleared.clear();
        assert_eq!(cleared.limit(), None);
    }
}
