//! Measurements that several algorithms share.
//!
//! - `Regression`: least squares line.
//! - `WindowedMax`, `WindowedMin`: extremes of a sliding window.
//! - `LossWindow`: a bound of the bytes in flight after a buffer has overflowed.
//! - `PersistentCongestion`: a time in which all packets were lost.
//! - `RoundCounter`: packet-timed round trips.
//! - `SpuriousTimeout`: timeouts after which nothing turned out to be lost.
//! - `RateSampler`: the path's delivery rate, and whether the application limited it.
//! - `SentRing`: a note for each packet in flight.

mod loss_window;
mod peak_in_flight;
mod persistent_congestion;
mod rate_sample;
mod regression;
mod round_counter;
mod sent_ring;
mod spurious_timeout;
mod windowed_extreme;

pub(crate) use loss_window::{LossWindow, LossWindowConfig};
pub(crate) use peak_in_flight::PeakInFlight;
pub(crate) use persistent_congestion::PersistentCongestion;
pub(crate) use rate_sample::{LossSample, RateSample, RateSampler};
pub(crate) use regression::{Regression, Slope};
pub(crate) use round_counter::RoundCounter;
pub(crate) use sent_ring::SentRing;
pub(crate) use spurious_timeout::SpuriousTimeout;
pub(crate) use windowed_extreme::{WindowedMax, WindowedMin};
