use std::time::Duration;

use serde::Deserialize;

use super::controller::{Law, WindowController};
use super::core::{AckEvent, WindowCore};
use super::settings::share;
use crate::{Bandwidth, Controller, ControllerConfig, PathModel, PathStart, Time};

/// Least duration of a bandwidth sample (Linux, `TCP_WESTWOOD_RTT_MIN`): a shorter one would measure bunched
/// acknowledgements.
const MIN_SAMPLE_DURATION: Duration = Duration::from_millis(50);
/// Share of the window that remains after a loss while the bandwidth is unknown (as Reno).
const UNKNOWN_BANDWIDTH_REDUCTION: f64 = 0.5;

/// Settings of Westwood+ (Grieco and Mascolo, "Performance Evaluation and Comparison of
/// Westwood+, New Reno, and Vegas TCP Congestion Control", CCR 34(2), 2004); also its factory.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WestwoodConfig {
    /// alpha, weight of the old bandwidth estimate against a new sample (Section 2; 0.9, about
    /// ten round trips). A larger value misses changes of the link. A smaller one follows random variation,
    /// and the window falls further at the next loss. (Linux has two consecutive filters of 7/8.)
    #[serde(deserialize_with = "share")]
    pub bandwidth_memory: f64,
    /// As in [`RenoConfig`](super::RenoConfig).
    pub paced: bool,
}

impl Default for WestwoodConfig {
    fn default() -> Self {
        Self { bandwidth_memory: 0.9, paced: true }
    }
}

impl ControllerConfig for WestwoodConfig {
    fn name(&self) -> &'static str {
        "westwood"
    }

    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller> {
        let estimate = Estimate {
            memory: self.bandwidth_memory,
            bytes_per_s: None,
            sampled_at: now,
            sample_bytes: 0,
        };
        Box::new(WindowController::new(start, self.paced, Westwood { estimate, rtt_min: None }))
    }
}

#[derive(Debug)]
struct Westwood {
    estimate: Estimate,
    /// RTTmin.
    rtt_min: Option<Duration>,
}

/// BWE: the rate at which data is acknowledged, sampled once a round trip.
#[derive(Debug)]
struct Estimate {
    memory: f64,
    bytes_per_s: Option<f64>,
    sampled_at: Time,
    sample_bytes: u64,
}

impl Estimate {
    /// Adds acknowledged bytes. Samples of a sender without data count only if they are higher than the
    /// estimate.
    fn add(&mut self, now: Time, bytes: u64, rtt: Duration, starved: bool) {
        self.sample_bytes += bytes;
        let passed = now - self.sampled_at;
        if passed < rtt.max(MIN_SAMPLE_DURATION) {
            return;
        }
        let sample = self.sample_bytes as f64 / passed.as_secs_f64();
        self.begin_sample(now);
        self.bytes_per_s = match self.bytes_per_s {
            None => Some(sample),
            Some(before) if starved && sample < before => Some(before),
            Some(before) => Some(self.memory * before + (1.0 - self.memory) * sample),
        };
    }

    fn begin_sample(&mut self, now: Time) {
        self.sampled_at = now;
        self.sample_bytes = 0;
    }
}

