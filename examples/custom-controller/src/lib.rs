//! `delay-aimd`: a congestion controller in a crate of its own.
//!
//! It keeps a small queue: the window grows by one packet in a round trip while packets wait for less than a target, and
//! becomes smaller by a fraction when they wait longer or are lost. It is an example and not a recommendation: beside
//! CUBIC it gets next to nothing, as all algorithms that keep queues short (see the Copa paper, NSDI '18, Section 2.2).

use std::time::Duration;

use millrace_cc::registry::{self, AddError};
use millrace_cc::{
    AlgorithmEntry, Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics,
    PathModel, PathStart, SentPacket, Time, read_settings,
};
use serde::Deserialize;

const ENTRIES: &[AlgorithmEntry] = &[AlgorithmEntry {
    names: &["delay-aimd"],
    summary: "additive increase and multiplicative decrease by the queueing delay",
    source: "examples/custom-controller",
    make: read_settings::<DelayAimdConfig>,
}];

/// Least window, in packets (RFC 9002, Section 7.2).
const MIN_WINDOW_PACKETS: f64 = 2.0;
/// Packets leave a little faster than a window in a round trip, so that the window decides and not the pacing
/// (RFC 9002, Section 7.7).
const PACING_GAIN: f64 = 1.25;

/// Makes `delay-aimd` known to configurations and scenarios.
///
/// # Errors
/// Another algorithm has its name, or algorithms were added before.
pub fn register() -> Result<(), AddError> {
    registry::add(ENTRIES)
}

/// Parameters of `delay-aimd`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DelayAimdConfig {
    /// How long packets may wait in the queue, in milliseconds.
    pub max_queueing_ms: f64,
    /// What is left of the window after a loss or a queue that is too long, between 0 and 1.
    pub reduction: f64,
}

impl Default for DelayAimdConfig {
    fn default() -> Self {
        Self { max_queueing_ms: 10.0, reduction: 0.85 }
    }
}

impl ControllerConfig for DelayAimdConfig {
    fn name(&self) -> &'static str {
        "delay-aimd"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(DelayAimd {
            config: *self,
            mtu_bytes: start.mtu_bytes as f64,
            window_bytes: start.initial_window_bytes as f64,
            smoothed_rtt: start.initial_rtt,
            phase: Phase::SlowStart,
            next_reduction: Time::ZERO,
        })
    }
}

/// How the window grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It doubles in a round trip.
    SlowStart,
    /// It grows by a packet in a round trip.
    Avoidance,
}

#[derive(Debug)]
struct DelayAimd {
    config: DelayAimdConfig,
    mtu_bytes: f64,
    window_bytes: f64,
    smoothed_rtt: Duration,
    phase: Phase,
    /// One reduction in a round trip: its effect can't be seen earlier.
    next_reduction: Time,
}

impl DelayAimd {
    /// Whether the queue is too long, or packets were lost.
    fn is_congested(&self, event: &CongestionEvent<'_>) -> bool {
        let target = Duration::from_secs_f64(self.config.max_queueing_ms / 1e3);
        let waited = event.rtt.map(|rtt| rtt.latest.saturating_sub(rtt.min));
        !event.lost.is_empty() || waited.is_some_and(|waited| waited > target)
    }

    fn grow(&mut self, acked_bytes: f64) {
        self.window_bytes += match self.phase {
            Phase::SlowStart => acked_bytes,
            Phase::Avoidance => self.mtu_bytes * acked_bytes / self.window_bytes,
        };
    }

    fn reduce(&mut self, now: Time) {
        if now < self.next_reduction {
            return;
        }
        self.phase = Phase::Avoidance;
        self.window_bytes =
            (self.window_bytes * self.config.reduction).max(MIN_WINDOW_PACKETS * self.mtu_bytes);
        self.next_reduction = now + self.smoothed_rtt;
    }
}

impl Controller for DelayAimd {
    fn on_packet_sent(&mut self, _packet: &SentPacket) {}

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        if let Some(rtt) = event.rtt {
            self.smoothed_rtt = rtt.smoothed;
        }
        if self.is_congested(event) {
            self.reduce(event.now);
        } else if !event.app_limited {
            // A window that was not used says nothing about the path (RFC 9002, Section 7.8).
            self.grow(event.acked.iter().map(|packet| packet.bytes as f64).sum());
        }
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes as f64;
    }

    fn init_from_path(&mut self, _now: Time, path: &PathModel) {
        let carried = path.max_delivery_rate.bytes_in(path.smoothed_rtt);
        self.window_bytes = self.window_bytes.max(carried as f64);
        self.smoothed_rtt = path.smoothed_rtt;
        self.phase = Phase::Avoidance;
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }

    fn pacing_rate(&self) -> Bandwidth {
        Bandwidth::from_bytes_and_time(self.window_bytes(), self.smoothed_rtt).scaled(PACING_GAIN)
    }

    fn metrics(&self) -> ControllerMetrics {
        let state = match self.phase {
            Phase::SlowStart => "slow_start",
            Phase::Avoidance => "avoidance",
        };
        ControllerMetrics {
            state,
            pacing_rate: self.pacing_rate(),
            window_bytes: self.window_bytes(),
            figures: Vec::new(),
        }
    }
}
