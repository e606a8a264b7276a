use serde::{Deserialize, Serialize};

use crate::bbr::common::between;

/// Settings of BBR version 1; also its factory.
///
/// The defaults are those of draft-cardwell-iccrg-bbr-congestion-control-00 and of Linux 4.10,
/// to which the papers compare. `docs/research/cc/bbr.md` has measurements of smaller and larger values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BbrConfig {
    /// Margin of the pacing rate below the estimated bandwidth, 0 to 50 per cent, so that a correct
    /// estimate does not keep a standing queue. Linux 4.10 has the margin because it omits link headers.
    #[serde(deserialize_with = "between::<_, 0, 50>")]
    pub pacing_margin_percent: u64,
    /// Round trips whose highest delivery rate is the bandwidth (Section 4.1.2.1: a gain cycle and two
    /// more), 1 to 1000.
    #[serde(deserialize_with = "between::<_, 1, 1000>")]
    pub bandwidth_rounds: u64,
    /// Age of the minimum RTT after which it is measured again (Section 4.1.3), 100 ms to an hour.
    #[serde(deserialize_with = "between::<_, 100, 3_600_000>")]
    pub min_rtt_window_ms: u64,
    /// Duration of that measurement, with four packets in flight (Section 4.3.5), 0 to 10 s.
    #[serde(deserialize_with = "between::<_, 0, 10_000>")]
    pub probe_rtt_ms: u64,
    /// Whether the window allows for bunched acknowledgements (Linux 5.1).
    pub ack_aggregation: bool,
    /// Whether a token bucket that drops a fifth of the packets is detected, and its rate used for 48
    /// round trips (Linux 4.9 and later; not in the draft).
    pub policer_detection: bool,
}

impl Default for BbrConfig {
    fn default() -> Self {
        Self {
            pacing_margin_percent: 1,
            bandwidth_rounds: 10,
            min_rtt_window_ms: 10_000,
            probe_rtt_ms: 200,
            ack_aggregation: false,
            policer_detection: true,
        }
    }
}
