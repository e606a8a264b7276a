//! Copa (Arun and Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the
//! Internet", NSDI '18): moves its window towards a rate of 1 / (delta * queueing delay).
//!
//! Sections cited here are the paper's. The page `docs/research/cc/copa.md` tells when to use it.

mod delay;
mod mode;
mod velocity;

use std::time::Duration;

use serde::Deserialize;

use crate::algorithm::{self, AlgorithmEntry};
use crate::window::core::{AckEvent, Congestion, WindowCore};
use crate::window::settings::{positive, share};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, PathModel,
    PathStart, SentPacket, Time,
};
use delay::Delay;
use mode::CopaMode;
use velocity::Velocity;

/// The algorithms of this family.
pub(crate) const ENTRIES: &[AlgorithmEntry] = &[AlgorithmEntry {
    names: &["copa"],
    summary: "Copa: a short queue, and a share of the link beside flows that fill it",
    source: "Copa, NSDI 2018",
    make: algorithm::read_settings::<CopaConfig>,
}];

/// Pacing rate in windows per RTTstanding: twice the rate, so that the pacer does not delay packets when
/// acknowledgements arrive (Section 2.1).
const PACING_GAIN: f64 = 2.0;
/// Lost packets in a round that a loss rate needs, at least.
/// Chosen by `random_loss_is_ignored_and_heavy_loss_is_not`.
const MIN_LOSSES: u64 = 2;
/// A warm start finds a standing queue if the smoothed RTT is more than this multiple of the base RTT.
const STANDING_QUEUE_RTT_RATIO: f64 = 1.25;
/// Share of it that a warm start takes from the window. Copa drains a long queue with ever longer steps, the last of which
/// leaves the link idle for longer the longer the queue was. Measured in docs/research/mcc.md (Migration).
const DRAINED_QUEUE: f64 = 0.5;

/// Settings of Copa; also its factory.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopaConfig {
    /// delta of the default mode: a flow keeps about 1/delta packets in the queue (Section 2). Larger
    /// has less delay and needs a path with less jitter; smaller more throughput and more queue.
    #[serde(deserialize_with = "positive")]
    pub delta: f64,
    /// Whether the flow competes with flows that fill buffers (Section 2.2). If not, it yields nearly
    /// everything to them. If so, it may mistake its own queue for theirs and keep it filled.
    pub competitive_mode: bool,
    /// Loss rate of a round above which the window is reduced to what was delivered, in any mode. The paper
    /// does not respond to loss, which in a buffer smaller than 1/delta packets, where the delay does not
    /// show, is unbounded. Its authors' implementation (`ccp_copa`) responds to 10 % as well. With a smaller
    /// value random loss reduces the window.
    #[serde(deserialize_with = "share")]
    pub max_loss: f64,
}

impl Default for CopaConfig {
    fn default() -> Self {
        Self { delta: 0.5, competitive_mode: true, max_loss: 0.1 }
    }
}

impl ControllerConfig for CopaConfig {
    fn name(&self) -> &'static str {
        "copa"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Copa {
            config: *self,
            core: WindowCore::new(start),
            slow_start: true,
            delay: Delay::default(),
            mode: CopaMode::new(self.delta, self.competitive_mode),
            velocity: Velocity::default(),
            round: RoundLosses::default(),
        })
    }
}

/// The Copa controller, with the settings of a [`CopaConfig`].
#[derive(Debug)]
struct Copa {
    config: CopaConfig,
    core: WindowCore,
    slow_start: bool,
    delay: Delay,
    mode: CopaMode,
    velocity: Velocity,
    round: RoundLosses,
}

/// Packets of a round. An ECN-CE mark counts as a loss (RFC 9002, Section 7.1).
#[derive(Clone, Copy, Debug, Default)]
struct RoundLosses {
    lost: u64,
    acked: u64,
}

impl RoundLosses {
    fn share(&self) -> f64 {
        match self.lost >= MIN_LOSSES {
            true => self.lost as f64 / (self.lost + self.acked) as f64,
            false => 0.0,
        }
    }
}

impl Copa {
    fn set_window(&mut self, window: f64) {
        self.core.set_window(window);
        if !self.slow_start {
            self.core.end_slow_start();
        }
    }

