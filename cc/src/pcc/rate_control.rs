use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::VivaceConfig;
use super::monitor_interval::Outcome;
use super::start_up::{StartUp, Step};

/// epsilon: probes go this far above and below the central rate (Table 1).
const PROBE_STEP: f64 = 0.05;
/// theta_0: change of rate in Mbit/s for a gradient of one (Table 1).
const CONVERSION_FACTOR: f64 = 1.0;
/// omega_0: largest first change, as a share of the rate (Table 1).
const BOUNDARY_START: f64 = 0.05;
/// delta: what one more change beyond the boundary adds to it (Table 1).
const BOUNDARY_STEP: f64 = 0.1;
/// Least change, as a share of the rate. The paper has none, but the gradient of an idle
/// path is 0.57 at 100 Mbit/s and 0.45 at 1 Gbit/s: 0.05 % a decision would take minutes.
const MIN_CHANGE: f64 = 0.005;
/// Share of its rate that an interval must have reached to count although the application
/// had run out of data for a moment (a relay that refills its buffer says so often).
const LIMITED_BELOW: f64 = 0.97;
/// The same in start-up, whatever kept it from more: there a slow sender (a busy machine) would
/// end the doubling, or let it go on without having tried. Less than above, because the doubling
/// tells more of the path than the next few per cent do.
const STARTED_ABOVE: f64 = 0.9;
/// A sender that has data but cannot reach its rate (CPU, window) comes down towards this
/// many times what it reached, so that rate keeps its meaning.
const MAX_OVER_SENT: f64 = 1.25;
/// By how much it comes down in one round.
const OVER_SENT_DECREASE: f64 = 0.9;
/// What an interval without feedback leaves of the rate (Section 4.3).
const TIMEOUT_DECREASE: f64 = 0.5;
/// So many time-outs in a row mean an outage, after which the path is unknown and the rate
/// a small fraction: start-up runs again, as after a time-out in TCP (RFC 5681, Section
/// 3.1). The paper leaves start-up for good, and would climb back by 5 % a decision.
const OUTAGE_TIMEOUTS: u32 = 2;

/// One interval that the current round needs.
#[derive(Clone, Copy, Debug)]
struct Probe {
    gain: f64,
    /// The interval that measures it.
    id: Option<u64>,
    outcome: Option<Outcome>,
}

impl Probe {
    const fn with_gain(gain: f64) -> Self {
        Self { gain, id: None, outcome: None }
    }
}

#[derive(Debug)]
enum Phase {
    /// One probe a round (Section 4).
    Starting(StartUp),
    /// Two probes a round; `unsure` is the gradient that the pair on its way is to confirm.
    Learning { unsure: Option<f64> },
}

/// Decides rates from the outcomes of monitor intervals (Section 4).
///
/// Knows neither packets nor time: a caller asks for the next probe, sends at its rate,
/// and hands back what came of it.
#[derive(Debug)]
pub(super) struct RateControl {
    config: VivaceConfig,
    rng: Pcg64Mcg,
    phase: Phase,
    central_mbps: f64,
    floor_mbps: f64,
    ceiling_mbps: f64,
    probes: Vec<Probe>,
    next_id: u64,
    ascent: Ascent,
    timeouts: u32,
    last_gradient: f64,
    decisions: u64,
}

