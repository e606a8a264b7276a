use std::time::Duration;

use serde::Deserialize;

use super::controller::{Law, WindowController};
use super::core::{AckEvent, WindowCore};
use super::hystart::HyStart;
use super::settings::{positive, share};
use crate::{Controller, ControllerConfig, PathModel, PathStart, Time};

/// Settings of CUBIC (RFC 9438); also its factory.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CubicConfig {
    /// C, packets per cubed second (Section 5.1). A larger value regains the window sooner and is less
    /// fair to Reno; a smaller one leaves long fast paths empty for longer.
    #[serde(deserialize_with = "positive")]
    pub c: f64,
    /// beta_cubic, share of the window that remains after a loss (Section 4.6). A larger value keeps
    /// more of the link and of the queue, and flows take longer to converge.
    #[serde(deserialize_with = "share")]
    pub beta: f64,
    /// Whether a flow that loses below its last maximum makes room for others (Section 4.7).
    pub fast_convergence: bool,
    /// Whether the first slow start also ends when the RTT rises (HyStart++, RFC 9406).
    /// If not, it ends with the loss of up to half of a window.
    pub hystart: bool,
    /// Whether packets are spread over the round trip (RFC 9002, Section 7.7). If not, they
    /// leave as acknowledgements arrive, as from a kernel's TCP, and an idle sender's window decays.
    pub paced: bool,
}

impl Default for CubicConfig {
    fn default() -> Self {
        Self { c: 0.4, beta: 0.7, fast_convergence: true, hystart: true, paced: true }
    }
}

impl ControllerConfig for CubicConfig {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(WindowController::new(start, self.paced, Cubic::new(*self, now)))
    }
}

/// CUBIC's law. All windows are in packets, as in the RFC.
#[derive(Debug)]
struct Cubic {
    config: CubicConfig,
    hystart: Option<HyStart>,
    memory: Memory,
    /// Until when growth has been accounted for.
    grown_until: Time,
    /// State before the last loss, restored if it was spurious (Section 4.9.2).
    before_loss: Option<Memory>,
}

/// State between acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// W_max: the window at the last loss, or less with fast convergence; 0 without a loss.
    w_max: f64,
    /// cwnd_prior: the window at the last loss.
    prior: f64,
    /// The current epoch of congestion avoidance, from its first acknowledgement on.
    epoch: Option<CubicEpoch>,
}

/// One epoch of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct CubicEpoch {
    /// Time during which the window was in use. Time without data does not count: the window would jump
    /// at its end (Section 5.8).
    time: Duration,
    /// K: time at which the window reaches `origin` again.
    k_s: f64,
    /// The plateau: W_max, or the window at the start of the epoch if that is larger.
    origin: f64,
    /// W_est: the window of Reno (Section 4.3).
    w_est: f64,
}

impl CubicEpoch {
    /// K = cbrt((W_max - cwnd_epoch) / C) (Section 4.2, Figure 2); without a loss before it K is 0
    /// and W_max the window (Sections 4.8 and 4.10).
    fn new(window: f64, w_max: f64, c: f64) -> Self {
        let origin = w_max.max(window);
        let k_s = libm::cbrt((origin - window) / c);
        Self { time: Duration::ZERO, k_s, origin, w_est: window }
    }

    /// W_cubic(t) = C * (t - K)^3 + W_max (Section 4.2, Figure 1).
    fn w_cubic(&self, t_s: f64, c: f64) -> f64 {
        let from_plateau_s = t_s - self.k_s;
        c * from_plateau_s * from_plateau_s * from_plateau_s + self.origin
    }
}

impl Cubic {
    fn new(config: CubicConfig, now: Time) -> Self {
        Self {
            config,
            hystart: config.hystart.then(HyStart::default),
            memory: Memory::default(),
            grown_until: now,
            before_loss: None,
        }
    }

    /// alpha_cubic: makes a Reno with beta_cubic as aggressive as one that halves (Section 4.3,
    /// Figure 3); 1 beyond the window of the last loss.
    fn alpha(&self, w_est: f64) -> f64 {
        match w_est < self.memory.prior {
            true => 3.0 * (1.0 - self.config.beta) / (1.0 + self.config.beta),
            false => 1.0,
        }
    }

