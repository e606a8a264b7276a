use std::fmt::Debug;

use super::core::{AckEvent, Congestion, WindowCore};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerMetrics, LostPacket, PathModel, PathStart,
    SentPacket, Time,
};

/// The part in which window algorithms differ.
pub(crate) trait Law: Debug + Send + Sync {
    /// An acknowledgement: grows the window by `ack.growth_bytes`.
    fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent);

    /// A recovery period begins. Returns the reduced window in bytes.
    fn on_loss(&mut self, core: &WindowCore) -> f64;

    /// The losses of the last [`on_loss`](Self::on_loss) were spurious.
    fn on_undo(&mut self) {}

    /// Persistent congestion: the state learned from the path is obsolete.
    fn on_collapse(&mut self) {}

    /// The sender had nothing in flight until now.
    fn on_idle_end(&mut self, _now: Time) {}

    /// Packets are `ratio` times as large as before.
    fn on_mtu(&mut self, _ratio: f64) {}

    /// Warm start: `core` has the window of the path that another algorithm used.
    fn on_init_from_path(&mut self, _core: &WindowCore, _path: &PathModel) {}

    /// Name of the phase, if it is not slow start, recovery or avoidance.
    fn state(&self, _core: &WindowCore) -> Option<&'static str> {
        None
    }

    /// Adds the algorithm's figures for observation.
    fn figures(&self, figures: &mut Vec<(&'static str, f64)>);
}

/// A window algorithm: [`WindowCore`] with a [`Law`].
#[derive(Debug)]
pub(crate) struct WindowController<L> {
    core: WindowCore,
    law: L,
    paced: bool,
}

impl<L: Law> WindowController<L> {
    pub(crate) fn new(start: &PathStart, paced: bool, law: L) -> Self {
        let core = WindowCore::new(start);
        let core = if paced { core } else { core.with_idle_restart() };
        Self { core, law, paced }
    }

    fn state(&self) -> &'static str {
        match () {
            () if self.core.is_recovery() => "recovery",
            () => match self.law.state(&self.core) {
                Some(state) => state,
                None if self.core.is_slow_start() => "slow-start",
                None => "avoidance",
            },
        }
    }
}

impl<L: Law> Controller for WindowController<L> {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        if self.core.on_sent(packet).is_some() {
            self.law.on_idle_end(packet.time);
        }
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        let (congestion, ack) = self.core.on_event(event);
        if congestion != Congestion::None {
            let window = self.law.on_loss(&self.core);
            self.core.reduce_to(window);
        }
        if congestion == Congestion::Persistent {
            self.law.on_collapse();
            self.core.collapse();
        }
        if ack.delivered_bytes > 0 {
            self.law.on_ack(&mut self.core, &ack);
        }
    }

    fn on_spurious_loss(&mut self, _now: Time, packet: &LostPacket) {
        if self.core.on_spurious_loss(packet.sent) {
            self.law.on_undo();
        }
    }

    fn on_app_limited(&mut self, _now: Time, _in_flight_bytes: u64) {
        self.core.on_starved();
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        let before = self.core.mtu();
        self.core.on_mtu(mtu_bytes);
        self.law.on_mtu(self.core.mtu() / before);
    }

    fn init_from_path(&mut self, _now: Time, path: &PathModel) {
        self.core.init_from_path(path);
        self.law.on_init_from_path(&self.core, path);
    }

    fn window_bytes(&self) -> u64 {
        self.core.window_bytes()
    }

    fn pacing_rate(&self) -> Bandwidth {
        if self.paced { self.core.pacing_rate() } else { WindowCore::unpaced_rate() }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut figures = Vec::new();
        let threshold = self.core.slow_start_threshold();
        if threshold.is_finite() {
            figures.push(("ssthresh_bytes", threshold));
        }
        self.law.figures(&mut figures);
        ControllerMetrics {
            state: self.state(),
            pacing_rate: self.pacing_rate(),
            window_bytes: self.window_bytes(),
            figures,
        }
    }
}
