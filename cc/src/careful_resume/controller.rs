use std::sync::Arc;
use std::time::Duration;

use super::phase::{Phase, Phases, Transition};
use super::{CarefulResumeConfig, SavedPath};
use crate::estimators::RateSampler;
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, LostPacket,
    PathModel, PathStart, SentPacket, Time, Tuning,
};

impl ControllerConfig for CarefulResumeConfig {
    fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(CarefulResume {
            algorithm: Arc::clone(&self.algorithm),
            inner: self.algorithm.build(now, start),
            start: *start,
            resume: Some(Resume::new(self.saved, start)),
            first_number: 0,
            mtu_bytes: start.mtu_bytes,
            tuning: None,
        })
    }
}

/// A controller that begins with saved parameters.
#[derive(Debug)]
struct CarefulResume {
    algorithm: Arc<dyn ControllerConfig>,
    inner: Box<dyn Controller>,
    start: PathStart,
    /// Present until saved parameters no longer matter.
    resume: Option<Resume>,
    /// First packet of the inner controller, which is replaced at the jump and after a retreat.
    first_number: u64,
    mtu_bytes: u64,
    /// The last change of the objective, for the next inner controller.
    tuning: Option<Tuning>,
}

/// What is measured while saved parameters matter.
#[derive(Debug)]
struct Resume {
    phases: Phases,
    sampler: RateSampler,
    /// Highest delivery rate since the jump.
    delivered: Bandwidth,
    smoothed_rtt: Option<Duration>,
    min_rtt: Option<Duration>,
    next_number: u64,
}

impl Resume {
    fn new(saved: SavedPath, start: &PathStart) -> Self {
        Self {
            phases: Phases::new(saved, start.initial_window_bytes),
            sampler: RateSampler::default(),
            delivered: Bandwidth::ZERO,
            smoothed_rtt: None,
            min_rtt: None,
            next_number: 0,
        }
    }

    fn on_sent(&mut self, packet: &SentPacket) {
        self.phases.on_sent(packet);
        self.sampler.on_sent(packet);
        self.next_number = packet.number + 1;
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>, window_bytes: u64) -> Option<Transition> {
        if let Some(rtt) = event.rtt {
            self.smoothed_rtt = Some(rtt.smoothed);
            self.min_rtt = Some(rtt.min);
        }
        for packet in event.lost {
            self.sampler.on_lost(packet);
        }
        if let Some(rate) = self.sampler.on_acked(event).and_then(|sample| sample.rate) {
            self.delivered = self.delivered.max(rate);
        }
        self.phases.on_event(event, window_bytes)
    }

    /// Most bytes in flight, and the rate at which they leave evenly; `None` where the algorithm alone decides.
    fn bounds(&self) -> Option<(u64, Bandwidth)> {
        let window = self.phases.window_bytes()?;
        Some((window, Bandwidth::from_bytes_and_time(window, self.min_rtt?)))
    }

    /// The path as the retreat leaves it: what it delivered, without the queue.
    fn path(&self, initial_window_bytes: u64) -> Option<PathModel> {
        let mut path = PathModel::default();
        let min_rtt = self.min_rtt?;
        path.min_rtt = Some(min_rtt);
        path.smoothed_rtt = min_rtt;
        path.latest_rtt = min_rtt;
        path.window_bytes = self.delivered.bytes_in(min_rtt).max(initial_window_bytes);
        path.delivery_rate = self.delivered;
        path.max_delivery_rate = self.delivered;
        Some(path)
    }
}

impl CarefulResume {
    /// Begins the algorithm again for packets that leave from now on.
    fn restart(&mut self, now: Time, initial_window_bytes: u64) {
        let Some(resume) = &self.resume else { return };
        let initial_rtt = resume.min_rtt.unwrap_or(self.start.initial_rtt);
        let mtu_bytes = self.mtu_bytes;
        let start = PathStart { initial_window_bytes, initial_rtt, mtu_bytes, ..self.start };
        self.inner = self.algorithm.build(now, &start);
        self.first_number = resume.next_number;
        if let Some(tuning) = self.tuning {
            self.inner.tune(tuning);
        }
    }

