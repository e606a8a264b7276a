use std::time::Duration;

use serde::Deserialize;

use super::controller::{Law, WindowController};
use super::core::{AckEvent, WindowCore};
use super::settings::{positive, share};
use crate::{Controller, ControllerConfig, PathModel, PathStart, Time};

/// d1, as a share of the largest queueing delay: up to it alpha is at its maximum (Section 4; Linux).
const D1_FRACTION: f64 = 0.01;
/// d2, as a share of the largest queueing delay: up to it beta is at its minimum (Section 4; Linux).
const D2_FRACTION: f64 = 0.1;
/// d3, as a share of the largest queueing delay: from it on beta is at its maximum (Section 4; Linux).
const D3_FRACTION: f64 = 0.8;
/// theta: rounds that the delay must stay below d1 before alpha returns to its maximum (Section 4; Linux).
const LOW_DELAY_ROUNDS: u32 = 5;
/// W_thresh, packets: below it the law is Reno's (Linux, `win_thresh`).
const RENO_BELOW_PACKETS: f64 = 15.0;
/// alpha of Reno, packets per round (Linux, `ALPHA_BASE`).
const ALPHA_BASE: f64 = 1.0;
/// beta of Reno (Linux, `BETA_BASE`).
const BETA_BASE: f64 = 0.5;
/// Longer RTTs count as this (Linux, `RTT_MAX`: 3.3 s).
const MAX_RTT: Duration = Duration::from_millis(3300);

/// Settings of Illinois (Liu, Basar and Srikant, "TCP-Illinois: A Loss- and Delay-Based
/// Congestion Control Algorithm for High-Speed Networks", Performance Evaluation 65, 2008, with
/// the values of Linux' `tcp_illinois`); also its factory.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IllinoisConfig {
    /// alpha_max, packets per round: growth without a queue. A larger value fills fast links sooner and
    /// loses more packets each time.
    #[serde(deserialize_with = "positive")]
    pub alpha_max: f64,
    /// alpha_min, packets per round: growth with a full queue. A smaller value stays longer just below the loss.
    #[serde(deserialize_with = "positive")]
    pub alpha_min: f64,
    /// beta_min: share of the window given up at a loss without a queue. A smaller value tolerates more
    /// random loss and is less fair to Reno.
    #[serde(deserialize_with = "share")]
    pub beta_min: f64,
    /// beta_max: share given up at a loss with a full queue.
    #[serde(deserialize_with = "share")]
    pub beta_max: f64,
    /// As in [`RenoConfig`](super::RenoConfig).
    pub paced: bool,
}

impl Default for IllinoisConfig {
    /// Linux' values.
    fn default() -> Self {
        Self { alpha_max: 10.0, alpha_min: 0.3, beta_min: 0.125, beta_max: 0.5, paced: true }
    }
}

impl ControllerConfig for IllinoisConfig {
    fn name(&self) -> &'static str {
        "illinois"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(WindowController::new(start, self.paced, Illinois::new(*self)))
    }
}

impl IllinoisConfig {
    /// alpha(d_a) above d1: k1 / (k2 + d_a), which is alpha_max at d1 and alpha_min at d_m
    /// (Section 4).
    fn alpha(&self, average_s: f64, max_s: f64) -> f64 {
        let (range, above) = (max_s * (1.0 - D1_FRACTION), average_s - max_s * D1_FRACTION);
        if above <= 0.0 {
            return self.alpha_max;
        }
        let steepness = (self.alpha_max - self.alpha_min) / self.alpha_min;
        range * self.alpha_max / (range + above * steepness)
    }

    /// beta(d_a): beta_min up to d2, beta_max from d3 on, a line between (Section 4).
    fn beta(&self, average_s: f64, max_s: f64) -> f64 {
        let (d2, d3) = (max_s * D2_FRACTION, max_s * D3_FRACTION);
        if average_s <= d2 {
            return self.beta_min;
        }
        if average_s >= d3 {
            return self.beta_max;
        }
        self.beta_min + (self.beta_max - self.beta_min) * (average_s - d2) / (d3 - d2)
    }
}

#[derive(Debug)]
struct Illinois {
    config: IllinoisConfig,
    alpha: f64,
    beta: f64,
    /// Smallest and largest RTT.
    base: Option<Duration>,
    max: Duration,
    /// Sum and number of the round's samples.
    sum: Duration,
    samples: u32,
    /// Whether the delay has been above d1 since alpha was last at its maximum.
    above: bool,
    low_rounds: u32,
}

impl Illinois {
    fn new(config: IllinoisConfig) -> Self {
        Self {
            config,
            alpha: config.alpha_max,
            beta: BETA_BASE,
            base: None,
            max: Duration::ZERO,
            sum: Duration::ZERO,
            samples: 0,
            above: false,
            low_rounds: 0,
        }
    }

    fn sample(&mut self, rtt: Duration) {
        let rtt = rtt.min(MAX_RTT);
        self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
        self.max = self.max.max(rtt);
        self.sum += rtt;
        self.samples += 1;
    }

    fn begin_round(&mut self) {
        self.sum = Duration::ZERO;
        self.samples = 0;
    }

    fn on_round(&mut self, packets: f64) {
        let Some(base) = self.base.filter(|_| self.samples > 0) else { return };
        if packets < RENO_BELOW_PACKETS {
            (self.alpha, self.beta) = (ALPHA_BASE, BETA_BASE);
            return;
        }
        let average_s = (self.sum / self.samples).saturating_sub(base).as_secs_f64();
        let max_s = self.max.saturating_sub(base).as_secs_f64();
        self.alpha = self.next_alpha(average_s, max_s);
        self.beta = self.config.beta(average_s, max_s);
    }

