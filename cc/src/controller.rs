use std::fmt::Debug;
use std::time::Duration;

use crate::events::{CongestionEvent, LostPacket, SentPacket};
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

/// A controller's state for observation: metrics, the admin interface, and reports.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
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

    /// Changes the flow's objective. Returns whether the algorithm supports that.
    fn tune(&mut self, _tuning: Tuning) -> bool {
        false
    }

    /// No acknowledgement came for a probe timeout (RFC 9002, Section 6.2).
    fn on_probe_timeout(&mut self, _now: Time) {}

    /// The sender has no more data although window and rate allow some.
    fn on_app_limited(&mut self, _now: Time, _in_flight_bytes: u64) {}

    /// Full packets have another size from now on.
    fn on_mtu(&mut self, _mtu_bytes: u64) {}

    /// Warm start on a path that another algorithm used: starts from `path` and not in slow start.
    fn init_from_path(&mut self, _now: Time, _path: &PathModel) {}

    /// Most bytes that may be in flight.
    fn window_bytes(&self) -> u64;

    /// The window outside of probes that let the path run empty; what a warm start of the next controller begins with.
    fn steady_state_window_bytes(&self) -> u64 {
        self.window_bytes()
    }

    /// Rate at which packets leave.
    fn pacing_rate(&self) -> Bandwidth;

    /// State and figures for observation.
    fn metrics(&self) -> ControllerMetrics;
}

/// The settings of an algorithm, which are also its factory.
pub trait ControllerConfig: Debug + Send + Sync {
    /// The algorithm's name in configurations, scenarios and results.
    fn name(&self) -> &'static str;

    /// Makes a controller for a new path.
    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller>;
}
