use millrace_config::Class;
use serde::{Deserialize, Serialize};

/// What a player has said of itself (CTA-5004).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Player {
    /// Media in its buffer.
    pub buffer_s: Option<f64>,
    /// Bitrate of what it asked for.
    pub bitrate_kbps: Option<f64>,
    /// The highest that it may ask for.
    pub top_bitrate_kbps: Option<f64>,
    /// Whether its buffer had run empty before.
    pub starved: bool,
    /// Time since it said so.
    pub age_s: f64,
}

/// What rules are told of a connection. Rates are in Mbit/s (10^6 bit/s), shares from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Facts {
    /// Number of the connection.
    pub connection: u64,
    /// What it carries.
    pub class: Class,
    /// What drives it now.
    pub algorithm: String,
    /// Since it was opened.
    pub age_s: f64,
    /// Since the path became another one, or since the connection was opened.
    pub path_age_s: f64,
    /// Smallest RTT of the path by that of the one before; 0 where it never became another one.
    pub rtt_ratio: f64,
    /// Since the algorithm was changed, or since it was opened.
    pub since_switch_s: f64,
    /// How often it was changed.
    pub switches: u64,
    /// Smallest RTT ever; 0 before the first sample, as of the others.
    pub min_rtt_ms: f64,
    /// Largest RTT ever.
    pub max_rtt_ms: f64,
    /// Smallest RTT of the last ten seconds or so: a path can become another one.
    pub recent_min_rtt_ms: f64,
    /// Largest RTT of the last ten seconds or so.
    pub recent_max_rtt_ms: f64,
    /// The last sample.
    pub latest_rtt_ms: f64,
    /// Smoothed (RFC 9002, Section 5.3).
    pub smoothed_rtt_ms: f64,
    /// Its mean deviation.
    pub rtt_variation_ms: f64,
    /// Delivery rate of the last round trip.
    pub delivery_mbps: f64,
    /// Mean of the last ten seconds or so, pauses included.
    pub mean_delivery_mbps: f64,
    /// The highest of the last ten seconds.
    pub max_delivery_mbps: f64,
    /// The highest ever.
    pub peak_delivery_mbps: f64,
    /// Share of bytes lost over the last ten seconds or so.
    pub loss: f64,
    /// Share of packets lost over about the last ten events.
    pub loss_short: f64,
    /// Share of packets marked ECN-CE, as recent.
    pub ecn_ce: f64,
    /// Congestion window.
    pub window_bytes: f64,
    /// Acknowledged since it was opened.
    pub delivered_bytes: f64,
    /// What its player has said, of class `dash`.
    pub player: Option<Player>,
}