    fn on_round(&mut self, used: bool) {
        let round = std::mem::take(&mut self.round);
        self.mode.on_round(round.lost > 0);
        let share = round.share();
        if share > self.config.max_loss {
            self.slow_start = false;
            self.set_window(self.core.window() * (1.0 - share));
            self.velocity.reset(self.core.packets());
            return;
        }
        let limit = self.mode.delta() * self.core.packets();
        match used && !self.slow_start {
            true => self.velocity.on_round(self.core.packets(), limit),
            false => self.velocity.reset(self.core.packets()),
        }
    }

    /// Moves the window towards the target rate (Section 2.1).
    fn adjust(&mut self, ack: &AckEvent) {
        let Some((standing, queueing)) = self.delay.standing_and_queueing() else { return };
        let (packets, delta) = (self.core.packets(), self.mode.delta());
        // lambda = cwnd / RTTstanding against lambda_t = 1 / (delta * d_q).
        let increase = packets * delta * queueing.as_secs_f64() <= standing.as_secs_f64();
        if self.slow_start {
            if increase {
                let bytes = if ack.used { ack.delivered_bytes } else { 0 };
                return self.core.slow_start(bytes as f64);
            }
            self.slow_start = false;
        }
        let velocity = self.velocity.towards(increase, packets);
        if increase && !ack.used {
            return;
        }
        // v / (delta * cwnd) packets for each that is acknowledged.
        let change = velocity / (delta * packets) * ack.delivered_bytes as f64;
        let window = self.core.window();
        self.set_window(if increase { window + change } else { window - change });
    }

    fn state(&self) -> &'static str {
        match self.slow_start {
            true => "slow-start",
            false => self.mode.name(),
        }
    }
}

impl Controller for Copa {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        if self.core.on_sent(packet).is_some() {
            self.mode.on_idle_end();
            self.velocity.reset(self.core.packets());
        }
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        let (congestion, ack) = self.core.on_event(event);
        self.round.acked += event.acked.len() as u64;
        self.round.lost += event.lost.len() as u64 + event.ecn_ce;
        if let Some(rtt) = event.rtt {
            self.delay.add(event.now, &rtt);
        }
        match congestion {
            Congestion::None => {}
            Congestion::Loss => self.mode.on_loss(),
            Congestion::Persistent => {
                self.core.collapse();
                self.core.begin_slow_start();
                self.slow_start = true;
                self.mode.on_loss();
                self.velocity.reset(self.core.packets());
            }
        }
        if self.delay.is_queue_nearly_empty() {
            self.mode.on_empty_queue();
        }
        if ack.round_ended {
            self.on_round(ack.used);
        }
        if ack.delivered_bytes > 0 {
            self.adjust(&ack);
        }
    }

    fn on_app_limited(&mut self, _now: Time, _in_flight_bytes: u64) {
        self.core.on_starved();
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.core.on_mtu(mtu_bytes);
        self.velocity.reset(self.core.packets());
    }

    fn init_from_path(&mut self, now: Time, path: &PathModel) {
        self.core.init_from_path(path);
        if let Some(queue) = path.standing_queue(STANDING_QUEUE_RTT_RATIO) {
            let kept = 1.0 - DRAINED_QUEUE * queue.div_duration_f64(path.smoothed_rtt);
            self.core.set_window(kept * self.core.window());
        }
        self.slow_start = false;
        self.delay = Delay::default();
        if let Some(rtt) = self.core.rtt() {
            self.delay.init_from_path(now, rtt);
        }
        self.mode = CopaMode::new(self.config.delta, self.config.competitive_mode);
        self.velocity.reset(self.core.packets());
    }

    fn window_bytes(&self) -> u64 {
        self.core.window_bytes()
    }

    fn pacing_rate(&self) -> Bandwidth {
        let standing = self.delay.standing_and_queueing().map(|(standing, _)| standing);
        self.core.paced_at(PACING_GAIN, standing)
    }

    fn metrics(&self) -> ControllerMetrics {
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let mut figures = vec![("delta", self.mode.delta()), ("velocity", self.velocity.value())];
        if let Some((standing, queueing)) = self.delay.standing_and_queueing() {
            figures.push(("standing_rtt_ms", ms(standing)));
            figures.push(("queueing_delay_ms", ms(queueing)));
        }
        ControllerMetrics {
            state: self.state(),
            pacing_rate: self.pacing_rate(),
            window_bytes: self.window_bytes(),
            figures,
        }
    }
}

#[cfg(test)]
mod tests;
