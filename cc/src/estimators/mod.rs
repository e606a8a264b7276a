//! Measurements that several algorithms share: each is here once.
//!
//! - `Regression`: least squares line.
//! - `WindowedMax`, `WindowedMin`: extremes of the last while.
//! - `PersistentCongestion`: a time in which everything was lost.
//! - `RoundCounter`: packet-timed round trips.
//! - `SpuriousTimeout`: time-outs after which nothing turned out to be lost.
//! - `RateSampler`: the rate at which the path delivers, and whether the application held it back.

mod persistent_congestion;
mod rate_sample;
mod regression;
mod round_counter;
mod sent_ring;
mod spurious_timeout;
mod windowed_extreme;

pub(crate) use persistent_congestion::PersistentCongestion;
pub(crate) use rate_sample::{LossSample, RateSample, RateSampler};
pub(crate) use regression::{Regression, Slope};
pub(crate) use round_counter::RoundCounter;
pub(crate) use sent_ring::SentRing;
pub(crate) use spurious_timeout::SpuriousTimeout;
pub(crate) use windowed_extreme::{WindowedMax, WindowedMin};
