//! `aimd`: one packet more in a round trip, a share of the window after a loss.

use std::time::Duration;

use serde::Deserialize;

use crate::algorithm::{self, AlgorithmEntry};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, PathModel,
    PathStart, SentPacket, Time,
};

pub(crate) const ENTRIES: &[AlgorithmEntry] = &[AlgorithmEntry {
    names: &["aimd"],
    summary: "one packet more in a round trip, a share of the window after a loss",
    source: "docs/research/own-algorithm.md",
    make: algorithm::read_settings::<AimdConfig>,
}];

/// Least window in packets (RFC 9002, Section 7.2).
const MIN_WINDOW_PACKETS: f64 = 2.0;
/// The window and not the pacing decides (RFC 9002, Section 7.7).
const PACING_GAIN: f64 = 1.25;

/// Settings of `aimd`: the parameters of configurations and scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AimdConfig {
    /// What a loss leaves of the window, between 0 and 1.
    pub reduction: f64,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self { reduction: 0.7 }
    }
}

impl ControllerConfig for AimdConfig {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Aimd {
            reduction: self.reduction,
            mtu_bytes: start.mtu_bytes as f64,
            window_bytes: start.initial_window_bytes as f64,
            smoothed_rtt: start.initial_rtt,
            is_slow_start: true,
            next_reduction: Time::ZERO,
        })
    }
}

/// A controller with the settings of [`AimdConfig`].
#[derive(Debug)]
struct Aimd {
    reduction: f64,
    mtu_bytes: f64,
    window_bytes: f64,
    smoothed_rtt: Duration,
    is_slow_start: bool,
    /// One reduction in a round trip: its effect can't be seen earlier.
    next_reduction: Time,
}

impl Controller for Aimd {
    fn on_packet_sent(&mut self, _packet: &SentPacket) {}

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        if let Some(rtt) = event.rtt {
            self.smoothed_rtt = rtt.smoothed;
        }
        if !event.lost.is_empty() && event.now >= self.next_reduction {
            let least = MIN_WINDOW_PACKETS * self.mtu_bytes;
            self.window_bytes = (self.window_bytes * self.reduction).max(least);
            self.is_slow_start = false;
            self.next_reduction = event.now + self.smoothed_rtt;
        } else if event.lost.is_empty() && !event.app_limited {
            let acked: f64 = event.acked.iter().map(|packet| packet.bytes as f64).sum();
            let share = if self.is_slow_start { 1.0 } else { self.mtu_bytes / self.window_bytes };
            self.window_bytes += acked * share;
        }
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes as f64;
    }

    fn init_from_path(&mut self, _now: Time, path: &PathModel) {
        let carried = path.max_delivery_rate.bytes_in(path.smoothed_rtt) as f64;
        self.window_bytes = self.window_bytes.max(carried);
        self.is_slow_start = false;
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }

    fn pacing_rate(&self) -> Bandwidth {
        Bandwidth::from_bytes_and_time(self.window_bytes(), self.smoothed_rtt).scaled(PACING_GAIN)
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics {
            state: if self.is_slow_start { "slow_start" } else { "avoidance" },
            pacing_rate: self.pacing_rate(),
            window_bytes: self.window_bytes(),
            figures: Vec::new(),
        }
    }
}