    /// The largest growth returns after theta rounds with a low delay (Section 4).
    fn next_alpha(&mut self, average_s: f64, max_s: f64) -> f64 {
        if average_s > max_s * D1_FRACTION {
            self.above = true;
            return self.config.alpha(average_s, max_s);
        }
        if self.above {
            self.low_rounds += 1;
            if self.low_rounds < LOW_DELAY_ROUNDS {
                return self.alpha;
            }
        }
        self.low_rounds = 0;
        self.above = false;
        self.config.alpha_max
    }
}

impl Law for Illinois {
    fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.sample(rtt.latest);
        }
        if ack.round_ended {
            self.on_round(core.packets());
            self.begin_round();
        }
        match core.is_slow_start() {
            true => core.slow_start(ack.growth_bytes as f64),
            false => core.grow_additively(self.alpha, ack.growth_bytes),
        }
    }

    fn on_loss(&mut self, core: &WindowCore) -> f64 {
        core.window() * (1.0 - self.beta)
    }

    fn on_collapse(&mut self) {
        (self.alpha, self.beta) = (ALPHA_BASE, BETA_BASE);
        (self.above, self.low_rounds) = (false, 0);
        self.begin_round();
    }

    fn on_init_from_path(&mut self, _core: &WindowCore, path: &PathModel) {
        *self = Self::new(self.config);
        self.base = path.min_rtt.map(|rtt| rtt.min(MAX_RTT));
        // Without it any delay is the largest, and a random loss halves the window.
        self.max = path.max_rtt.min(MAX_RTT);
        // Reno's growth until a round has measured the delay.
        self.alpha = ALPHA_BASE;
    }

    fn figures(&self, figures: &mut Vec<(&'static str, f64)>) {
        figures.push(("alpha_packets", self.alpha));
        figures.push(("beta", self.beta));
        if let Some(base) = self.base {
            figures.push(("base_rtt_ms", base.as_secs_f64() * 1e3));
            figures.push(("max_rtt_ms", self.max.as_secs_f64() * 1e3));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    #[test]
    fn alpha_falls_from_ten_to_three_tenths_with_the_delay() {
        // Largest queueing delay 100 ms, d1 = 1 ms; at 10 ms 99 * 10 / (99 + 9 * 9.7 / 0.3).
        let config = IllinoisConfig::default();
        for (ms, alpha) in
            [(0.0, 10.0), (1.0, 10.0), (10.0, 2.538_462), (50.5, 0.582_524), (100.0, 0.3)]
        {
            let value = config.alpha(ms / 1e3, 0.1);
            assert!((value - alpha).abs() < 1e-5, "{ms}: {value}");
        }
        assert_eq!(config.alpha(0.0, 0.0), 10.0);
    }

    #[test]
    fn beta_rises_from_an_eighth_to_a_half() {
        let config = IllinoisConfig::default();
        for (ms, beta) in [(0.0, 0.125), (10.0, 0.125), (45.0, 0.3125), (80.0, 0.5), (100.0, 0.5)] {
            let value = config.beta(ms / 1e3, 0.1);
            assert!((value - beta).abs() < 1e-9, "{ms}: {value}");
        }
    }

    /// In avoidance; RTTs from 100 to 200 ms have been seen.
    fn steady() -> Bench {
        let mut illinois = Bench::new(&IllinoisConfig::default(), 100);
        illinois.round(100, 1);
        illinois.round(200, 0);
        illinois.round(200, 0);
        illinois
    }

    #[test]
    fn it_grows_slowly_with_a_queue_and_fast_after_five_rounds_without() {
        let mut illinois = steady();
        illinois.round(200, 0);
        assert!((illinois.figure("alpha_packets") - 0.3).abs() < 1e-9);
        let mut alphas = Vec::new();
        for _ in 0..7 {
            illinois.round(100, 0);
            alphas.push(illinois.figure("alpha_packets"));
        }
        // The first sample of a round still belongs to the one before.
        let slow = alphas.iter().take_while(|alpha| **alpha < 1.0).count();
        assert_eq!((slow, *alphas.last().unwrap()), (5, 10.0), "{alphas:?}");
        let before = illinois.packets();
        illinois.round(100, 0);
        assert!((illinois.packets() - before - 10.0).abs() < 1.0);
    }

    #[test]
    fn a_loss_without_a_queue_costs_an_eighth_and_with_one_half() {
        for (rtt_ms, kept) in [(100, 0.875), (200, 0.5)] {
            let mut illinois = steady();
            for _ in 0..8 {
                illinois.round(rtt_ms, 0);
            }
            let before = illinois.packets();
            illinois.round(rtt_ms, 1);
            let left = illinois.packets() / before;
            assert!((left - kept).abs() < 0.02, "{rtt_ms}: {left}");
        }
    }

    #[test]
    fn a_small_window_is_renos() {
        let mut illinois = Bench::new(&IllinoisConfig::default(), 8);
        illinois.round(100, 1);
        illinois.round(100, 0);
        assert_eq!((illinois.figure("alpha_packets"), illinois.figure("beta")), (1.0, 0.5));
    }

    #[test]
    fn random_loss_after_a_warm_start_costs_no_more_than_before() {
        let mut illinois = steady();
        let mut path = PathModel::default();
        path.min_rtt = Some(Duration::from_millis(100));
        path.max_rtt = Duration::from_millis(200);
        path.smoothed_rtt = Duration::from_millis(102);
        path.window_bytes = 1_000_000;
        illinois.controller.init_from_path(illinois.now, &path);
        illinois.round(102, 0);
        illinois.round(102, 0);
        assert!((illinois.figure("beta") - 0.125).abs() < 1e-9, "{}", illinois.figure("beta"));
    }
}
