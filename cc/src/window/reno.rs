use serde::Deserialize;

use super::controller::{Law, WindowController};
use super::core::{AckEvent, WindowCore};
use super::settings::share;
use crate::{Controller, ControllerConfig, PathStart, Time};

/// Settings of NewReno (RFC 9002, Section 7); also its factory.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RenoConfig {
    /// Share of the window that remains after a loss (kLossReductionFactor, RFC 9002,
    /// Section 7.3.2). A smaller value drains queues faster and leaves links with small buffers empty.
    #[serde(deserialize_with = "share")]
    pub loss_reduction_factor: f64,
    /// Whether packets are spread over the round trip (RFC 9002, Section 7.7). If not, they
    /// leave as acknowledgements arrive, as from a kernel's TCP.
    pub paced: bool,
}

impl Default for RenoConfig {
    fn default() -> Self {
        Self { loss_reduction_factor: 0.5, paced: true }
    }
}

impl ControllerConfig for RenoConfig {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(WindowController::new(start, self.paced, Reno { config: *self }))
    }
}

#[derive(Debug)]
struct Reno {
    config: RenoConfig,
}

impl Law for Reno {
    fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        core.grow_as_reno(ack.growth_bytes);
    }

    fn on_loss(&mut self, core: &WindowCore) -> f64 {
        core.window() * self.config.loss_reduction_factor
    }

    fn figures(&self, _figures: &mut Vec<(&'static str, f64)>) {}
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::*;

    #[test]
    fn the_window_doubles_halves_and_grows_by_a_packet_a_round() {
        let mut reno = Bench::new(&RenoConfig::default(), 10);
        assert_eq!(reno.packets(), 10.0);
        for expected in [20.0, 40.0, 80.0] {
            reno.round(100, 0);
            assert_eq!(reno.packets(), expected);
        }
        reno.round(100, 1);
        assert_eq!(reno.state(), "recovery");
        let halved = reno.packets();
        assert!((79.9..81.0).contains(&(halved * 2.0)), "{halved}");
        reno.round(100, 0);
        let after = reno.packets();
        reno.round(100, 0);
        assert_eq!(reno.state(), "avoidance");
        assert!((reno.packets() - after - 1.0).abs() < 0.05, "{after} {}", reno.packets());
    }
}
