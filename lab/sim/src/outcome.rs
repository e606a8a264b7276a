use std::time::Duration;

use millrace_cc::Bandwidth;

use crate::PlayerOutcome;

/// Outcome of a run. All totals are of the time after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationOutcome {
    /// The bottleneck.
    pub link: LinkOutcome,
    /// The flows, in the order of the setup.
    pub flows: Vec<SimulatedFlowTotals>,
    /// Data packets that were sent in the whole run: the simulator's work.
    pub simulated_packets: u64,
}

/// Totals of the bottleneck. Over the whole run, warm-up included, packets are conserved:
/// `sent = delivered + lost at random + dropped + inside` is asserted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkOutcome {
    /// Bytes of the network layer that it could have carried.
    pub capacity_bytes: u64,
    /// Bytes of the network layer that it carried.
    pub delivered_bytes: u64,
    /// `delivered_bytes` over `capacity_bytes`.
    pub utilisation: f64,
    /// Packets that reached it.
    pub arrived_packets: u64,
    /// Packets that crossed it.
    pub delivered_packets: u64,
    /// Packets dropped by the full buffer.
    pub dropped_packets: u64,
    /// Packets lost at random.
    pub random_lost_packets: u64,
    /// Packets that were inside when the run ended.
    pub inside_packets: u64,
    /// Most bytes that waited at once.
    pub queue_max_bytes: u64,
}

/// Totals of a live encoder's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameTotals {
    /// Frames that arrived whole, with all frames before them.
    pub frames: u64,
    /// Of these, frames later than [`Self::LATE`].
    pub late: u64,
    /// Frames that the encoder skipped.
    pub skipped: u64,
    /// Time from a frame's capture to that.
    pub delay: Delays,
}

impl FrameTotals {
    /// One-way delay up to which most users of a conversation are satisfied (ITU-T G.114, 2003).
    pub const LATE: Duration = Duration::from_millis(150);
}

/// Totals of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatedFlowTotals {
    /// Name of its algorithm.
    pub algorithm: &'static str,
    /// Its duration after the warm-up, over which its rates are computed.
    pub active: Duration,
    /// UDP payload that arrived for the first time.
    pub goodput: Bandwidth,
    /// Rate of arrivals, in bytes of the network layer.
    pub throughput: Bandwidth,
    /// Packets that left the sender.
    pub sent_packets: u64,
    /// Of these, packets that carried data of an earlier packet again.
    pub retransmitted_packets: u64,
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Packets dropped by the full buffer.
    pub dropped_packets: u64,
    /// Packets lost at random.
    pub random_lost_packets: u64,
    /// Packets that the sender declared lost.
    pub declared_lost_packets: u64,
    /// Of these, packets that were only late.
    pub spurious_losses: u64,
    /// Probe timeouts (RFC 9002, Section 6.2).
    pub probe_timeouts: u64,
    /// Frames of a live encoder.
    pub frames: FrameTotals,
    /// RTT as the sender sampled it.
    pub rtt: Delays,
    /// Time that packets waited in the buffer before their first bit left: the self-inflicted delay.
    pub queueing: Delays,
    /// Segments that were complete.
    pub segments: u64,
    /// Time from a segment's request to its last byte.
    pub segment_time: Delays,
    /// What the viewer saw, warm-up included, of a flow with a player.
    pub player: Option<PlayerOutcome>,
}

impl SimulatedFlowTotals {
    /// Share of the packets sent that were dropped by the queue or lost at random.
    #[must_use]
    pub fn loss_rate(&self) -> f64 {
        ratio(self.dropped_packets + self.random_lost_packets, self.sent_packets)
    }

    /// Share of the packets sent that repeated earlier ones.
    #[must_use]
    pub fn retransmit_rate(&self) -> f64 {
        ratio(self.retransmitted_packets, self.sent_packets)
    }
}

/// A distribution of delays: mean and extremes are exact to the nanosecond, quantiles within 0.1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Number of delays; the other fields are zero if it is zero.
    pub count: u64,
    /// Mean.
    pub mean: Duration,
    /// Smallest.
    pub min: Duration,
    /// Median.
    pub p50: Duration,
    /// 95th percentile.
    pub p95: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Largest.
    pub max: Duration,
}

/// `part` of `whole`; zero of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
