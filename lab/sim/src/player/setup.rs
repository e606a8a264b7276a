use std::sync::Arc;
use std::time::Duration;

use super::ladder::BitrateLadder;
use crate::setup_checks::{SetupError, check};

const MIN_BUFFER_TARGET: Duration = Duration::from_secs(1);
const MAX_BUFFER_TARGET: Duration = Duration::from_secs(120);

/// A player of a presentation on demand, as the lab's page configures dash.js.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerSetup {
    /// What it plays.
    pub ladder: Arc<BitrateLadder>,
    /// How it chooses.
    pub strategy: BitrateStrategy,
    /// How much media it strives to have in its buffer.
    pub buffer_target: Duration,
    /// Whether it fetches again what it has buffered when it goes to a higher rung.
    pub fast_switch: bool,
}

/// How a player chooses the rung of the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitrateStrategy {
    /// By the throughput of its downloads alone.
    Throughput,
    /// By the level of its buffer: BOLA.
    Bola,
    /// dash.js's mix: one of the two by the level, the insufficient-buffer and switch-history rules, and requests that
    /// are given up.
    Dynamic,
}

impl PlayerSetup {
    /// The page's defaults: the throughput rule, a buffer of 15 s, fast switch.
    #[must_use]
    pub fn new(ladder: Arc<BitrateLadder>) -> Self {
        Self {
            ladder,
            strategy: BitrateStrategy::Throughput,
            buffer_target: Duration::from_secs(15),
            fast_switch: true,
        }
    }

    pub(crate) fn validate(&self, what: &str) -> Result<(), SetupError> {
        self.ladder.validate(what)?;
        check((MIN_BUFFER_TARGET..=MAX_BUFFER_TARGET).contains(&self.buffer_target), || {
            format!("{what}: buffer target of {:?}; allowed are 1 to 120 s", self.buffer_target)
        })
    }
}
