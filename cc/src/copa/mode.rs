/// Rounds without a nearly empty queue after which another flow fills the buffer: Copa's own
/// oscillation empties the queue every five rounds (Section 2.2).
const MAX_ROUNDS_TO_EMPTY: u32 = 5;
/// Least delta: 10,000 packets of queue are enough for any buffer.
const MIN_DELTA: f64 = 1e-4;

/// Target queue of the flow: default or TCP-competitive mode (Section 2.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct CopaMode {
    default_delta: f64,
    may_compete: bool,
    delta: f64,
    competitive: bool,
    rounds_since_empty: u32,
}

impl CopaMode {
    pub(super) fn new(delta: f64, may_compete: bool) -> Self {
        Self { default_delta: delta, may_compete, delta, competitive: false, rounds_since_empty: 0 }
    }

    pub(super) fn delta(&self) -> f64 {
        self.delta
    }

    pub(super) fn name(&self) -> &'static str {
        if self.competitive { "competitive" } else { "default" }
    }

    pub(super) fn on_empty_queue(&mut self) {
        self.rounds_since_empty = 0;
        self.competitive = false;
        self.delta = self.default_delta;
    }

    /// The sender was idle: the queue during that time is unknown.
    pub(super) fn on_idle_end(&mut self) {
        self.rounds_since_empty = 0;
    }

    /// Additive increase of 1/delta by one per round without loss.
    pub(super) fn on_round(&mut self, lost: bool) {
        self.rounds_since_empty = self.rounds_since_empty.saturating_add(1);
        if self.competitive && !lost {
            self.delta = (self.delta / (1.0 + self.delta)).max(MIN_DELTA);
        }
        self.competitive = self.may_compete && self.rounds_since_empty > MAX_ROUNDS_TO_EMPTY;
    }

    /// Multiplicative decrease of 1/delta, once per flight; never to less queue than in default mode.
    pub(super) fn on_loss(&mut self) {
        if self.competitive {
            self.delta = (2.0 * self.delta).min(self.default_delta);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_never_empties_brings_competitive_mode() {
        let mut mode = CopaMode::new(0.5, true);
        (0..5).for_each(|_| mode.on_round(false));
        assert_eq!((mode.name(), mode.delta()), ("default", 0.5));
        mode.on_round(false);
        assert_eq!((mode.name(), mode.delta()), ("competitive", 0.5));
        // 1/delta: 2, 3, 4, 5; then halved.
        (0..3).for_each(|_| mode.on_round(false));
        assert!((mode.delta() - 0.2).abs() < 1e-12);
        mode.on_loss();
        mode.on_round(true);
        assert!((mode.delta() - 0.4).abs() < 1e-12);
        mode.on_loss();
        assert_eq!(mode.delta(), 0.5, "no more than in default mode");
        mode.on_empty_queue();
        assert_eq!((mode.name(), mode.delta()), ("default", 0.5));
    }

    #[test]
    fn competitive_mode_can_be_disabled() {
        let mut mode = CopaMode::new(0.5, false);
        (0..100).for_each(|_| mode.on_round(false));
        assert_eq!((mode.name(), mode.delta()), ("default", 0.5));
    }
}
