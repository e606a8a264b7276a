use std::time::Duration;

use serde::Deserialize;

use super::controller::{Law, WindowController};
use super::core::{AckEvent, WindowCore};
use super::settings::positive;
use crate::{Controller, ControllerConfig, PathStart, Time};

/// Share of the window that remains after a loss: that of Reno, which Hybla leaves as it is (Section 3).
const LOSS_REDUCTION: f64 = 0.5;
/// Largest rho in the exponent of slow start, that of 100 ms: a packet then adds 15. Ours: Linux has 16, with which the
/// first packet of a path of 400 ms adds 65,535.
const MAX_SLOW_START_RHO: f64 = 4.0;

/// Settings of Hybla (Caini and Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks",
/// International Journal of Satellite Communications and Networking 22(5), 2004); also its factory.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HyblaConfig {
    /// RTT0, the round trip of the connection whose rate a flow is to have, in milliseconds (Section 3; 25). A smaller
    /// one grows faster.
    #[serde(deserialize_with = "positive")]
    pub reference_rtt_ms: f64,
    /// As in [`RenoConfig`](super::RenoConfig).
    pub paced: bool,
}

impl Default for HyblaConfig {
    fn default() -> Self {
        Self { reference_rtt_ms: 25.0, paced: true }
    }
}

impl ControllerConfig for HyblaConfig {
    fn name(&self) -> &'static str {
        "hybla"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        let law = Hybla { config: *self, least_rtt: None };
        Box::new(WindowController::new(start, self.paced, law))
    }
}

#[derive(Debug)]
struct Hybla {
    config: HyblaConfig,
    /// Least smoothed round trip, as in Linux: a queue does not make the flow more aggressive.
    least_rtt: Option<Duration>,
}

impl Hybla {
    /// rho, at least 1: short round trips grow as with Reno (Section 3).
    fn rho(&self) -> f64 {
        let rtt_ms = self.least_rtt.map_or(0.0, |rtt| rtt.as_secs_f64() * 1e3);
        (rtt_ms / self.config.reference_rtt_ms).max(1.0)
    }
}

impl Law for Hybla {
    /// For each acknowledged packet `W += 2^rho - 1` in slow start, `W += rho^2 / W` after it (Section 3).
    fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.least_rtt =
                Some(self.least_rtt.map_or(rtt.smoothed, |least| least.min(rtt.smoothed)));
        }
        let rho = self.rho();
        if core.is_slow_start() {
            let growth = rho.min(MAX_SLOW_START_RHO).exp2() - 1.0;
            core.slow_start(growth * ack.growth_bytes as f64);
        } else {
            core.grow_additively(rho * rho, ack.growth_bytes);
        }
    }

    fn on_loss(&mut self, core: &WindowCore) -> f64 {
        core.window() * LOSS_REDUCTION
    }

    /// The path may have changed.
    fn on_collapse(&mut self) {
        self.least_rtt = None;
    }

    fn on_init_from_path(&mut self, _core: &WindowCore, path: &crate::PathModel) {
        self.least_rtt = path.base_rtt();
    }

    fn figures(&self, figures: &mut Vec<(&'static str, f64)>) {
        figures.push(("rho", self.rho()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    #[test]
    fn a_short_round_trip_grows_as_reno_does() {
        let mut hybla = Bench::new(&HyblaConfig::default(), 10);
        hybla.round(20, 0);
        assert_eq!(hybla.packets(), 20.0);
        assert_eq!(hybla.figure("rho"), 1.0);
        hybla.round(20, 1);
        hybla.round(20, 0);
        let before = hybla.packets();
        hybla.round(20, 0);
        let grown = hybla.packets() - before;
        // Parts of a packet are not sent: less than a window is acknowledged.
        let acknowledged = before.floor() / before;
        assert!((grown - acknowledged).abs() < 0.05, "{grown} of {acknowledged} packets");
    }

    #[test]
    fn a_long_round_trip_grows_with_the_square_of_its_ratio() {
        let mut hybla = Bench::new(&HyblaConfig::default(), 10);
        // rho = 4: a packet adds 15. The second adds nothing, because the window is then more than twice what was in
        // flight (RFC 9002, Section 7.8); so does the third of the next round.
        hybla.round(100, 0);
        assert_eq!(hybla.packets(), 10.0 + 15.0);
        hybla.round(100, 0);
        assert_eq!(hybla.packets(), 25.0 + 2.0 * 15.0);
        hybla.round(100, 1);
        hybla.round(100, 0);
        let before = hybla.packets();
        hybla.round(100, 0);
        let grown = hybla.packets() - before;
        assert!((13.0..=16.5).contains(&grown), "{grown} packets in a round, rho^2 = 16");
        hybla.round(100, 1);
        assert!(hybla.packets() < 0.6 * (before + grown), "a loss takes half");
    }

    #[test]
    fn the_reference_must_be_positive() {
        use crate::registry::{Spec, find};
        assert!(find(&Spec::named("hybla").with("reference_rtt_ms", 0.0)).is_err());
        assert!(find(&Spec::named("hybla").with("reference_rtt_ms", 50.0)).is_ok());
    }
}
