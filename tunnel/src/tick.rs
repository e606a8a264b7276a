//! The interval of periodic work.

use std::time::Duration;

/// How often a worker does its periodic work at least.
pub const TICK: Duration = Duration::from_millis(250);