impl RateControl {
    pub(super) fn new(config: VivaceConfig, start_mbps: f64, seed: u64) -> Self {
        Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            phase: Phase::Starting(StartUp::new(config)),
            central_mbps: start_mbps,
            floor_mbps: 0.0,
            ceiling_mbps: f64::INFINITY,
            probes: vec![Probe::with_gain(1.0)],
            next_id: 0,
            ascent: Ascent::default(),
            timeouts: 0,
            last_gradient: 0.0,
            decisions: 0,
            config,
        }
    }

    pub(super) fn central_mbps(&self) -> f64 {
        self.central_mbps
    }

    pub(super) fn last_gradient(&self) -> f64 {
        self.last_gradient
    }

    pub(super) fn decisions(&self) -> u64 {
        self.decisions
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting(_))
    }

    pub(super) fn state(&self) -> &'static str {
        match &self.phase {
            Phase::Starting(_) => "starting",
            Phase::Learning { unsure: None } => "learning",
            Phase::Learning { unsure: Some(_) } => "double-check",
        }
    }

    /// Keeps all rates within these from now on.
    pub(super) fn bound(&mut self, floor_mbps: f64, ceiling_mbps: f64) {
        self.floor_mbps = floor_mbps.min(ceiling_mbps);
        self.ceiling_mbps = ceiling_mbps;
        self.set_central(self.central_mbps);
    }

    /// Starts at another rate, as long as nothing has been measured: whether it does.
    pub(super) fn restart_at(&mut self, mbps: f64) -> bool {
        let fresh = matches!(&self.phase, Phase::Starting(start_up) if start_up.is_fresh());
        if fresh {
            self.set_central(mbps);
            self.probes = vec![Probe::with_gain(1.0)];
        }
        fresh
    }

    /// Goes on from a rate that another algorithm had found: without start-up.
    pub(super) fn learn_from(&mut self, mbps: f64) {
        self.set_central(mbps);
        self.ascent = Ascent::default();
        self.begin_pair(None);
    }

    fn set_central(&mut self, mbps: f64) {
        self.central_mbps = mbps.clamp(self.floor_mbps, self.ceiling_mbps);
    }

    /// The rate of the next interval to measure and its id; `None` while results of the
    /// round are pending, when the sender stays at the central rate.
    pub(super) fn next_probe(&mut self) -> Option<(u64, f64)> {
        let probe =
            self.probes.iter_mut().find(|probe| probe.id.is_none() && probe.outcome.is_none())?;
        let id = self.next_id;
        self.next_id += 1;
        probe.id = Some(id);
        let mbps = (self.central_mbps * probe.gain).clamp(self.floor_mbps, self.ceiling_mbps);
        Some((id, mbps))
    }

    /// The interval `id` was given up: it has to be run again.
    pub(super) fn on_given_up(&mut self, id: u64) {
        if let Some(probe) = self.probes.iter_mut().find(|probe| probe.id == Some(id)) {
            probe.id = None;
        }
    }

    /// What the interval `id` has shown. Intervals of an earlier round no longer matter.
    pub(super) fn on_outcome(&mut self, id: u64, outcome: Outcome) {
        let Some(probe) = self.probes.iter_mut().find(|probe| probe.id == Some(id)) else { return };
        probe.id = None;
        self.timeouts = 0;
        let reached = outcome.sent_mbps / outcome.target_mbps;
        // A flow that has nothing to send learns nothing of the path: run it again.
        let decides = match &self.phase {
            Phase::Starting(start_up) => reached >= STARTED_ABOVE || start_up.shows_queue(&outcome),
            Phase::Learning { .. } => reached >= LIMITED_BELOW || !outcome.app_limited,
        };
        if outcome.packets == 0 || !decides {
            return;
        }
        probe.outcome = Some(outcome);
        match &mut self.phase {
            Phase::Starting(start_up) => match start_up.on_outcome(&outcome) {
                Step::Faster { confirmed_mbps } => {
                    self.set_central(confirmed_mbps);
                    self.probes = vec![Probe::with_gain(2.0)];
                }
                Step::Drain { mbps } => {
                    self.set_central(mbps);
                    self.probes = vec![Probe::with_gain(1.0)];
                }
                Step::Done { mbps } => self.learn_from(mbps),
            },
            Phase::Learning { .. } => self.on_pair(),
        }
    }

    /// An interval stayed without feedback for too long (Section 4.3), or probe time-outs
    /// say that nothing arrives.
    pub(super) fn on_timeout(&mut self) {
        self.timeouts += 1;
        self.set_central(self.central_mbps * TIMEOUT_DECREASE);
        self.ascent = Ascent::default();
        if self.timeouts >= OUTAGE_TIMEOUTS || self.is_starting() {
            self.phase = Phase::Starting(StartUp::new(self.config));
            self.probes = vec![Probe::with_gain(1.0)];
        } else {
            self.begin_pair(None);
        }
    }

    /// Random order, so that a trend of the path favours neither (Section 4.2).
    fn begin_pair(&mut self, unsure: Option<f64>) {
        self.phase = Phase::Learning { unsure };
        let step = if self.rng.next_u32() & 1 == 0 { PROBE_STEP } else { -PROBE_STEP };
        self.probes = vec![Probe::with_gain(1.0 + step), Probe::with_gain(1.0 - step)];
    }

    fn on_pair(&mut self) {
        let [Probe { outcome: Some(a), .. }, Probe { outcome: Some(b), .. }] = self.probes[..]
        else {
            return;
        };
        let (fast, slow) = if a.target_mbps >= b.target_mbps { (a, b) } else { (b, a) };
        let unsure = match self.phase {
            Phase::Learning { unsure } => unsure,
            Phase::Starting(_) => None,
        };

        // gamma = (u1 - u2) / (2 epsilon r), Section 4.2, over the rates as sent.
        let spread = fast.sent_mbps - slow.sent_mbps;
        if spread < PROBE_STEP * self.central_mbps {
            // The rates were not sent, so their difference tells nothing.
            let most = fast.sent_mbps.max(slow.sent_mbps) * MAX_OVER_SENT;
            if most < self.central_mbps {
                self.set_central((self.central_mbps * OVER_SENT_DECREASE).max(most));
            }
            return self.begin_pair(None);
        }
        let (fast_loss, slow_loss) = losses(&fast, &slow, self.config.loss_errors);
        let utility = |outcome: &Outcome, loss| {
            let gradient = self.config.filtered(outcome.slope);
            self.config.utility.of(outcome.sent_mbps, gradient, loss)
        };
        let gradient = (utility(&fast, fast_loss) - utility(&slow, slow_loss)) / spread;

        // Double check (Section 4.3): sending faster does not cause less loss.
        let gradient = match unsure {
            None if fast_loss < slow_loss => return self.begin_pair(Some(gradient)),
            Some(first) if first * gradient > 0.0 => (first + gradient) / 2.0,
            _ => gradient,
        };
        self.last_gradient = gradient;
        self.decisions += 1;
        let change = self.ascent.change(gradient, self.central_mbps, self.config.max_boundary);
        self.set_central(self.central_mbps + change);
        self.begin_pair(None);
    }
}

