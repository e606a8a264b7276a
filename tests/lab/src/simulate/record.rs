//! What is kept of a run while it happens: throughput every 100 ms, and rows of the series if asked.

use millrace_cc::Time;
use millrace_sim::{FlowSample, HEADER_BYTES, LinkSample, Observer};

use crate::results::series::Row;

/// Length of a sample.
pub(super) const SAMPLE_S: f64 = 0.1;
/// Samples in a second.
pub(super) const PER_SECOND: usize = 10;

/// A run, sample by sample.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// What the link could carry, in Mbit/s.
    pub(super) capacity_mbps: Vec<f64>,
    /// Propagation in force.
    pub(super) rtt_s: Vec<f64>,
    pub(super) flows: Vec<FlowRecord>,
    /// Rows of the series; `None` where nobody wants them.
    pub(super) rows: Option<Vec<Row>>,
}

#[derive(Debug, Default)]
pub(super) struct FlowRecord {
    /// What arrived in bytes of the network layer, in Mbit/s.
    pub(super) mbps: Vec<f64>,
    /// Most bytes of UDP payload in flight at the end of a sample.
    pub(super) peak_in_flight_bytes: u64,
}

impl Record {
    pub(super) fn new(flows: usize, series: bool) -> Self {
        let flows = (0..flows).map(|_| FlowRecord::default()).collect();
        Self { flows, rows: series.then(Vec::new), ..Self::default() }
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

impl Observer for Record {
    fn sample(&mut self, at: Time, link: &LinkSample, flows: &[FlowSample]) {
        self.capacity_mbps.push(link.capacity.mbps());
        self.rtt_s.push(link.rtt.as_secs_f64());
        for (record, flow) in self.flows.iter_mut().zip(flows) {
            record.mbps.push(flow.throughput.mbps());
            record.peak_in_flight_bytes = record.peak_in_flight_bytes.max(flow.in_flight_bytes);
        }
        let Some(rows) = &mut self.rows else { return };
        let sent: u64 = flows.iter().map(|flow| flow.sent_packets).sum();
        let lost: u64 = flows.iter().map(|flow| flow.lost_packets).sum();
        // Sums of 0.1 s would not be multiples of it.
        let time_s = (at.as_secs_f64() / SAMPLE_S).round() / PER_SECOND as f64;
        for (index, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.active) {
            rows.push(Row {
                time_s,
                flow: i32::try_from(index).unwrap_or(i32::MAX),
                rate_mbps: flow.goodput.mbps(),
                sent_mbps: flow.sent_packets as f64 * FULL_PACKET_BITS / SAMPLE_S / 1e6,
                rtt_ms: flow.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                loss_rate: share(flow.lost_packets, flow.sent_packets),
                window_bytes: Some(flow.metrics.window_bytes as f64),
                pacing_mbps: Some(flow.metrics.pacing_rate.mbps()),
                in_flight_bytes: Some(flow.in_flight_bytes as f64),
                queue_bytes: None,
            });
        }
        rows.push(Row {
            time_s,
            flow: -1,
            rate_mbps: link.throughput.mbps(),
            sent_mbps: link.capacity.mbps(),
            rtt_ms: None,
            loss_rate: share(lost, sent),
            window_bytes: None,
            pacing_mbps: None,
            in_flight_bytes: None,
            queue_bytes: Some(link.queue_bytes as f64),
        });
    }
}

/// Bits of a full packet; nearly all are.
const FULL_PACKET_BITS: f64 = 1500.0 * 8.0;

/// UDP payload as bytes of the network layer, in full packets.
pub(super) fn with_headers(payload_bytes: u64, packet_bytes: u64) -> f64 {
    payload_bytes as f64 * packet_bytes as f64 / (packet_bytes - HEADER_BYTES) as f64
}
