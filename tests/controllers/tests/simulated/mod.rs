//! A path of the simulator and a record of its packets, for tests that evaluate parts of a run.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::{Bandwidth, ControllerConfig, Time};
pub use millrace_sim::DataSource;
use millrace_sim::{
    AckPolicy, FlowSample, FlowSetup, HEADER_BYTES, LinkChange, LinkRate, LinkSample, Observer,
    PacketDelivered, SegmentDone, Setup,
};

/// UDP payload of every packet.
pub const PACKET_BYTES: u64 = 1350;
/// Time between two looks at the pacing rate.
const SAMPLE: Duration = Duration::from_millis(5);

/// The bottleneck and what surrounds it. Rate and buffer are in bytes of UDP payload: the headers,
/// which the simulator counts, have room of their own.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub rate: Bandwidth,
    pub rtt: Duration,
    pub buffer_bytes: u64,
    pub loss: f64,
    /// Largest additional delay of a packet, evenly distributed; order is kept.
    pub jitter: Duration,
    /// Packets per acknowledgement.
    pub ack_every: u32,
}

impl Link {
    pub fn new(mbps: f64, rtt_ms: f64, buffer_bytes: u64, loss: f64) -> Self {
        Self {
            rate: Bandwidth::from_mbps(mbps),
            rtt: Duration::from_secs_f64(rtt_ms / 1e3),
            buffer_bytes,
            loss,
            jitter: Duration::ZERO,
            ack_every: 2,
        }
    }

    fn network_rate(&self) -> Bandwidth {
        Bandwidth::from_bits_per_s(with_headers(self.rate.bits_per_s()))
    }

    fn simulated(&self) -> millrace_sim::LinkSetup {
        millrace_sim::LinkSetup {
            loss: self.loss,
            jitter: self.jitter,
            ..millrace_sim::LinkSetup::new(
                self.network_rate(),
                self.rtt,
                with_headers(self.buffer_bytes),
            )
        }
    }

    fn change(&self) -> LinkChange {
        LinkChange {
            rate: Some(LinkRate::Constant(self.network_rate())),
            rtt: Some(self.rtt),
            buffer_bytes: Some(with_headers(self.buffer_bytes)),
            loss: Some(self.loss),
            jitter: Some(self.jitter),
            ..LinkChange::default()
        }
    }
}

/// `payload` with the headers of full packets.
fn with_headers(payload: u64) -> u64 {
    payload * (PACKET_BYTES + HEADER_BYTES) / PACKET_BYTES
}

/// One flow's record.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Moment at the receiver and UDP payload, per packet.
    pub arrivals: Vec<(Time, u64)>,
    /// Seconds from request to complete arrival, per segment.
    pub segment_s: Vec<f64>,
    /// Moment and pacing rate in Mbit/s, every few milliseconds.
    pub rates: Vec<(Time, f64)>,
    pub sent_packets: u64,
    pub lost_packets: u64,
}

impl Record {
    /// Mean rate of arrivals between two times in seconds, in Mbit/s.
    pub fn mbps(&self, from_s: f64, to_s: f64) -> f64 {
        let inside = |at: &Time| (from_s..to_s).contains(&at.as_secs_f64());
        let bytes: u64 =
            self.arrivals.iter().filter(|(at, _)| inside(at)).map(|(_, bytes)| bytes).sum();
        bytes as f64 * 8.0 / 1e6 / (to_s - from_s)
    }

    pub fn loss(&self) -> f64 {
        self.lost_packets as f64 / self.sent_packets.max(1) as f64
    }
}

/// Record of a run.
#[derive(Debug, Default)]
pub struct Run {
    pub flows: Vec<Record>,
    /// Moment of arrival and queueing delay of each packet that crossed the bottleneck.
    pub queueing: Vec<(Time, Duration)>,
}

impl Run {
    /// 95th percentile of the queueing delay after `from_s`, in milliseconds.
    pub fn p95_queueing_ms(&self, from_s: f64) -> f64 {
        let after = self.queueing.iter().filter(|(at, _)| at.as_secs_f64() >= from_s);
        let mut delays: Vec<_> = after.map(|(_, delay)| delay.as_secs_f64() * 1e3).collect();
        delays.sort_by(f64::total_cmp);
        delays.get(delays.len() * 95 / 100).copied().unwrap_or(0.0)
    }
}

impl Observer for Run {
    fn sample(&mut self, at: Time, _link: &LinkSample, flows: &[FlowSample]) {
        for (flow, record) in flows.iter().zip(&mut self.flows) {
            let (mbps, window) = (flow.metrics.pacing_rate.mbps(), flow.metrics.window_bytes);
            assert!(
                mbps.is_finite() && mbps > 0.0 && window >= 2 * PACKET_BYTES,
                "{mbps} {window}"
            );
            if flow.active {
                record.rates.push((at, mbps));
            }
        }
    }

    fn delivered(&mut self, packet: &PacketDelivered) {
        self.flows[packet.flow].arrivals.push((packet.at, packet.bytes - HEADER_BYTES));
        self.queueing.push((packet.at, packet.waited));
    }

    fn segment(&mut self, segment: &SegmentDone) {
        let took = segment.completed - segment.requested;
        self.flows[segment.flow].segment_s.push(took.as_secs_f64());
    }
}

/// Runs flows over a link.
pub struct Path {
    setup: Setup,
    ack: AckPolicy,
}

impl Path {
    pub fn new(link: Link, seed: u64) -> Self {
        let setup = Setup::new(link.simulated(), Vec::new(), Duration::from_secs(1));
        let ack = AckPolicy { every: link.ack_every, ..AckPolicy::default() };
        Self { setup: Setup { seed, sample_every: SAMPLE, ..setup }, ack }
    }

    /// Changes the link at `at_s`.
    pub fn change(mut self, at_s: f64, link: Link) -> Self {
        self.setup.changes.push((Duration::from_secs_f64(at_s), link.change()));
        self
    }

    /// Adds a flow that starts at `start_s`.
    pub fn flow(
        self,
        config: &(impl ControllerConfig + Clone + 'static),
        source: DataSource,
        start_s: f64,
    ) -> Self {
        self.flow_of(Arc::new(config.clone()), source, start_s)
    }

    /// Adds a flow of an algorithm found by name that starts at `start_s`.
    pub fn flow_of(
        mut self,
        algorithm: Arc<dyn ControllerConfig>,
        source: DataSource,
        start_s: f64,
    ) -> Self {
        self.setup.flows.push(FlowSetup {
            source,
            start: Duration::from_secs_f64(start_s),
            ack: self.ack,
            packet_bytes: PACKET_BYTES + HEADER_BYTES,
            ..FlowSetup::bulk(algorithm)
        });
        self
    }

    /// Sets the initial window of the flows added so far.
    pub fn initial_window(mut self, packets: u64) -> Self {
        self.setup.flows.iter_mut().for_each(|flow| flow.initial_window_packets = packets);
        self
    }

    /// Runs for `duration_s` seconds.
    pub fn run(mut self, duration_s: f64) -> Run {
        self.setup.duration = Duration::from_secs_f64(duration_s);
        let mut run =
            Run { flows: vec![Record::default(); self.setup.flows.len()], queueing: Vec::new() };
        let outcome = millrace_sim::run(&self.setup, &mut run).expect("a setup that can be run");
        for (flow, record) in outcome.flows.iter().zip(&mut run.flows) {
            record.sent_packets = flow.sent_packets;
            record.lost_packets = flow.declared_lost_packets;
        }
        run
    }
}
