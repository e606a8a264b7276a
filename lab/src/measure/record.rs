//! The record of a run: throughput every 100 ms, and rows of the series if they are requested.

use millrace_sim::{FlowSample, HEADER_BYTES, LinkSample, PacketDelivered, PlayerSample};

use super::epochs::EpochRecord;
use crate::results::series::{Screen, SeriesRow};

/// Length of a sample.
pub const SAMPLE_S: f64 = 0.1;
/// Samples in a second.
pub(super) const SAMPLES_PER_SECOND: usize = 10;

/// A run, sample by sample.
#[derive(Debug, Default)]
pub struct RunRecord {
    /// Capacity of the link, in Mbit/s.
    pub(super) capacity_mbps: Vec<f64>,
    /// Propagation in force.
    pub(super) rtt_s: Vec<f64>,
    pub(super) flows: Vec<FlowRecord>,
    /// Packets of all flows.
    pub(super) packets: Vec<SentAndDropped>,
    /// Rows of the series, if they are requested.
    pub rows: Option<Vec<SeriesRow>>,
}

/// A flow over a sample, as the simulator knows it or as it was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FlowPoint {
    /// Whether it has started and not stopped.
    pub active: bool,
    /// What left the link, in bytes of the network layer.
    pub throughput_mbps: f64,
    /// New data that reached the receiver.
    pub goodput_mbps: f64,
    /// Throughput by the counts of the flow's ends.
    pub telemetry_mbps: Option<f64>,
    /// Packets that left the sender.
    pub sent_packets: u64,
    /// Packets that were lost.
    pub lost_packets: u64,
    /// Round trip.
    pub rtt_ms: Option<f64>,
    /// Congestion window at the end.
    pub window_bytes: Option<f64>,
    /// Pacing rate at the end.
    pub pacing_mbps: Option<f64>,
    /// Bytes of UDP payload in flight at the end.
    pub in_flight_bytes: Option<u64>,
    /// The player's screen; empty without a player.
    pub screen: Screen,
}

impl From<&FlowSample> for FlowPoint {
    fn from(sample: &FlowSample) -> Self {
        Self {
            active: sample.active,
            throughput_mbps: sample.throughput.mbps(),
            goodput_mbps: sample.goodput.mbps(),
            telemetry_mbps: None,
            sent_packets: sample.sent_packets,
            lost_packets: sample.lost_packets,
            rtt_ms: sample.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            window_bytes: Some(sample.metrics.window_bytes as f64),
            pacing_mbps: Some(sample.metrics.pacing_rate.mbps()),
            in_flight_bytes: Some(sample.in_flight_bytes),
            screen: sample.player.as_ref().map_or_else(Screen::default, Screen::of),
        }
    }
}

impl Screen {
    /// Of a simulated player, whose pictures do not exist.
    fn of(player: &PlayerSample) -> Self {
        Self {
            shown_kbps: player.shown_kbps.map(|kbps| kbps as f64),
            psnr_db: None,
            buffer_s: Some(player.buffer.as_secs_f64()),
        }
    }
}

/// Packets of a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SentAndDropped {
    pub(super) sent: u64,
    /// Dropped by the full queue.
    pub(super) dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct FlowRecord {
    /// What arrived in bytes of the network layer, in Mbit/s.
    pub(super) mbps: Vec<f64>,
    /// Round trip, if there was a sample.
    pub(super) rtt_s: Vec<Option<f64>>,
    /// Packets that left the sender, and packets that it declared lost.
    pub(super) packets: Vec<(u64, u64)>,
    /// Most bytes of UDP payload in flight at the end of a sample.
    pub(super) peak_in_flight_bytes: u64,
    /// Rung on the screen of a player at the end of a sample.
    pub(super) shown_kbps: Vec<Option<f64>>,
    /// With `measure.epoch_s`.
    pub(super) epochs: Option<EpochRecord>,
}

impl RunRecord {
    /// Of `flows` flows; with `series`, rows are kept.
    #[must_use]
    pub fn new(flows: usize, series: bool) -> Self {
        let flows = (0..flows).map(|_| FlowRecord::default()).collect();
        Self { flows, rows: series.then(Vec::new), ..Self::default() }
    }

