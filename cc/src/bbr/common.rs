//! Bounds of both versions, their measurement of the RTT, and estimates for a warm start.

use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

use crate::{Bandwidth, PathModel, Time};

/// Bounds of the pacing rate: about a packet per second, and a bound that keeps arithmetic finite. The
/// drafts have none.
pub(super) const MIN_RATE: Bandwidth = Bandwidth::from_bits_per_s(10_000);
pub(super) const MAX_RATE: Bandwidth = Bandwidth::from_bits_per_s(100_000_000_000);
/// RTT for pacing the initial window before the first sample
/// (draft-cardwell-iccrg-bbr-congestion-control-00, Section 4.2.1).
pub(super) const NOMINAL_RTT: Duration = Duration::from_millis(1);
/// Consecutive probe timeouts that count as a retransmission timeout of TCP (RFC 9002, Section 7.6: persistent
/// congestion takes about two).
pub(super) const PROBE_TIMEOUTS_PER_RTO: u32 = 2;

/// Progress of the RTT measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeRttProgress {
    /// Set once the bytes in flight have reached the window of ProbeRTT.
    pub(super) ends: Option<Time>,
    pub(super) round_done: bool,
}

/// Bandwidth and RTT for a warm start; `None` if they are unknown. The base RTT is used because an outdated smallest
/// RTT would bound the window for ten seconds.
pub(super) fn warm_start_estimates(path: &PathModel) -> Option<(Bandwidth, Duration)> {
    let rtt = path.base_rtt().unwrap_or(path.smoothed_rtt);
    let bandwidth = match path.max_delivery_rate {
        Bandwidth::ZERO => Bandwidth::from_bytes_and_time(path.window_bytes, path.smoothed_rtt),
        delivered => delivered,
    };
    (!rtt.is_zero() && bandwidth > Bandwidth::ZERO)
        .then(|| (bandwidth.clamp(MIN_RATE, MAX_RATE), rtt))
}

/// A warm start finds a standing queue if the smoothed RTT is more than this multiple of the base RTT. It drains that
/// queue first, because a probe on top of it would overflow a buffer of one bandwidth-delay product.
/// Measured in docs/research/mcc.md (Migration).
pub(super) const STANDING_QUEUE_RTT_RATIO: f64 = 1.125;

/// Deserialises a whole number within bounds.
pub(super) fn between<'de, D, const LEAST: u64, const MOST: u64>(from: D) -> Result<u64, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let value = u64::deserialize(from)?;
    match (LEAST..=MOST).contains(&value) {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value}; allowed are {LEAST} to {MOST}"))),
    }
}
