//! What the figures of `flows.json` are, for `docs/reference/results.md`.

/// Meanings of the link's figures, in the order in which the page lists them.
pub const OF_LINK: [(&str, &str); 13] = [
    ("capacity_mbps", "Mean of what the bottleneck could have carried"),
    ("delivered_mbps", "What came out of it, headers included"),
    ("utilisation", "`delivered_mbps / capacity_mbps`"),
    ("goodput_mbps", "Sum over the flows"),
    ("jain", "Jain's fairness index of the flows' goodput"),
    ("loss_rate", "Share of the packets sent that were lost at random or dropped by the queue"),
    ("drop_rate", "Share of the packets sent that the full queue dropped"),
    (
        "worst_drop_rate",
        "Largest share of the packets sent in 30 s, or in three round trips if those are longer, that the full queue dropped; of the whole run",
    ),
    ("sent_packets", "Of the whole run, data direction"),
    ("delivered_packets", "Of the whole run, data direction"),
    ("dropped_packets", "Dropped by the full queue, of the whole run"),
    ("random_lost_packets", "Lost at random, of the whole run"),
    ("peak_queue_bytes", "Longest queue of the whole run"),
];

/// Meanings of a flow's figures; `rtt_ms` stands for `rtt_ms.mean` and its like.
pub const OF_FLOW: [(&str, &str); 48] = [
    (
        "goodput_mbps",
        "Bytes of UDP payload that arrived for the first time; in the emulator what the player's socket received, of a \
         DASH player its segments, each spread evenly from its first byte to its last",
    ),
    ("throughput_mbps", "Bytes that arrived, headers and repeats included (as the papers count)"),
    ("utilisation", "`throughput_mbps / link.capacity_mbps`"),
    ("share", "Of the sum of all flows' goodput"),
    ("loss_rate", "Lost packets / packets sent"),
    ("retransmit_rate", "Packets that repeat earlier ones / packets sent"),
    (
        "rtt_ms",
        "Samples that the sender took; in the emulator its smoothed round trip, ten times a second",
    ),
    ("queueing_ms", "Wait in the bottleneck's queue, of the packets that passed it"),
    ("self_inflicted_delay_ms", "`queueing_ms.p95`"),
    (
        "inflation_ratio",
        "`queueing_ms.p95` / time to drain a full buffer (Vivace, Section 5.1.3); absent where the rate changes",
    ),
    ("convergence_s", "From the flow's start, as `measure.convergence` says"),
    (
        "stddev_mbps",
        "Deviation of the throughput per second after convergence: of the flow itself with `share`, the mean over all \
         active flows with `jain`; otherwise of the time measured",
    ),
    (
        "variation",
        "Deviation of the throughput per second over the time measured / `throughput_mbps`",
    ),
    ("ratio_to_others", "Goodput / mean goodput of the flows of other groups"),
    ("unfairness", "Deviation of the goodput from the mean of all flows, relative to it"),
    (
        "time_to_80_percent_s",
        "From the flow's start until a second (ten windows of 100 ms) brought 80 % of the capacity",
    ),
    (
        "time_to_90_percent_s",
        "From the flow's start until 100 ms brought 90 % of the capacity; the second after them brought 90 % too",
    ),
    (
        "peak_in_flight_bdp",
        "Simulator: most bytes in flight at the end of any 100 ms of the whole run, headers included / bandwidth-delay \
         product",
    ),
    ("overshoot_bdp", "`peak_in_flight_bdp` minus 1, at least 0"),
    (
        "follow_s",
        "Longest that the flow took to follow a change of the link's rate (`measure.follow_tolerance`)",
    ),
    ("share_error", "Largest deviation from the share that was asked for, relative to it"),
    (
        "switch_ratio",
        "Smallest second of the ten after a change of the algorithm (`[[flow.change]]` with `cc`) / mean of the five \
         before; of several changes the smallest",
    ),
    (
        "utility",
        "Mean over the flow's seconds of (throughput / what the link could carry) x (propagation / round trip)^0.1: each \
         second counts alike, whatever the link is like in it",
    ),
    (
        "vivace_utility",
        "Mean over the flow's seconds of Vivace's utility without regard to the round trip: x^0.9 - 11.35 x L, x the sending \
         rate in Mbit/s, L the share lost (Vivace, Equation 1 with b = 0)",
    ),
    (
        "epoch_correlation",
        "With `measure.epoch_s`: Pearson's coefficient, over all pairs of adjacent epochs, of the change of the mean delay of \
         their packets and the sending less the receiving rate of the second (Iris, Section III). An epoch has the packets \
         sent in it that arrived; the receiving rate is their bytes over the time since the last arrival of the epoch before",
    ),
    (
        "epoch_slope_ms",
        "Slope k of the line through these points by least squares, in ms for each Mbit/s (Iris, Equation 2)",
    ),
    ("epoch_intercept_ms", "Its intercept b, in ms"),
    ("segments", "Of a video-like source or a virtual player: segments that arrived whole"),
    ("segment_s", "Of a video-like source: time from a request to its last byte"),
    (
        "frame_delay_ms",
        "Of a live encoder: time from a frame's capture until it had arrived whole, with all frames before it",
    ),
    (
        "late_frames",
        "Of a live encoder: share of the frames that were skipped, or arrived more than 150 ms after their capture (ITU-T G.114)",
    ),
    (
        "skipped_frames",
        "Of a live encoder: share of the frames that were not encoded, because six frames waited to be sent",
    ),
    ("startup_s", "Of a player: time from the play request to the first frame"),
    ("stalls", "Of a player: number of stalls"),
    (
        "rebuffer_ratio",
        "Of a player: time stalled / length of the session; of an RTSP player up to the moment at which the server gave the \
         stream up",
    ),
    (
        "gave_up",
        "Of an RTSP player: 1 if the server gave the stream up before the session ended, else 0; over flows the share of \
         streams",
    ),
    ("bitrate_kbps", "Of a player: mean bitrate of what was on the screen"),
    ("switches", "Of a player: number of changes of the bitrate"),
    (
        "qoe_lin",
        "Of a DASH player: mean bitrate while it played - 4.3 x rebuffer_ratio - sum of the changes of the bitrate / time \
         played, in Mbit/s",
    ),
    ("qoe_lin_without_switches", "Of a DASH player: the same without the changes"),
    (
        "top_rung_s",
        "Of a simulated player: longest time from a change of the link's rate until the highest bitrate is on the screen",
    ),
    ("psnr_db", "Of a player: mean PSNR of what was on the screen"),
    ("ssim", "Of a DASH player: mean SSIM of what was on the screen, while it played"),
    ("vmaf", "Of a DASH player: mean VMAF of what was on the screen, while it played"),
    ("dropped_frames", "Of a player: frames that were decoded and not shown"),
    ("lost_frames", "Of an RTSP player: frames that were not shown when their time came"),
    ("watched_s", "Of a player: length of its session"),
    ("rtp_loss", "Of an RTSP player: RTP packets that never came, of all up to the last"),
];

/// `rtt_ms` of `rtt_ms.p95`.
#[must_use]
pub fn family(figure: &str) -> &str {
    figure.split_once('.').map_or(figure, |(family, _)| family)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::metric;
    use super::*;

    #[test]
    fn every_figure_has_a_meaning_and_every_meaning_a_figure() {
        let families =
            |names: &[&'static str]| -> BTreeSet<_> { names.iter().copied().map(family).collect() };
        let meant = |meanings: &[(&'static str, &str)]| -> BTreeSet<_> {
            meanings.iter().map(|(name, _)| *name).collect()
        };
        assert_eq!(families(&metric::OF_FLOW), meant(&OF_FLOW));
        assert_eq!(families(&metric::OF_LINK), meant(&OF_LINK));
    }
}
