use std::time::Duration;

use serde::Deserialize;

use super::controller::{Law, WindowController};
use super::core::{AckEvent, WindowCore};
use super::settings::positive;
use crate::{Controller, ControllerConfig, PathModel, PathStart, Time};

/// Samples of a round that a decision needs: fewer may all be of delayed acknowledgements (Linux,
/// `tcp_vegas_cong_avoid`).
const MIN_ROUND_SAMPLES: u32 = 3;
/// Largest window, packets, that counts as minimal. With acknowledgements for two packets each, three
/// samples need six to seven packets.
/// Chosen by `a_longer_path_does_not_hold_it_at_the_least_window`.
const MAX_MINIMAL_WINDOW_PACKETS: f64 = 8.0;
/// Consecutive rounds with a minimal window and too large a Diff that show a longer path.
/// Chosen by `a_longer_path_does_not_hold_it_at_the_least_window`.
const MAX_MINIMAL_WINDOW_ROUNDS: u32 = 10;
/// Least RTT: Diff divides by it.
const MIN_RTT: Duration = Duration::from_nanos(1);

/// Settings of Vegas (Brakmo and Peterson, "TCP Vegas: New Techniques for Congestion
/// Detection and Avoidance", SIGCOMM '94, with the decisions of Linux' `tcp_vegas`); also its factory.
///
/// Linux' slow start doubles every round, the paper's every second one. This is Linux', to which
/// other papers compare.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VegasConfig {
    /// Queued packets of the flow below which the window grows. A smaller value leaves a link with a
    /// little jitter empty.
    #[serde(deserialize_with = "positive")]
    pub alpha_packets: f64,
    /// Queued packets of the flow above which the window shrinks. A larger value makes a longer queue for
    /// each flow.
    #[serde(deserialize_with = "positive")]
    pub beta_packets: f64,
    /// Queued packets of the flow above which slow start ends. A smaller value ends it at the first sign of jitter.
    #[serde(deserialize_with = "positive")]
    pub gamma_packets: f64,
    /// As in [`RenoConfig`](super::RenoConfig).
    pub paced: bool,
}

impl Default for VegasConfig {
    /// Linux' values.
    fn default() -> Self {
        Self { alpha_packets: 2.0, beta_packets: 4.0, gamma_packets: 1.0, paced: true }
    }
}

impl ControllerConfig for VegasConfig {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        let vegas = Vegas {
            config: *self,
            base: None,
            round_min: None,
            samples: 0,
            minimal_window_rounds: 0,
            diff: 0.0,
        };
        Box::new(WindowController::new(start, self.paced, vegas))
    }
}

#[derive(Debug)]
struct Vegas {
    config: VegasConfig,
    /// BaseRTT: the smallest since the sender last was idle.
    base: Option<Duration>,
    /// The smallest of the round, which filters out delayed acknowledgements.
    round_min: Option<Duration>,
    samples: u32,
    minimal_window_rounds: u32,
    /// Diff of the last round, packets.
    diff: f64,
}

impl Vegas {
    fn sample(&mut self, rtt: Duration) {
        let rtt = rtt.max(MIN_RTT);
        let least = |before: Option<Duration>| Some(before.map_or(rtt, |least| least.min(rtt)));
        self.base = least(self.base);
        self.round_min = least(self.round_min);
        self.samples += 1;
    }

    fn begin_round(&mut self) {
        self.round_min = None;
        self.samples = 0;
    }

    fn on_round(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        let (Some(base), Some(rtt)) = (self.base, self.round_min) else { return };
        if self.samples < MIN_ROUND_SAMPLES {
            return core.grow_as_reno(ack.growth_bytes);
        }
        let window = core.packets();
        self.diff = diff(window, base, rtt);
        self.detect_longer_path(window, rtt);
        let slow_start = core.is_slow_start();
        if slow_start && self.diff > self.config.gamma_packets {
            // The window that fills the path without a queue, plus one packet (as in Linux).
            let target = window * base.as_secs_f64() / rtt.as_secs_f64() + 1.0;
            core.set_window(target.min(window) * core.mtu());
            core.end_slow_start();
        } else if slow_start {
            core.slow_start(ack.growth_bytes as f64);
        } else if self.diff > self.config.beta_packets {
            core.set_window((window - 1.0) * core.mtu());
            core.end_slow_start();
        } else if self.diff < self.config.alpha_packets && ack.growth_bytes > 0 {
            core.set_window((window + 1.0) * core.mtu());
        }
    }
}

impl Vegas {
    /// Resets BaseRTT after a path change to a longer path: the delay stays high with a minimal window, so the
    /// flow does not cause it.
    ///
    /// Linux keeps BaseRTT until a pause, and the flow stays at its least window. That a longer path looks
    /// like a queue is known (La, Walrand and Anantharam, "Issues in TCP Vegas", 1999).
    fn detect_longer_path(&mut self, window: f64, rtt: Duration) {
        let is_minimal =
            window <= MAX_MINIMAL_WINDOW_PACKETS && self.diff > self.config.beta_packets;
        self.minimal_window_rounds = if is_minimal { self.minimal_window_rounds + 1 } else { 0 };
        if self.minimal_window_rounds >= MAX_MINIMAL_WINDOW_ROUNDS {
            self.minimal_window_rounds = 0;
            self.base = Some(rtt);
        }
    }
}

