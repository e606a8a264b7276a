//! Measurements that several algorithms share: each is here once.
//!
//! - `Regression`: least squares line.
//! - `WindowedMax`, `WindowedMin`: extremes of the last while.
//! - `PersistentCongestion`: a time in which everything was lost.
//! - `RoundCounter`: packet-timed round trips.
//! - `RateSampler`: the rate at which the path delivers, and whether the application held it back.

mod persistent_congestion;
mod rate_sample;
mod regression;
mod round_counter;
mod sent_ring;
mod windowed_extreme;

pub(crate) use persistent_congestion::PersistentCongestion;
pub(crate) use rate_sample::{LossSample, RateSample, RateSampler};
pub(crate) use regression::{Regression, Slope};
pub(crate) use round_counter::RoundCounter;
pub(crate) use sent_ring::SentRing;
pub(crate) use windowed_extreme::{WindowedMax, WindowedMin};
