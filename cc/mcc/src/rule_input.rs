use millrace_config::Class;
use serde::{Deserialize, Serialize};

/// State that a player reported of itself (CTA-5004).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Player {
    /// Media in the player's buffer.
    pub buffer_s: Option<f64>,
    /// Bitrate of the requested media.
    pub bitrate_kbps: Option<f64>,
    /// Highest bitrate that the player may request.
    pub top_bitrate_kbps: Option<f64>,
    /// Whether the buffer had run empty before the report.
    pub starved: bool,
    /// Age of the report.
    pub age_s: f64,
}

/// Input of the rules: the state of one connection. Rates are in Mbit/s (10^6 bit/s), shares from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleInput {
    /// Number of the connection.
    pub connection: u64,
    /// Traffic class that the connection carries.
    pub class: Class,
    /// Algorithm in use.
    pub algorithm: String,
    /// Time since the connection was opened.
    pub age_s: f64,
    /// Time since the last path change, or since the connection was opened.
    pub path_age_s: f64,
    /// Smallest RTT of the path divided by that of the path before; 0 without a path change.
    pub rtt_ratio: f64,
    /// Time since the last change of the algorithm, or since the connection was opened.
    pub since_switch_s: f64,
    /// Number of changes of the algorithm.
    pub switches: u64,
    /// Smallest RTT of the path; like all RTTs, 0 before the first sample.
    pub min_rtt_ms: f64,
    /// Largest RTT of the path.
    pub max_rtt_ms: f64,
    /// Smallest RTT of about the last ten seconds.
    pub recent_min_rtt_ms: f64,
    /// Largest RTT of about the last ten seconds.
    pub recent_max_rtt_ms: f64,
    /// Latest RTT sample.
    pub latest_rtt_ms: f64,
    /// Smoothed RTT (RFC 9002, Section 5.3).
    pub smoothed_rtt_ms: f64,
    /// Mean deviation of the RTT.
    pub rtt_variation_ms: f64,
    /// Delivery rate of the last round trip.
    pub delivery_mbps: f64,
    /// Mean delivery rate of about the last ten seconds, pauses included.
    pub mean_delivery_mbps: f64,
    /// Highest delivery rate of the last ten seconds.
    pub max_delivery_mbps: f64,
    /// Highest delivery rate since the connection was opened.
    pub peak_delivery_mbps: f64,
    /// Share of bytes lost over about the last ten seconds.
    pub loss: f64,
    /// Share of packets lost over about the last ten events.
    pub loss_short: f64,
    /// Share of packets marked ECN-CE, a recent average.
    pub ecn_ce: f64,
    /// Congestion window.
    pub window_bytes: f64,
    /// Bytes acknowledged since the connection was opened.
    pub delivered_bytes: f64,
    /// Latest report of the player, for class `dash`.
    pub player: Option<Player>,
}
