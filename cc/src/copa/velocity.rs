/// Rounds in one direction before velocity doubles (Section 2.1).
const MIN_ROUNDS_TO_DOUBLE: u32 = 3;

/// v: speed of the window's movement (Section 2.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Velocity {
    value: f64,
    up: bool,
    /// Rounds in which the window has moved in this direction.
    rounds: u32,
    /// The window at the beginning of the round, in packets.
    window_before: f64,
}

impl Default for Velocity {
    fn default() -> Self {
        Self { value: 1.0, up: true, rounds: 0, window_before: 0.0 }
    }
}

impl Velocity {
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Resets the velocity to 1, at a window of `packets` packets.
    pub(super) fn reset(&mut self, packets: f64) {
        *self = Self { up: self.up, window_before: packets, ..Self::default() };
    }

    /// A round ended with a window of `packets` packets. The velocity is at most `limit`, with which the
    /// window doubles in a round: feedback does not support growth faster than slow start.
    pub(super) fn on_round(&mut self, packets: f64, limit: f64) {
        let up = packets > self.window_before;
        let same = up == self.up;
        self.window_before = packets;
        self.up = up;
        self.rounds = if same { self.rounds.saturating_add(1) } else { 1 };
        self.value = match same {
            true if self.rounds >= MIN_ROUNDS_TO_DOUBLE => (2.0 * self.value).min(limit).max(1.0),
            true => self.value,
            false => 1.0,
        };
    }

    /// The velocity for a step in that direction. It is reset immediately when the direction changes, and not
    /// at the end of the round, as in the implementations of the paper's authors (`ccp_copa`) and mvfst.
    pub(super) fn towards(&mut self, up: bool, packets: f64) -> f64 {
        if self.value > 1.0 && up != self.up {
            *self = Self { value: 1.0, up, rounds: 0, window_before: packets };
        }
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn velocity_doubles_after_three_rounds_in_one_direction() {
        let mut velocity = Velocity::default();
        velocity.reset(10.0);
        let values: Vec<_> = (1..=5)
            .map(|round| {
                velocity.on_round(10.0 + f64::from(round), 1e3);
                velocity.value()
            })
            .collect();
        assert_eq!(values, [1.0, 1.0, 2.0, 4.0, 8.0]);
        velocity.on_round(12.0, 1e3);
        assert_eq!(velocity.value(), 1.0, "the other way");
        let values: Vec<_> = (1..=3)
            .map(|round| {
                velocity.on_round(12.0 - f64::from(round), 1e3);
                velocity.value()
            })
            .collect();
        assert_eq!(values, [1.0, 2.0, 4.0]);
    }

    #[test]
    fn velocity_is_reset_immediately_when_the_target_is_passed() {
        let mut velocity = Velocity::default();
        for round in 1..=6 {
            velocity.on_round(f64::from(round), 8.0);
        }
        assert_eq!(velocity.towards(true, 6.0), 8.0, "limited");
        assert_eq!(velocity.towards(false, 6.0), 1.0);
        assert_eq!(velocity.towards(true, 6.0), 1.0);
    }
}
