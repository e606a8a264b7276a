//! BBR: a model of the path's bandwidth and round trip (versions 1 and 3).
//!
//! The flow paces at the highest rate at which the path has lately delivered, and keeps no more
//! in flight than that rate fills the path with.
//!
//! - `v1`: as the papers compare.
//! - `v3`: as it is being standardised; it heeds losses.
//! - `full_pipe`, `ack_aggregation`, `recovery`, `gain`: what the versions share.

mod ack_aggregation;
mod full_pipe;
mod gain;
mod recovery;
#[cfg(test)]
mod test_path;
mod v1;
mod v3;

use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;
pub use v1::{Bbr, BbrConfig};
pub use v3::{Bbr3, Bbr3Config};

use crate::registry::{self, Entry};
use crate::{Bandwidth, PathModel};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry { names: &["bbr"], make: registry::read::<BbrConfig> },
    Entry { names: &["bbr3"], make: registry::read::<Bbr3Config> },
];

/// Bounds of the pacing rate: a packet each second or so, and only there to keep arithmetic
/// finite. The drafts have none.
const MIN_RATE: Bandwidth = Bandwidth::from_bits_per_s(10_000);
const MAX_RATE: Bandwidth = Bandwidth::from_bits_per_s(100_000_000_000);
/// Round trip assumed for the pace of the initial window, until there is a sample
/// (draft-cardwell-iccrg-bbr-congestion-control-00, Section 4.2.1).
const NOMINAL_RTT: Duration = Duration::from_millis(1);
/// So many probe time-outs in a row count as a retransmission time-out of TCP.
const TIMEOUTS: u32 = 2;

/// Bandwidth and round trip that a known path begins with; nothing if it is not known. A round trip that was the
/// path's long ago would bound the window for ten seconds.
fn inherited(path: &PathModel) -> Option<(Bandwidth, Duration)> {
    let rtt = path.base_rtt().unwrap_or(path.smoothed_rtt);
    let bandwidth = match path.max_delivery_rate {
        Bandwidth::ZERO => Bandwidth::from_bytes_and_time(path.window_bytes, path.smoothed_rtt),
        delivered => delivered,
    };
    (!rtt.is_zero() && bandwidth > Bandwidth::ZERO)
        .then(|| (bandwidth.clamp(MIN_RATE, MAX_RATE), rtt))
}

/// For settings: a whole number that lies within bounds.
fn between<'de, D, const LEAST: u64, const MOST: u64>(from: D) -> Result<u64, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let value = u64::deserialize(from)?;
    match (LEAST..=MOST).contains(&value) {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value}; allowed are {LEAST} to {MOST}"))),
    }
}
