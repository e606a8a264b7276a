//! What became of requests under the rate cap of players.

use millrace_cc::rate_cap::Uncapped;

use super::family::label;

label! {
    /// Whether the answer to a player's request is capped, and why not.
    RateCapResult {
        /// The answer is capped.
        Capped = "capped",
        /// The request has no CMCD report.
        NoReport = "no_report",
        /// The player plays a live stream (`st`).
        Live = "live",
        /// The player starts, seeks or recovers (`su`).
        Urgent = "urgent",
        /// The highest bitrate is not known (`tb`).
        UnknownTopRate = "unknown_top_rate",
        /// The request is for less than the highest bitrate (`br`).
        BelowTopRate = "below_top_rate",
        /// The buffer has less than 10 s, or its level is not known (`bl`).
        LowBuffer = "low_buffer",
    }
}

impl From<Uncapped> for RateCapResult {
    fn from(reason: Uncapped) -> Self {
        match reason {
            Uncapped::Live => Self::Live,
            Uncapped::Urgent => Self::Urgent,
            Uncapped::UnknownTopRate => Self::UnknownTopRate,
            Uncapped::BelowTopRate => Self::BelowTopRate,
            Uncapped::LowBuffer => Self::LowBuffer,
        }
    }
}