/// The loss rates to judge the two probes by. A difference below `errors` standard errors
/// of it is chance: both then get what they lost together.
fn losses(fast: &Outcome, slow: &Outcome, errors: f64) -> (f64, f64) {
    let rate = |outcome: &Outcome| outcome.lost as f64 / outcome.packets as f64;
    let (of_fast, of_slow) = (rate(fast), rate(slow));
    let pooled = (fast.lost + slow.lost) as f64 / (fast.packets + slow.packets) as f64;
    let weight = 1.0 / fast.packets as f64 + 1.0 / slow.packets as f64;
    let error = (pooled * (1.0 - pooled) * weight).sqrt();
    match (of_fast - of_slow).abs() < errors * error {
        true => (pooled, pooled),
        false => (of_fast, of_slow),
    }
}

/// Gradient to change of rate: confidence amplifier and dynamic change boundary
/// (Section 4.2).
#[derive(Debug, Default)]
struct Ascent {
    up: bool,
    /// tau: decisions in the same direction, this one included. The paper counts from 0
    /// with m(0) = 1 and its Table 1 says m(tau) = tau; counted from 1 both hold.
    same: u32,
    /// k: how often in a row the boundary was met.
    over: u32,
}

impl Ascent {
    /// Change of the rate in Mbit/s.
    fn change(&mut self, gradient: f64, rate_mbps: f64, max_boundary: f64) -> f64 {
        let up = gradient > 0.0;
        if up != self.up {
            *self = Self { up, same: 0, over: 0 };
        }
        self.same = self.same.saturating_add(1);
        let wanted = amplifier(self.same) * CONVERSION_FACTOR * gradient.abs();
        let wanted = wanted.max(MIN_CHANGE * rate_mbps);
        let boundary = |over: u32| BOUNDARY_START + f64::from(over) * BOUNDARY_STEP;
        let bound = boundary(self.over).min(max_boundary) * rate_mbps;
        let change = if wanted > bound {
            self.over = self.over.saturating_add(1);
            bound
        } else {
            let needed = ((wanted / rate_mbps - BOUNDARY_START) / BOUNDARY_STEP).ceil();
            self.over = needed.max(0.0) as u32;
            wanted
        };
        if up { change } else { -change }
    }
}

/// m(tau) of Table 1.
fn amplifier(same: u32) -> f64 {
    let same = f64::from(same);
    if same <= 3.0 { same } else { 2.0 * same - 3.0 }
}

#[cfg(test)]
#[path = "rate_control_tests.rs"]
mod tests;
