/// Rounds without a nearly empty queue that show a flow which fills buffers: Copa's own
/// oscillation empties the queue every five (Section 2.2).
const ROUNDS_TO_EMPTY: u32 = 5;
/// delta is not less than this: 1/delta packets of queue are enough for any buffer.
const LEAST_DELTA: f64 = 1e-4;

/// How much queue the flow strives for: default or TCP-competitive mode (Section 2.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    default_delta: f64,
    may_compete: bool,
    delta: f64,
    competitive: bool,
    rounds_since_empty: u32,
}

impl Mode {
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

    /// What the queue did meanwhile is not known.
    pub(super) fn on_idle_end(&mut self) {
        self.rounds_since_empty = 0;
    }

    /// Additive increase of 1/delta, by one a round without loss.
    pub(super) fn on_round(&mut self, lost: bool) {
        self.rounds_since_empty = self.rounds_since_empty.saturating_add(1);
        if self.competitive && !lost {
            self.delta = (self.delta / (1.0 + self.delta)).max(LEAST_DELTA);
        }
        self.competitive = self.may_compete && self.rounds_since_empty > ROUNDS_TO_EMPTY;
    }

    /// Multiplicative decrease of 1/delta, once for all that was in flight; never to less queue
    /// than in default mode.
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
        let mut mode = Mode::new(0.5, true);
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
    fn it_can_be_turned_off() {
        let mut mode = Mode::new(0.5, false);
        (0..100).for_each(|_| mode.on_round(false));
        assert_eq!((mode.name(), mode.delta()), ("default", 0.5));
    }
}