    fn avoid(&mut self, core: &mut WindowCore, ack: &AckEvent, passed: Duration) {
        let (window, c) = (core.packets(), self.config.c);
        let mut epoch =
            self.memory.epoch.unwrap_or_else(|| CubicEpoch::new(window, self.memory.w_max, c));
        let acked = ack.growth_bytes as f64 / core.mtu();
        if self.memory.epoch.is_some() {
            epoch.time += passed;
        }
        epoch.w_est += self.alpha(epoch.w_est) * acked / window;
        self.memory.epoch = Some(epoch);

        let t_s = epoch.time.as_secs_f64();
        let grown = if epoch.w_cubic(t_s, c) < epoch.w_est {
            // Reno-friendly region (Section 4.3).
            epoch.w_est.max(window)
        } else {
            // Concave and convex regions (Sections 4.4 and 4.5).
            let rtt_s = core.rtt().map_or(0.0, |rtt| rtt.smoothed.as_secs_f64());
            let target = epoch.w_cubic(t_s + rtt_s, c).clamp(window, 1.5 * window);
            (window + (target - window) / window * acked).min(target)
        };
        core.set_window(grown * core.mtu());
    }
}

impl Law for Cubic {
    fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        let passed = ack.now - self.grown_until;
        self.grown_until = ack.now;
        match (&mut self.hystart, core.is_slow_start()) {
            (Some(hystart), true) => hystart.on_ack(core, ack),
            (None, true) => core.slow_start(ack.growth_bytes as f64),
            (_, false) if ack.growth_bytes > 0 => self.avoid(core, ack, passed),
            (_, false) => {}
        }
    }

    /// Section 4.6, with fast convergence (Section 4.7). The window represents the bytes in
    /// flight, because it only grows while it is in use.
    fn on_loss(&mut self, core: &WindowCore) -> f64 {
        let (window, beta) = (core.packets(), self.config.beta);
        self.before_loss = Some(self.memory);
        let falling = self.config.fast_convergence && window < self.memory.w_max;
        let w_max = if falling { window * (1.0 + beta) / 2.0 } else { window };
        self.memory = Memory { w_max, prior: window, epoch: None };
        self.hystart = None;
        window * beta * core.mtu()
    }

    fn on_undo(&mut self) {
        self.memory = self.before_loss.take().unwrap_or(self.memory);
    }

    /// Section 4.8: the next epoch starts with K = 0 at its window.
    fn on_collapse(&mut self) {
        self.memory = Memory::default();
        self.before_loss = None;
    }

    fn on_idle_end(&mut self, now: Time) {
        self.grown_until = now;
    }

    fn on_mtu(&mut self, ratio: f64) {
        let memory = &mut self.memory;
        memory.w_max /= ratio;
        memory.prior /= ratio;
        if let Some(epoch) = &mut memory.epoch {
            epoch.origin /= ratio;
            epoch.w_est /= ratio;
        }
        self.before_loss = None;
    }

    /// W_max is what the path has held: growth slows down there instead of accelerating into a full buffer.
    fn on_init_from_path(&mut self, core: &WindowCore, path: &PathModel) {
        let held = path.max_delivery_rate.bytes_in(path.max_rtt).min(path.max_window_bytes);
        let lost = path.lost_bytes > 0;
        let w_max = if lost { held as f64 / core.mtu() } else { 0.0 };
        self.memory = Memory { w_max, ..Memory::default() };
        self.before_loss = None;
        self.hystart = None;
    }

    fn state(&self, core: &WindowCore) -> Option<&'static str> {
        let conservative = self.hystart.is_some_and(|hystart| hystart.is_conservative());
        (conservative && core.is_slow_start()).then_some("css")
    }

    fn figures(&self, figures: &mut Vec<(&'static str, f64)>) {
        figures.push(("w_max_packets", self.memory.w_max));
        if let Some(epoch) = &self.memory.epoch {
            figures.push(("k_s", epoch.k_s));
            figures.push(("epoch_s", epoch.time.as_secs_f64()));
            figures.push(("w_est_packets", epoch.w_est));
        }
    }
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