    fn apply(&mut self, now: Time, transition: Transition) {
        match transition {
            Transition::Jump { window_bytes } => self.restart(now, window_bytes),
            Transition::Retreated => {
                let initial = self.start.initial_window_bytes;
                self.restart(now, initial);
                if let Some(path) = self.resume.as_ref().and_then(|resume| resume.path(initial)) {
                    self.inner.init_from_path(now, &path);
                }
            }
        }
    }

    fn bounds(&self) -> Option<(u64, Bandwidth)> {
        self.resume.as_ref()?.bounds()
    }

    fn phase(&self) -> Phase {
        self.resume.as_ref().map_or(Phase::Normal, |resume| resume.phases.phase())
    }
}

impl Controller for CarefulResume {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        if let Some(resume) = &mut self.resume {
            resume.on_sent(packet);
        }
        self.inner.on_packet_sent(packet);
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        let first = self.first_number;
        let acked = event.acked.partition_point(|packet| packet.number < first);
        let lost = event.lost.partition_point(|packet| packet.number < first);
        let (acked, lost) = (&event.acked[acked..], &event.lost[lost..]);
        self.inner.on_event(&CongestionEvent { acked, lost, ..*event });
        let Some(resume) = &mut self.resume else { return };
        if let Some(transition) = resume.on_event(event, self.inner.window_bytes()) {
            self.apply(event.now, transition);
        }
        if self.phase() == Phase::Normal {
            self.resume = None;
        }
    }

    fn on_packet_discarded(&mut self, number: u64) {
        if let Some(resume) = &mut self.resume {
            resume.sampler.on_discarded(number);
        }
        if number >= self.first_number {
            self.inner.on_packet_discarded(number);
        }
    }

    fn on_spurious_loss(&mut self, now: Time, packet: &LostPacket) {
        if packet.number >= self.first_number {
            self.inner.on_spurious_loss(now, packet);
        }
    }

    fn tune(&mut self, tuning: Tuning) -> bool {
        self.tuning = Some(tuning);
        self.inner.tune(tuning)
    }

    fn on_probe_timeout(&mut self, now: Time) {
        if let Some(resume) = &mut self.resume {
            resume.phases.on_probe_timeout();
        }
        self.inner.on_probe_timeout(now);
    }

    fn on_app_limited(&mut self, now: Time, in_flight_bytes: u64) {
        if let Some(resume) = &mut self.resume {
            resume.sampler.on_app_limited(in_flight_bytes);
        }
        self.inner.on_app_limited(now, in_flight_bytes);
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes;
        self.inner.on_mtu(mtu_bytes);
    }

    fn init_from_path(&mut self, now: Time, path: &PathModel) {
        self.resume = None;
        self.inner.init_from_path(now, path);
    }

    fn window_bytes(&self) -> u64 {
        match (self.phase(), self.bounds()) {
            (Phase::Unvalidated, Some((window, _))) => window,
            (_, Some((window, _))) => window.min(self.inner.window_bytes()),
            (_, None) => self.inner.window_bytes(),
        }
    }

    fn steady_state_window_bytes(&self) -> u64 {
        match self.bounds() {
            Some((window, _)) => window.min(self.inner.steady_state_window_bytes()),
            None => self.inner.steady_state_window_bytes(),
        }
    }

    fn pacing_rate(&self) -> Bandwidth {
        match (self.phase(), self.bounds()) {
            (Phase::Unvalidated, Some((_, rate))) => rate,
            (_, Some((_, rate))) => rate.min(self.inner.pacing_rate()),
            (_, None) => self.inner.pacing_rate(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        if !matches!(self.phase(), Phase::Reconnaissance | Phase::Normal) {
            metrics.state = self.phase().name();
            metrics.window_bytes = self.window_bytes();
            metrics.pacing_rate = self.pacing_rate();
        }
        metrics
    }
}
