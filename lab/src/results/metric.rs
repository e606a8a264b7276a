//! Names of the figures. `meanings.rs` says what each is.

/// Figures of a flow.
pub const OF_FLOW: [&str; 63] = [
    "goodput_mbps",
    "throughput_mbps",
    "utilisation",
    "share",
    "loss_rate",
    "retransmit_rate",
    "rtt_ms.mean",
    "rtt_ms.min",
    "rtt_ms.p50",
    "rtt_ms.p95",
    "rtt_ms.p99",
    "queueing_ms.mean",
    "queueing_ms.p50",
    "queueing_ms.p95",
    "queueing_ms.p99",
    "queueing_ms.max",
    "self_inflicted_delay_ms",
    "inflation_ratio",
    "convergence_s",
    "stddev_mbps",
    "variation",
    "ratio_to_others",
    "unfairness",
    "time_to_80_percent_s",
    "time_to_90_percent_s",
    "peak_in_flight_bdp",
    "overshoot_bdp",
    "follow_s",
    "share_error",
    "switch_ratio",
    "utility",
    "vivace_utility",
    "epoch_correlation",
    "epoch_slope_ms",
    "epoch_intercept_ms",
    "segments",
    "segment_s.mean",
    "segment_s.p50",
    "segment_s.p95",
    "segment_s.max",
    "frame_delay_ms.mean",
    "frame_delay_ms.p50",
    "frame_delay_ms.p95",
    "frame_delay_ms.p99",
    "frame_delay_ms.max",
    "late_frames",
    "skipped_frames",
    "startup_s",
    "stalls",
    "rebuffer_ratio",
    "gave_up",
    "bitrate_kbps",
    "switches",
    "qoe_lin",
    "qoe_lin_without_switches",
    "top_rung_s",
    "psnr_db",
    "ssim",
    "vmaf",
    "dropped_frames",
    "lost_frames",
    "rtp_loss",
    "watched_s",
];

/// Figures of the link.
pub const OF_LINK: [&str; 13] = [
    "capacity_mbps",
    "delivered_mbps",
    "utilisation",
    "goodput_mbps",
    "jain",
    "loss_rate",
    "drop_rate",
    "worst_drop_rate",
    "sent_packets",
    "delivered_packets",
    "dropped_packets",
    "random_lost_packets",
    "peak_queue_bytes",
];

/// Whether a claim can name it: a figure of a flow, or `link.` and one of the link.
#[must_use]
pub fn is_known(name: &str) -> bool {
    match name.strip_prefix("link.") {
        Some(name) => OF_LINK.contains(&name),
        None => OF_FLOW.contains(&name),
    }
}

/// All that a claim can name.
#[must_use]
pub fn names() -> Vec<String> {
    let link = OF_LINK.iter().map(|name| format!("link.{name}"));
    OF_FLOW.iter().map(|name| (*name).to_owned()).chain(link).collect()
}
