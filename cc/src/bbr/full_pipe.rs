use super::gain::Gain;
use crate::Bandwidth;

/// Growth of the delivery rate in a round that shows that the pipe is not full
/// (draft-cardwell-iccrg-bbr-congestion-control-00, Section 4.3.2.2).
const MIN_GROWTH: Gain = Gain::new(5, 4);
/// Rounds without such growth that show a full pipe (same section).
const FULL_PIPE_ROUNDS: u32 = 3;

/// Detects a full pipe: sending faster no longer makes the path deliver faster.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    baseline: Bandwidth,
    rounds: u32,
    full: bool,
}

impl FullPipe {
    /// Processes the rate of a round that the application did not limit.
    pub(super) fn on_round(&mut self, rate: Bandwidth) {
        if self.full {
            return;
        }
        if rate >= MIN_GROWTH.of_rate(self.baseline) {
            self.restart_at(rate);
            return;
        }
        self.rounds += 1;
        self.full = self.rounds >= FULL_PIPE_ROUNDS;
    }

    /// Starts again from a rate that is already reached.
    pub(super) fn restart_at(&mut self, rate: Bandwidth) {
        *self = Self { baseline: rate, rounds: 0, full: false };
    }

    /// Resets the baseline: the next rate counts as growth. Rounds and verdict stay.
    pub(super) fn forget_baseline(&mut self) {
        self.baseline = Bandwidth::ZERO;
    }

    /// Resets baseline and rounds. The verdict stays.
    pub(super) fn forget_rounds(&mut self) {
        self.baseline = Bandwidth::ZERO;
        self.rounds = 0;
    }

    pub(super) fn set_full(&mut self) {
        self.full = true;
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_rounds_without_a_quarter_more_are_a_full_pipe() {
        let mut pipe = FullPipe::default();
        for mbps in [1.0, 2.0, 4.0, 4.9, 4.99, 5.0, 6.0, 6.2] {
            pipe.on_round(Bandwidth::from_mbps(mbps));
            assert!(!pipe.is_full(), "{mbps}");
        }
        pipe.on_round(Bandwidth::from_mbps(6.2));
        assert!(pipe.is_full());
        pipe.on_round(Bandwidth::from_mbps(60.0));
        assert!(pipe.is_full(), "for good");
        pipe.restart_at(Bandwidth::from_mbps(60.0));
        assert!(!pipe.is_full());
    }
}