    /// Divides the packets of each flow into epochs by when they were sent, from the warm-up's end on.
    #[must_use]
    pub fn with_epochs(mut self, epoch_s: f64, warmup_s: f64) -> Self {
        for flow in &mut self.flows {
            flow.epochs = Some(EpochRecord::new(epoch_s, warmup_s));
        }
        self
    }

    /// Takes a packet that has crossed the link.
    pub fn delivered(&mut self, packet: &PacketDelivered) {
        if let Some(epochs) = &mut self.flows[packet.flow].epochs {
            epochs.add(packet);
        }
    }

    /// Mean capacity over some samples; zero over none.
    pub(super) fn capacity_over(&self, samples: std::ops::Range<usize>) -> f64 {
        mean(&self.capacity_mbps[samples])
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl RunRecord {
    /// Takes the sample that ends at `at_s`; `flows` are in the order of the scenario.
    pub fn sample(&mut self, at_s: f64, link: &LinkSample, flows: impl Iterator<Item = FlowPoint>) {
        self.capacity_mbps.push(link.capacity.mbps());
        self.rtt_s.push(link.rtt.as_secs_f64());
        let (mut sent, mut lost) = (0, 0);
        // Sums of 0.1 s would not be multiples of it.
        let time_s = (at_s / SAMPLE_S).round() / SAMPLES_PER_SECOND as f64;
        for (index, (record, flow)) in self.flows.iter_mut().zip(flows).enumerate() {
            record.mbps.push(flow.throughput_mbps);
            record.rtt_s.push(flow.rtt_ms.map(|ms| ms / 1e3));
            record.shown_kbps.push(flow.screen.shown_kbps);
            record.packets.push((flow.sent_packets, flow.lost_packets));
            let in_flight = flow.in_flight_bytes.unwrap_or_default();
            record.peak_in_flight_bytes = record.peak_in_flight_bytes.max(in_flight);
            sent += flow.sent_packets;
            lost += flow.lost_packets;
            let Some(rows) = self.rows.as_mut().filter(|_| flow.active) else { continue };
            rows.push(SeriesRow {
                time_s,
                flow: i32::try_from(index).unwrap_or(i32::MAX),
                rate_mbps: flow.goodput_mbps,
                sent_mbps: flow.sent_packets as f64 * FULL_PACKET_BITS / SAMPLE_S / 1e6,
                throughput_mbps: flow.throughput_mbps,
                telemetry_mbps: flow.telemetry_mbps,
                rtt_ms: flow.rtt_ms,
                loss_rate: share(flow.lost_packets, flow.sent_packets),
                window_bytes: flow.window_bytes,
                pacing_mbps: flow.pacing_mbps,
                in_flight_bytes: flow.in_flight_bytes.map(|bytes| bytes as f64),
                queue_bytes: None,
                screen: flow.screen,
            });
        }
        self.packets.push(SentAndDropped { sent, dropped: link.dropped_packets });
        let Some(rows) = &mut self.rows else { return };
        rows.push(SeriesRow {
            time_s,
            flow: -1,
            rate_mbps: link.throughput.mbps(),
            sent_mbps: link.capacity.mbps(),
            throughput_mbps: link.throughput.mbps(),
            telemetry_mbps: None,
            rtt_ms: None,
            loss_rate: share(lost, sent),
            window_bytes: None,
            pacing_mbps: None,
            in_flight_bytes: None,
            queue_bytes: Some(link.queue_bytes as f64),
            screen: Screen::default(),
        });
    }
}

/// Bits of a full packet; nearly all are.
const FULL_PACKET_BITS: f64 = 1500.0 * 8.0;

/// UDP payload as bytes of the network layer, in full packets.
pub(super) fn with_headers(payload_bytes: u64, packet_bytes: u64) -> f64 {
    payload_bytes as f64 * packet_bytes as f64 / (packet_bytes - HEADER_BYTES) as f64
}
