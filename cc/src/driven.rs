use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, LostPacket, Metrics, PathModel,
    PathStart, RttSample, SentPacket, Time, Tuning,
};

/// A path with the controller that drives it now, and what must outlive that one for another to take its
/// place while packets are in flight.
///
/// Live migration as in the MCC paper, Section 3.2.1. *Preparation*: the [`PathModel`] is kept up to date
/// whoever drives. *Inheritance* and *probing*: the successor's [`Controller::inherit`].
#[derive(Debug)]
pub struct Driven {
    controller: Box<dyn Controller>,
    path: PathModel,
    /// With the packet size of now.
    start: PathStart,
    /// The controller hears of no packet before this one: those were its predecessor's.
    first_number: u64,
    next_number: u64,
}

impl Driven {
    /// A new path.
    pub fn new(config: &dyn ControllerConfig, now: Time, start: PathStart) -> Self {
        Self {
            controller: config.build(now, &start),
            path: PathModel::default(),
            start,
            first_number: 0,
            next_number: 0,
        }
    }

    /// The same path, driven by a controller of `config` from now on. What is left behind must not be
    /// used any more: what it knew of the path is gone.
    ///
    /// The successor starts from what is known of the path and not from slow start, but on a path that is new,
    /// or has just become a far longer one ([`PathModel::is_new`]). Nothing is known of its rate, but that it holds
    /// the window that is in force: there the successor starts as on a new path with that for its initial window.
    /// The paper's is never in its initial phase (MCC, Section 3.2.1), but it does not speak of paths that change.
    #[must_use]
    pub fn succeeded_by(&mut self, config: &dyn ControllerConfig, now: Time, seed: u64) -> Self {
        let mut path = std::mem::take(&mut self.path);
        path.window_bytes = path.window_bytes.max(self.controller.lasting_window_bytes());
        let initial_rtt = path.min_rtt.map_or(self.start.initial_rtt, |_| path.smoothed_rtt);
        let start = PathStart { initial_rtt, seed, ..self.start };
        let is_new = path.is_new(now) || path.delivered_bytes <= start.initial_window_bytes;
        let initial_window_bytes = match is_new {
            true => start.initial_window_bytes.max(path.window_bytes),
            false => start.initial_window_bytes,
        };
        let mut controller = config.build(now, &PathStart { initial_window_bytes, ..start });
        if !is_new {
            controller.inherit(now, &path);
        }
        let next_number = self.next_number;
        Self { controller, path, start, first_number: next_number, next_number }
    }

    /// What is known of the path.
    pub fn path(&self) -> &PathModel {
        &self.path
    }

    /// Size of a full packet.
    pub fn mtu_bytes(&self) -> u64 {
        self.start.mtu_bytes
    }

    /// See [`Controller::on_packet_sent`].
    pub fn on_packet_sent(&mut self, packet: &SentPacket) {
        self.next_number = packet.number + 1;
        self.controller.on_packet_sent(packet);
    }

    /// See [`Controller::on_event`].
    pub fn on_event(&mut self, event: &CongestionEvent<'_>) {
        let first = self.first_number;
        let acked = event.acked.partition_point(|packet| packet.number < first);
        let lost = event.lost.partition_point(|packet| packet.number < first);
        let rtt = event.rtt.map(|rtt| RttSample { min: self.path.smallest(&rtt), ..rtt });
        let (acked, lost) = (&event.acked[acked..], &event.lost[lost..]);
        let own = CongestionEvent { acked, lost, rtt, ..*event };
        self.controller.on_event(&own);
        self.path.on_event(event, self.controller.window_bytes());
    }

    /// See [`Controller::on_packet_discarded`].
    pub fn on_packet_discarded(&mut self, number: u64) {
        if number >= self.first_number {
            self.controller.on_packet_discarded(number);
        }
    }

    /// See [`Controller::on_spurious_loss`].
    pub fn on_spurious_loss(&mut self, now: Time, packet: &LostPacket) {
        self.path.on_spurious_loss(packet);
        if packet.number >= self.first_number {
            self.controller.on_spurious_loss(now, packet);
        }
    }

    /// See [`Controller::tune`].
    pub fn tune(&mut self, tuning: Tuning) -> bool {
        self.controller.tune(tuning)
    }

    /// See [`Controller::on_probe_timeout`].
    pub fn on_probe_timeout(&mut self, now: Time) {
        self.controller.on_probe_timeout(now);
    }

    /// See [`Controller::on_app_limited`].
    pub fn on_app_limited(&mut self, now: Time, in_flight_bytes: u64) {
        self.controller.on_app_limited(now, in_flight_bytes);
    }

    /// See [`Controller::on_mtu`].
    pub fn on_mtu(&mut self, mtu_bytes: u64) {
        self.start.mtu_bytes = mtu_bytes;
        self.controller.on_mtu(mtu_bytes);
    }

    /// See [`Controller::window_bytes`].
    pub fn window_bytes(&self) -> u64 {
        self.controller.window_bytes()
    }

    /// See [`Controller::pacing_rate`].
    pub fn pacing_rate(&self) -> Bandwidth {
        self.controller.pacing_rate()
    }

    /// See [`Controller::metrics`].
    pub fn metrics(&self) -> Metrics {
        self.controller.metrics()
    }
}
