//! Ranges of values that several tables of a scenario have.

use std::ops::RangeInclusive;

pub(super) const RATE_MBPS: RangeInclusive<f64> = 0.01..=100_000.0;
pub(super) const RTT_MS: RangeInclusive<f64> = 0.0..=20_000.0;
pub(super) const LOSS: RangeInclusive<f64> = 0.0..=1.0;
pub(super) const TIME_S: RangeInclusive<f64> = 0.0..=100_000.0;
pub(super) const SAVED_WINDOW_BYTES: RangeInclusive<u64> = 1..=10_000_000_000;
pub(super) const BUFFER_BYTES: RangeInclusive<u64> = 0..=1_000_000_000;
