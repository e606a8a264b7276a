use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, LostPacket,
    PathModel, PathStart, RttSample, SentPacket, Time, Tuning,
};

/// A path with its congestion controller, and the state that outlives the controller: another one can replace it while
/// packets are in flight.
///
/// Live migration as in the MCC paper, Section 3.2.1. *Preparation*: the [`PathModel`] is kept up to date under every
/// controller. *Inheritance* and *probing*: the next controller's [`Controller::init_from_path`].
#[derive(Debug)]
pub struct PathController {
    controller: Box<dyn Controller>,
    path: PathModel,
    /// With the current packet size.
    start: PathStart,
    /// First packet that the controller sent; its predecessor's packets are not reported to it.
    first_number: u64,
    next_number: u64,
}

impl PathController {
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

    /// Hands the path off to a new controller of `config`. `self` loses its path model and must not be used any more.
    ///
    /// The new controller starts warm, from the path model and not in slow start, unless the path is uncharacterised
    /// ([`PathModel::is_uncharacterised`]). There only the window in force is known to fit: the controller starts as on
    /// a new path, with that as its initial window. The paper never uses the initial phase (MCC, Section 3.2.1), but
    /// does not cover path changes.
    #[must_use]
    pub fn replace_with(&mut self, config: &dyn ControllerConfig, now: Time, seed: u64) -> Self {
        let mut path = std::mem::take(&mut self.path);
        path.window_bytes = path.window_bytes.max(self.controller.steady_state_window_bytes());
        let initial_rtt = path.min_rtt.map_or(self.start.initial_rtt, |_| path.smoothed_rtt);
        let start = PathStart { initial_rtt, seed, ..self.start };
        let is_cold =
            path.is_uncharacterised(now) || path.delivered_bytes <= start.initial_window_bytes;
        let initial_window_bytes = match is_cold {
            true => start.initial_window_bytes.max(path.window_bytes),
            false => start.initial_window_bytes,
        };
        let mut controller = config.build(now, &PathStart { initial_window_bytes, ..start });
        if !is_cold {
            controller.init_from_path(now, &path);
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

    /// Reports a packet that leaves ([`Controller::on_packet_sent`]).
    pub fn on_packet_sent(&mut self, packet: &SentPacket) {
        self.next_number = packet.number + 1;
        self.controller.on_packet_sent(packet);
    }

    /// Reports acknowledgements and losses: all to the path model, the controller's own packets to the controller
    /// ([`Controller::on_event`]).
    pub fn on_event(&mut self, event: &CongestionEvent<'_>) {
        let first = self.first_number;
        let acked = event.acked.partition_point(|packet| packet.number < first);
        let lost = event.lost.partition_point(|packet| packet.number < first);
        let rtt = event.rtt.map(|rtt| RttSample { min: self.path.path_min_rtt(&rtt), ..rtt });
        let (acked, lost) = (&event.acked[acked..], &event.lost[lost..]);
        let own = CongestionEvent { acked, lost, rtt, ..*event };
        self.controller.on_event(&own);
        self.path.on_event(event, self.controller.window_bytes());
    }

    /// Reports a packet that will be neither acknowledged nor lost ([`Controller::on_packet_discarded`]).
    pub fn on_packet_discarded(&mut self, number: u64) {
        if number >= self.first_number {
            self.controller.on_packet_discarded(number);
        }
    }

    /// Reports that a packet declared lost was only late ([`Controller::on_spurious_loss`]).
    pub fn on_spurious_loss(&mut self, now: Time, packet: &LostPacket) {
        self.path.on_spurious_loss(packet);
        if packet.number >= self.first_number {
            self.controller.on_spurious_loss(now, packet);
        }
    }

    /// Changes the controller's objective. Returns whether the algorithm supports that ([`Controller::tune`]).
    pub fn tune(&mut self, tuning: Tuning) -> bool {
        self.controller.tune(tuning)
    }

    /// Reports a probe timeout ([`Controller::on_probe_timeout`]).
    pub fn on_probe_timeout(&mut self, now: Time) {
        self.controller.on_probe_timeout(now);
    }

    /// Reports that the sender is out of data ([`Controller::on_app_limited`]).
    pub fn on_app_limited(&mut self, now: Time, in_flight_bytes: u64) {
        self.controller.on_app_limited(now, in_flight_bytes);
    }

    /// Reports a new size of full packets ([`Controller::on_mtu`]).
    pub fn on_mtu(&mut self, mtu_bytes: u64) {
        self.start.mtu_bytes = mtu_bytes;
        self.controller.on_mtu(mtu_bytes);
    }

    /// The congestion window in force ([`Controller::window_bytes`]).
    pub fn window_bytes(&self) -> u64 {
        self.controller.window_bytes()
    }

    /// The pacing rate in force ([`Controller::pacing_rate`]).
    pub fn pacing_rate(&self) -> Bandwidth {
        self.controller.pacing_rate()
    }

    /// The controller's metrics ([`Controller::metrics`]).
    pub fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }
}