/// Diff = (Expected - Actual) * BaseRTT, in packets that wait in queues, as Linux computes it:
/// the window times (RTT - BaseRTT) / BaseRTT.
///
/// The paper divides by the RTT and gets a little less. For a few packets the difference is
/// negligible.
fn diff(window: f64, base: Duration, rtt: Duration) -> f64 {
    let (base_s, rtt_s) = (base.as_secs_f64(), rtt.as_secs_f64());
    window * (rtt_s - base_s).max(0.0) / base_s
}

impl Law for Vegas {
    fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.sample(rtt.latest);
        }
        if ack.round_ended {
            // After a loss the queue is unknown for a whole round.
            if !core.is_recovery() {
                self.on_round(core, ack);
            }
            self.begin_round();
        } else if core.is_slow_start() {
            core.slow_start(ack.growth_bytes as f64);
        }
    }

    /// As Reno: Linux omits the paper's reduction to three quarters.
    fn on_loss(&mut self, core: &WindowCore) -> f64 {
        self.begin_round();
        core.window() * 0.5
    }

    /// The path may have changed during a pause (Linux, `tcp_vegas_cwnd_event`).
    fn on_idle_end(&mut self, _now: Time) {
        self.base = None;
        self.begin_round();
    }

    fn on_init_from_path(&mut self, _core: &WindowCore, path: &PathModel) {
        self.base = path.min_rtt.map(|rtt| rtt.max(MIN_RTT));
        self.begin_round();
    }

    fn figures(&self, figures: &mut Vec<(&'static str, f64)>) {
        figures.push(("diff_packets", self.diff));
        if let Some(base) = self.base {
            figures.push(("base_rtt_ms", base.as_secs_f64() * 1e3));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// In avoidance with BaseRTT 100 ms.
    fn steady() -> Bench {
        let mut vegas = Bench::new(&VegasConfig::default(), 10);
        for _ in 0..4 {
            vegas.round(100, 0);
        }
        vegas.round(120, 0);
        vegas.round(120, 0);
        assert_eq!(vegas.state(), "avoidance");
        vegas
    }

    #[test]
    fn diff_is_the_packets_that_wait() {
        assert!((diff(20.0, ms(100), ms(110)) - 2.0).abs() < 1e-9);
        assert!((diff(100.0, ms(50), ms(52)) - 4.0).abs() < 1e-9);
        assert_eq!(diff(20.0, ms(100), ms(100)), 0.0);
    }

    #[test]
    fn slow_start_ends_at_what_fills_the_path() {
        let mut vegas = Bench::new(&VegasConfig::default(), 10);
        vegas.round(100, 0);
        vegas.round(100, 0);
        assert_eq!(vegas.packets(), 40.0);
        // Before this round ends 79 packets more: its first acknowledgement begins it.
        vegas.round(125, 0);
        assert_eq!((vegas.state(), vegas.packets()), ("slow-start", 80.0));
        vegas.round(125, 0);
        // Diff = 80 / 4 = 20 > 1: 80 * 100 / 125 + 1.
        assert_eq!((vegas.state(), vegas.packets()), ("avoidance", 65.0));
        assert!((vegas.figure("diff_packets") - 20.0).abs() < 1e-9);
    }

    #[test]
    fn it_holds_between_two_and_four_packets() {
        let mut vegas = steady();
        let window = vegas.packets();
        for (queued, change) in [(1.0, 1.0), (3.0, 0.0), (6.0, -1.0)] {
            // The first of two rounds judges the one before it.
            let rtt_ms = 100.0 * (1.0 + queued / window);
            vegas.round_us((rtt_ms * 1e3) as u64, 0);
            let before = vegas.packets();
            vegas.round_us((rtt_ms * 1e3) as u64, 0);
            assert_eq!(vegas.packets() - before, change, "{queued}");
        }
    }

    #[test]
    fn a_longer_path_does_not_hold_it_at_the_least_window() {
        let mut vegas = steady();
        for _ in 0..400 {
            vegas.round(700, 0);
        }
        assert!((vegas.figure("base_rtt_ms") - 700.0).abs() < 1e-9);
        assert!(vegas.packets() > 20.0, "{}", vegas.packets());
    }

    #[test]
    fn a_loss_halves() {
        let mut vegas = steady();
        let window = vegas.packets();
        vegas.round(103, 1);
        assert!((vegas.packets() - window / 2.0).abs() <= 1.0, "{window} {}", vegas.packets());
    }

    #[test]
    fn base_rtt_is_measured_again_after_a_pause() {
        let mut vegas = steady();
        assert!((vegas.figure("base_rtt_ms") - 100.0).abs() < 1e-9);
        vegas.controller.on_app_limited(vegas.now, 0);
        vegas.now += Duration::from_secs(10);
        vegas.round(150, 0);
        assert!((vegas.figure("base_rtt_ms") - 150.0).abs() < 1e-9);
    }
}
