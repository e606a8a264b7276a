use std::fmt::Debug;
use std::time::Duration;

use crate::{Bandwidth, PathModel, Time};

/// What a path is like when its controller is made.
#[derive(Clone, Copy, Debug)]
pub struct PathStart {
    /// Size of a full packet (UDP payload).
    pub mtu_bytes: u64,
    /// Window allowed before the first acknowledgement (RFC 9002, Section 7.2).
    pub initial_window_bytes: u64,
    /// RTT assumed until there is a sample (RFC 9002, Section 6.2.2).
    pub initial_rtt: Duration,
    /// Seed of the controller's own generator; the same seed gives the same decisions.
    pub seed: u64,
}

/// A packet that leaves now.
#[derive(Clone, Copy, Debug)]
pub struct SentPacket {
    /// Grows with each packet of the connection; gaps are allowed.
    pub number: u64,
    /// When it leaves.
    pub time: Time,
    /// Its size (UDP payload).
    pub bytes: u64,
    /// Bytes in flight without it.
    pub prior_in_flight_bytes: u64,
    /// Whether it carries application data rather than only control frames.
    pub has_data: bool,
}

/// A packet that the peer has acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct AckedPacket {
    /// As in [`SentPacket::number`].
    pub number: u64,
    /// When it had left.
    pub sent: Time,
    /// Its size.
    pub bytes: u64,
}

/// A packet that was declared lost (RFC 9002, Section 6.1).
#[derive(Clone, Copy, Debug)]
pub struct LostPacket {
    /// As in [`SentPacket::number`].
    pub number: u64,
    /// When it had left.
    pub sent: Time,
    /// Its size.
    pub bytes: u64,
}

/// A round-trip measurement with the transport's estimates after it (RFC 9002, Section 5).
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// The sample, acknowledgement delay included.
    pub latest: Duration,
    /// Smoothed RTT.
    pub smoothed: Duration,
    /// Mean deviation.
    pub variation: Duration,
    /// The smallest sample so far.
    pub min: Duration,
}

/// One acknowledgement or one expiry of the loss timer.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent<'a> {
    /// When it happened.
    pub now: Time,
    /// Packets acknowledged now, in ascending order of number.
    pub acked: &'a [AckedPacket],
    /// Packets declared lost now, in ascending order of number.
    pub lost: &'a [LostPacket],
    /// Present when the largest acknowledged packet gave a new sample.
    pub rtt: Option<RttSample>,
    /// Packets newly reported as marked ECN-CE.
    pub ecn_ce: u64,
    /// Bytes in flight before the event.
    pub prior_in_flight_bytes: u64,
    /// Bytes in flight after it.
    pub in_flight_bytes: u64,
    /// Whether the sender is out of data now: nothing has left since it was.
    pub app_limited: bool,
}

/// A view of a controller for people and programs.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Name of the current state.
    pub state: &'static str,
    /// Pacing rate in force.
    pub pacing_rate: Bandwidth,
    /// Congestion window in force.
    pub window_bytes: u64,
    /// Algorithm-specific figures: name with unit, value.
    pub figures: Vec<(&'static str, f64)>,
}

/// What may be asked of a controller while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tuning {
    /// The share of the bottleneck that this flow is to have, above 0 to 1 (x_i*/C in Theorem 4
    /// of the Vivace paper, NSDI '18, Section 3.3).
    Share(f64),
    /// The rate above which the flow yields to others (Proteus-H, SIGCOMM '20, Section 4.3).
    YieldAbove(Bandwidth),
}

/// A congestion control algorithm for one path.
///
/// The driver calls [`on_packet_sent`](Self::on_packet_sent) for each packet that
/// counts towards bytes in flight and [`on_event`](Self::on_event) for each acknowledgement
/// or loss, in the order of time, and obeys [`window_bytes`](Self::window_bytes) and
/// [`pacing_rate`](Self::pacing_rate) as they are after the call.
pub trait Controller: Debug + Send + Sync {
    /// A packet leaves.
    fn on_packet_sent(&mut self, packet: &SentPacket);

    /// Packets were acknowledged or declared lost.
    fn on_event(&mut self, event: &CongestionEvent<'_>);

    /// The packet will neither be acknowledged nor declared lost: a path probe
    /// or a discarded packet number space.
    fn on_packet_discarded(&mut self, _number: u64) {}

    /// A packet that had been declared lost was acknowledged after all: it was only late.
    fn on_spurious_loss(&mut self, _now: Time, _packet: &LostPacket) {}

    /// Changes what the flow strives for; whether the algorithm knows how.
    fn tune(&mut self, _tuning: Tuning) -> bool {
        false
    }

    /// No acknowledgement came for a probe timeout (RFC 9002, Section 6.2).
    fn on_probe_timeout(&mut self, _now: Time) {}

    /// The sender has no more data although window and rate allow some.
    fn on_app_limited(&mut self, _now: Time, _in_flight_bytes: u64) {}

    /// Full packets have another size from now on.
    fn on_mtu(&mut self, _mtu_bytes: u64) {}

    /// Takes over a path from another algorithm: start from what `path` tells and
    /// not from slow start.
    fn inherit(&mut self, _now: Time, _path: &PathModel) {}

    /// Most bytes that may be in flight.
    fn window_bytes(&self) -> u64;

    /// What that will be again when a probe is over for which the algorithm lets the path run empty. A successor
    /// takes over this one.
    fn lasting_window_bytes(&self) -> u64 {
        self.window_bytes()
    }

    /// Rate at which packets leave.
    fn pacing_rate(&self) -> Bandwidth;

    /// What people and programs may want to see.
    fn metrics(&self) -> Metrics;
}

/// The settings of an algorithm, which are also its factory.
pub trait ControllerConfig: Debug + Send + Sync {
    /// The algorithm's name in configurations, scenarios and results.
    fn name(&self) -> &'static str;

    /// Makes a controller for a new path.
    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller>;
}
