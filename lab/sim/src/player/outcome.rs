use std::time::Duration;

/// What a session that only stalls loses against one that never does (Pensieve, SIGCOMM 2017, Table 1: QoE_lin).
const STALL_WEIGHT_MBPS: f64 = 4.3;

/// What the viewer of a session saw, from the play request to its end. `docs/research/qoe.md` defines each figure; those
/// of a browser come from `player/src/qoe.ts`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayerOutcome {
    /// Length of the session.
    pub session: Duration,
    /// From the play request to the first frame; `None` when it never came.
    pub startup: Option<Duration>,
    /// Interruptions after that. A session that never played is one.
    pub stalls: u32,
    /// Time in interruptions.
    pub stalled: Duration,
    /// Time played.
    pub played: Duration,
    /// Mean of the announced rates of what was shown, over the time played.
    pub bitrate_kbps: Option<f64>,
    /// Changes of the rung shown.
    pub switches: u32,
    /// Sum of these changes.
    pub switched_kbps: u64,
    /// Segments that came whole, those that replaced others included.
    pub segments: u64,
    /// Requests for segments that were given up.
    pub abandoned: u64,
    /// Bytes of the bodies that came, given-up ones included.
    pub body_bytes: u64,
}

impl PlayerOutcome {
    /// Time stalled over the session's time.
    #[must_use]
    pub fn rebuffer_ratio(&self) -> f64 {
        if self.session.is_zero() {
            0.0
        } else {
            self.stalled.as_secs_f64() / self.session.as_secs_f64()
        }
    }

    /// Mean bitrate - 4.3 x rebuffer ratio - changes of the rung / time played, in Mbit/s (Yin et al., SIGCOMM 2015,
    /// Equation 5, over the time).
    #[must_use]
    pub fn qoe_lin(&self) -> f64 {
        let played_s = self.played.as_secs_f64();
        let changed = if played_s > 0.0 { self.switched_kbps as f64 / played_s } else { 0.0 };
        self.qoe_lin_without_switches() - changed / 1e3
    }

    /// The same without the changes.
    #[must_use]
    pub fn qoe_lin_without_switches(&self) -> f64 {
        self.bitrate_kbps.unwrap_or(0.0) / 1e3 - STALL_WEIGHT_MBPS * self.rebuffer_ratio()
    }
}

/// A player at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayerSample {
    /// The rung on the screen; `None` before the first frame.
    pub shown_kbps: Option<u64>,
    /// Media in the buffer.
    pub buffer: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(
        stalled_s: u64,
        played_s: u64,
        bitrate_kbps: Option<f64>,
        switched_kbps: u64,
    ) -> PlayerOutcome {
        PlayerOutcome {
            session: Duration::from_secs(10),
            stalled: Duration::from_secs(stalled_s),
            played: Duration::from_secs(played_s),
            bitrate_kbps,
            switched_kbps,
            ..PlayerOutcome::default()
        }
    }

    #[test]
    fn qoe_is_that_of_the_same_sessions_in_a_browser() {
        // The cases of player/test/qoe.test.ts.
        let close = |value: f64, expected: f64| {
            assert!((value - expected).abs() < 1e-9, "{value} not {expected}")
        };
        close(session(10, 0, None, 0).qoe_lin(), -4.3);
        close(session(2, 7, Some(350.0), 0).qoe_lin(), 0.35 - 4.3 * 0.2);
        let two_switches = session(0, 9, Some(2000.0), 2 * 3250);
        close(two_switches.qoe_lin(), 2.0 - 2.0 * 3.25 / 9.0);
        close(two_switches.qoe_lin_without_switches(), 2.0);
        close(PlayerOutcome::default().qoe_lin(), 0.0);
    }
}
