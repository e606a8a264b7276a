use std::time::Duration;

use millrace_cc::{Bandwidth, ControllerMetrics, Time};

use crate::PlayerSample;

/// The link at one moment. Rates are of the time since the last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSample {
    /// Rate that it could carry.
    pub capacity: Bandwidth,
    /// Rate that it carried, in bytes of the network layer.
    pub throughput: Bandwidth,
    /// Bytes that wait in the buffer.
    pub queue_bytes: u64,
    /// Packets that the full buffer dropped since the last sample.
    pub dropped_packets: u64,
    /// Propagation in force, both ways together.
    pub rtt: Duration,
    /// Probability of loss in force.
    pub loss: f64,
}

/// A flow at one moment. Rates and counts are of the time since the last sample.
#[derive(Clone, Debug, Default)]
pub struct FlowSample {
    /// Whether it has started and not stopped.
    pub active: bool,
    /// What arrived, in bytes of the network layer.
    pub throughput: Bandwidth,
    /// UDP payload that arrived for the first time.
    pub goodput: Bandwidth,
    /// Packets that left the sender.
    pub sent_packets: u64,
    /// Packets that the sender declared lost.
    pub lost_packets: u64,
    /// Mean of the sender's RTT samples since the last sample; `None` without RTT samples.
    pub rtt: Option<Duration>,
    /// Its smoothed RTT; `None` before the first sample.
    pub smoothed_rtt: Option<Duration>,
    /// Bytes of UDP payload in flight.
    pub in_flight_bytes: u64,
    /// The controller's metrics: state, window, pacing rate, and its own figures.
    pub metrics: ControllerMetrics,
    /// Of a flow with a player.
    pub player: Option<PlayerSample>,
}

/// A packet that has crossed the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketDelivered {
    /// Index of the flow.
    pub flow: usize,
    /// When it left the sender.
    pub sent: Time,
    /// When its last bit arrived.
    pub at: Time,
    /// Its size on the link.
    pub bytes: u64,
    /// How long it waited in the buffer.
    pub waited: Duration,
}

/// A segment that has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentDone {
    /// Index of the flow.
    pub flow: usize,
    /// Counts the flow's segments, from 0.
    pub number: u64,
    /// When it was due by its source's period.
    pub due: Time,
    /// When its first byte could leave: later than `due` if the one before was late.
    pub requested: Time,
    /// When its last byte arrived.
    pub completed: Time,
}

/// Observes a run while it happens. Times are counted from the start of the run.
pub trait Observer {
    /// Whether the run can end before its time: asked after each sample.
    fn is_satisfied(&self) -> bool {
        false
    }

    /// Called once per [`Setup::sample_every`](crate::Setup::sample_every), from the first period's
    /// end on, warm-up included; `flows` is in the order of the setup.
    fn sample(&mut self, _at: Time, _link: &LinkSample, _flows: &[FlowSample]) {}

    /// A packet has arrived, warm-up included.
    fn delivered(&mut self, _packet: &PacketDelivered) {}

    /// A segment has arrived, warm-up included.
    fn segment(&mut self, _segment: &SegmentDone) {}
}

/// Observes nothing, for callers that only need the outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
