use std::time::Duration;

use millrace_cc::Bandwidth;

/// What a run came to. All totals are of the time after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The bottleneck.
    pub link: LinkOutcome,
    /// The flows, in the order of the setup.
    pub flows: Vec<FlowOutcome>,
    /// Data packets that were sent in the whole run: what the simulator had to do.
    pub simulated_packets: u64,
}

/// Totals of the bottleneck. Over the whole run, warm-up included, every packet that was sent is
/// accounted for: `sent = delivered + lost by chance + dropped + inside` is asserted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkOutcome {
    /// Bytes of the network layer that it could have carried.
    pub capacity_bytes: u64,
    /// Bytes of the network layer that it carried.
    pub delivered_bytes: u64,
    /// The second by the first.
    pub utilisation: f64,
    /// Packets that reached it.
    pub arrived_packets: u64,
    /// Packets that crossed it.
    pub delivered_packets: u64,
    /// Packets that the full buffer refused.
    pub dropped_packets: u64,
    /// Packets that chance took.
    pub chance_lost_packets: u64,
    /// Packets that were inside when the run ended.
    pub inside_packets: u64,
    /// Most bytes that waited at once.
    pub queue_max_bytes: u64,
}

/// Totals of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowOutcome {
    /// Name of its algorithm.
    pub algorithm: &'static str,
    /// How long it was there after the warm-up: what its rates refer to.
    pub active: Duration,
    /// UDP payload that arrived for the first time.
    pub goodput: Bandwidth,
    /// What arrived, in bytes of the network layer.
    pub throughput: Bandwidth,
    /// Packets that left the sender.
    pub sent_packets: u64,
    /// Of these, packets that carried again what an earlier one had carried.
    pub retransmitted_packets: u64,
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Packets that the full buffer refused.
    pub dropped_packets: u64,
    /// Packets that chance took.
    pub chance_lost_packets: u64,
    /// Packets that the sender declared lost.
    pub declared_lost_packets: u64,
    /// Of these, packets that were only late.
    pub spurious_losses: u64,
    /// Probe timeouts (RFC 9002, Section 6.2).
    pub probe_timeouts: u64,
    /// RTT as the sender sampled it.
    pub rtt: Delays,
    /// Time that packets waited in the buffer before their first bit left: the self-inflicted delay.
    pub queueing: Delays,
    /// Segments that were complete.
    pub segments: u64,
    /// Time from a segment's request to its last byte.
    pub segment_time: Delays,
}

impl FlowOutcome {
    /// Share of the packets sent that did not arrive, by queue and by chance.
    #[must_use]
    pub fn loss_rate(&self) -> f64 {
        ratio(self.dropped_packets + self.chance_lost_packets, self.sent_packets)
    }

    /// Share of the packets sent that repeated earlier ones.
    #[must_use]
    pub fn retransmit_rate(&self) -> f64 {
        ratio(self.retransmitted_packets, self.sent_packets)
    }
}

/// A distribution of delays, in nanoseconds-exact mean and extremes and quantiles within 0.1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// How many there were; the others are zero when there was none.
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
