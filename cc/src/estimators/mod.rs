//! Measurements that several algorithms share: each is here once.
//!
//! - `Regression`: least squares line.
//! - `WindowedMax`, `WindowedMin`: extremes of the last while.
//! - `RoundCounter`: packet-timed round trips.

// Until each has its users.
#![allow(dead_code, unused_imports)]

mod regression;
mod round_counter;
mod windowed_extreme;

pub(crate) use regression::{Regression, Slope};
pub(crate) use round_counter::RoundCounter;
pub(crate) use windowed_extreme::{WindowedMax, WindowedMin};