impl Law for Westwood {
    fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.rtt_min = Some(self.rtt_min.map_or(rtt.latest, |least| least.min(rtt.latest)));
        }
        let rtt = core.rtt().map_or(Duration::ZERO, |rtt| rtt.smoothed);
        self.estimate.add(ack.now, ack.delivered_bytes, rtt, core.is_starved());
        core.grow_as_reno(ack.growth_bytes);
    }

    /// ssthresh = BWE * RTTmin: fills the path and leaves the queue empty (Section 2). At most the
    /// window.
    fn on_loss(&mut self, core: &WindowCore) -> f64 {
        let (Some(rate), Some(rtt)) = (self.estimate.bytes_per_s, self.rtt_min) else {
            return core.window() * UNKNOWN_BANDWIDTH_REDUCTION;
        };
        (rate * rtt.as_secs_f64()).min(core.window())
    }

    /// The path may have changed (Linux, `reset_rtt_min`).
    fn on_collapse(&mut self) {
        self.rtt_min = None;
    }

    fn on_idle_end(&mut self, now: Time) {
        self.estimate.begin_sample(now);
    }

    fn on_init_from_path(&mut self, _core: &WindowCore, path: &PathModel) {
        self.rtt_min = path.min_rtt;
        let known = path.max_delivery_rate > Bandwidth::ZERO;
        self.estimate.bytes_per_s = known.then(|| path.max_delivery_rate.bytes_per_s() as f64);
    }

    fn figures(&self, figures: &mut Vec<(&'static str, f64)>) {
        if let Some(rate) = self.estimate.bytes_per_s {
            figures.push(("bandwidth_estimate_mbps", rate * 8.0 / 1e6));
        }
        if let Some(rtt) = self.rtt_min {
            figures.push(("rtt_min_ms", rtt.as_secs_f64() * 1e3));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn estimate() -> Estimate {
        Estimate { memory: 0.9, bytes_per_s: None, sampled_at: at(0), sample_bytes: 0 }
    }

    #[test]
    fn the_filter_keeps_nine_tenths() {
        let (mut estimate, rtt) = (estimate(), Duration::from_millis(100));
        estimate.add(at(50), 1_000, rtt, false);
        assert_eq!(estimate.bytes_per_s, None, "a round trip has not passed");
        estimate.add(at(100), 9_000, rtt, false);
        assert_eq!(estimate.bytes_per_s, Some(100_000.0));
        estimate.add(at(200), 20_000, rtt, false);
        assert_eq!(estimate.bytes_per_s, Some(110_000.0));
        estimate.add(at(300), 0, rtt, true);
        assert_eq!(estimate.bytes_per_s, Some(110_000.0), "there was no data");
        estimate.add(at(400), 0, rtt, false);
        assert_eq!(estimate.bytes_per_s, Some(99_000.0));
    }

    #[test]
    fn short_round_trips_are_sampled_together() {
        let (mut estimate, rtt) = (estimate(), Duration::from_millis(1));
        for ms in 1..50 {
            estimate.add(at(ms), 1_000, rtt, false);
            assert_eq!(estimate.bytes_per_s, None);
        }
        estimate.add(at(50), 1_000, rtt, false);
        assert_eq!(estimate.bytes_per_s, Some(1e6));
    }

    #[test]
    fn a_loss_leaves_what_fills_the_path() {
        let mut westwood = Bench::new(&WestwoodConfig::default(), 10);
        westwood.round(100, 1);
        assert_eq!(westwood.packets(), 5.0, "nothing is known yet");
        for _ in 0..100 {
            westwood.round(100, 0);
        }
        let window = westwood.packets();
        // A window in 200 ms, of which 100 ms are queue: half of it fills the path.
        for _ in 0..100 {
            westwood.round(200, 0);
        }
        assert_eq!(westwood.figure("rtt_min_ms"), 100.0);
        let at_loss = westwood.packets();
        westwood.round(200, 1);
        let left = westwood.packets();
        let kept = left / at_loss;
        assert!((0.46..0.50).contains(&kept), "{window} {at_loss} {left}: the filter lags");
        assert!((westwood.figure("ssthresh_bytes") - left * 1e3).abs() < 1e3);
    }

    #[test]
    fn without_a_queue_a_loss_costs_little() {
        let mut westwood = Bench::new(&WestwoodConfig::default(), 100);
        westwood.round(100, 1);
        for _ in 0..200 {
            westwood.round(100, 0);
        }
        let before = westwood.packets();
        westwood.round(100, 1);
        assert!(westwood.packets() > 0.94 * before, "{before} {}", westwood.packets());
        assert!(westwood.packets() <= before + 1.0);
    }
}
