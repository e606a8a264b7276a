//! Traffic of a UDP flow: bytes, rate and silence.

use std::time::{Duration, Instant};

use crate::flow::Meter;

/// Bytes of both directions of a UDP flow, its age and its silence.
#[derive(Debug)]
pub(crate) struct DatagramTraffic {
    pub(crate) opened: Instant,
    /// When the last datagram came, from either side.
    active: Instant,
    /// From the local socket to the tunnel.
    pub(crate) sent_bytes: u64,
    /// From the tunnel to the local socket.
    pub(crate) received_bytes: u64,
    meter: Meter,
}

impl DatagramTraffic {
    /// A flow that begins `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self { opened: now, active: now, sent_bytes: 0, received_bytes: 0, meter: Meter::default() }
    }

    /// A datagram came from the local socket.
    pub(crate) fn on_local_datagram(&mut self, now: Instant) {
        self.active = now;
    }

    /// A payload came from the tunnel.
    pub(crate) fn on_tunnel_datagram(&mut self, payload_bytes: usize, now: Instant) {
        self.active = now;
        self.received_bytes += payload_bytes as u64;
    }

    /// For how long no datagram has come.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.active)
    }

    /// Updates the displayed rate after an interval.
    pub(crate) fn tick(&mut self, interval: Duration) {
        self.meter.tick(self.sent_bytes + self.received_bytes, interval);
    }

    /// The rate of both directions over the last second or so.
    pub(crate) fn rate_mbps(&self) -> f64 {
        self.meter.mbps()
    }
}
