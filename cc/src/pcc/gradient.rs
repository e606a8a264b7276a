use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

use super::config::{NoiseFilter, PccConfig};
use super::policy::{MeasuredInterval, RatePolicy, RoundState};
use super::utility::{FilteredOutcome, Utility};

/// Consecutive increases limited by the boundary that show a rate far below the capacity.
/// Measured in docs/research/cc/pcc.md (`bandwidth_probe`).
const MIN_LIMITED_INCREASES: u32 = 5;
/// Pairs of probes of which a majority decides with Proteus's filter (SIGCOMM '20, Section 5).
const PROTEUS_PAIRS: usize = 3;

/// Follows the utility's gradient (Vivace, Section 4).
#[derive(Debug)]
pub(super) struct Gradient {
    config: PccConfig,
    ascent: Ascent,
    /// The gradient that the next pair is to confirm.
    unsure: Option<f64>,
    last: f64,
}

impl Gradient {
    pub(super) fn new(config: PccConfig) -> Self {
        Self { config, ascent: Ascent::default(), unsure: None, last: 0.0 }
    }

    fn pairs(&self) -> usize {
        match self.config.noise_filter {
            NoiseFilter::None => 1,
            NoiseFilter::Proteus => PROTEUS_PAIRS,
        }
    }

    fn moved(&mut self, gradient: f64, central_mbps: f64) -> f64 {
        self.last = gradient;
        central_mbps + self.ascent.change(&self.config, gradient, central_mbps)
    }

    /// With a double check (Section 4.3): sending faster does not cause less loss.
    fn one_pair(&mut self, pair: &ProbePair, central_mbps: f64) -> f64 {
        let gradient = match self.unsure.take() {
            None if pair.fast_lost_less && self.config.double_check => {
                self.unsure = Some(pair.gradient);
                return central_mbps;
            }
            Some(first) if first * pair.gradient > 0.0 => (first + pair.gradient) / 2.0,
            _ => pair.gradient,
        };
        self.moved(gradient, central_mbps)
    }
}

impl RatePolicy for Gradient {
    /// Random order, so that a trend of the path favours neither (Section 4.2).
    fn plan(&mut self, rng: &mut Pcg64Mcg, gains: &mut Vec<f64>) {
        for _ in 0..self.pairs() {
            let up = rng.next_u32() & 1 == 0;
            let step = if up { self.config.probe_step } else { -self.config.probe_step };
            gains.extend([1.0 + step, 1.0 - step]);
        }
    }

    fn decide(&mut self, round: &RoundState<'_>) -> Option<f64> {
        let (mut up, mut down) = (Votes::default(), Votes::default());
        for pair in round.results.chunks_exact(2) {
            let (Some(a), Some(b)) = (pair[0], pair[1]) else { continue };
            let pair = ProbePair::new(a, b, round.utility, self.config.loss_errors);
            if self.pairs() == 1 {
                return Some(self.one_pair(&pair, round.central_mbps));
            }
            let votes = if pair.gradient > 0.0 { &mut up } else { &mut down };
            votes.add(pair.gradient);
        }
        let won = [up, down].into_iter().find(|votes| votes.count > PROTEUS_PAIRS / 2)?;
        Some(self.moved(won.mean(), round.central_mbps))
    }

    fn restart(&mut self) {
        self.ascent = Ascent::default();
        self.unsure = None;
    }

    fn state(&self) -> &'static str {
        if self.unsure.is_some() { "double-check" } else { "learning" }
    }

    fn is_below_capacity(&self) -> bool {
        self.ascent.up && self.ascent.over >= MIN_LIMITED_INCREASES
    }

    fn last_gradient(&self) -> f64 {
        self.last
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Votes {
    count: usize,
    sum: f64,
}

impl Votes {
    fn add(&mut self, gradient: f64) {
        self.count += 1;
        self.sum += gradient;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// Two probes, one to each side of the central rate.
#[derive(Clone, Copy, Debug)]
struct ProbePair {
    /// gamma = (u1 - u2) / (2 epsilon r), Section 4.2, over the rates as sent.
    gradient: f64,
    fast_lost_less: bool,
}

impl ProbePair {
    fn new(a: MeasuredInterval, b: MeasuredInterval, utility: &Utility, errors: f64) -> Self {
        let (fast, slow) = if a.gain >= b.gain { (a, b) } else { (b, a) };
        let (fast_loss, slow_loss) = losses(&fast, &slow, errors);
        let spread = (fast.outcome.sent_mbps - slow.outcome.sent_mbps).max(1e-9);
        let of = |seen: FilteredOutcome, loss| -> f64 { with_loss(utility, seen, loss) };
        Self {
            gradient: (of(fast.seen, fast_loss) - of(slow.seen, slow_loss)) / spread,
            fast_lost_less: fast_loss < slow_loss,
        }
    }
}

fn with_loss(utility: &Utility, seen: FilteredOutcome, loss: f64) -> f64 {
    utility.of(&FilteredOutcome { loss, ..seen })
}

/// The loss rates to judge two probes by.
///
/// A difference below `errors` standard errors may be random. Both probes then get the pooled loss
/// rate, plus or minus a part of what the faster one lost more: the cube of its ratio to the limit.
/// If the faster one lost less, that is random (Section 4.3: sending faster is not the cause).
/// Without that part, small flows tolerate the loss that they cause each other until its level alone
/// stops them. With the whole difference, random loss stops them.
fn losses(fast: &MeasuredInterval, slow: &MeasuredInterval, errors: f64) -> (f64, f64) {
    let of =
        |probe: &MeasuredInterval| (probe.outcome.lost as f64, probe.outcome.packets.max(1) as f64);
    let ((fast_lost, fast_sent), (slow_lost, slow_sent)) = (of(fast), of(slow));
    let pooled = (fast_lost + slow_lost) / (fast_sent + slow_sent);
    let error = (pooled * (1.0 - pooled) * (1.0 / fast_sent + 1.0 / slow_sent)).sqrt();
    let more = fast.seen.loss - slow.seen.loss;
    if more.abs() >= errors * error {
        return (fast.seen.loss, slow.seen.loss);
    }
    let counted = more.max(0.0) * (more / (errors * error)).powi(3).abs();
    (pooled + counted / 2.0, pooled - counted / 2.0)
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
    fn change(&mut self, config: &PccConfig, gradient: f64, rate_mbps: f64) -> f64 {
        let up = gradient > 0.0;
        if up != self.up {
            *self = Self { up, same: 0, over: 0 };
        }
        self.same = self.same.saturating_add(1);
        let wanted = amplifier(self.same) * config.conversion_factor * gradient.abs();
        let wanted = wanted.max(config.min_change * rate_mbps);
        let boundary = config.boundary_start + f64::from(self.over) * config.boundary_step;
        let bound = boundary.min(config.largest_change(up)) * rate_mbps;
        let change = if wanted > bound {
            self.over = self.over.saturating_add(1);
            bound
        } else {
            let beyond = wanted / rate_mbps - config.boundary_start;
            self.over = (beyond / config.boundary_step).ceil().max(0.0) as u32;
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
mod tests {
    use super::*;
    use crate::pcc::VIVACE_LATENCY;
    use crate::pcc::rate_control::tests::clean;

    #[test]
    fn the_amplifier_and_the_boundary_are_those_of_table_1() {
        assert_eq!([1, 2, 3, 4, 5].map(amplifier), [1.0, 2.0, 3.0, 5.0, 7.0]);
        let mut ascent = Ascent::default();
        let paper = VIVACE_LATENCY.as_published();
        // Beyond the boundary: 5 %, 15 %, 25 %; a turn starts at 5 % again.
        for share in [5.0, 15.0, 25.0] {
            assert!((ascent.change(&paper, -1e6, 100.0) + share).abs() < 1e-9);
        }
        assert!((ascent.change(&paper, 1e6, 100.0) - 5.0).abs() < 1e-9);
        // Below it k shrinks to the smallest that admits the change: 2 * 6 needs 15 %.
        assert!((ascent.change(&paper, 6.0, 100.0) - 12.0).abs() < 1e-9);
        assert_eq!(ascent.over, 1);
        let bounded = PccConfig { max_boundary: Some(0.1), ..paper };
        assert!((ascent.change(&bounded, 1e6, 100.0) - 10.0).abs() < 1e-9, "largest boundary");
    }

    #[test]
    fn random_losses_are_pooled_significant_ones_are_not_and_others_count_in_part() {
        let lost = |lost: u64| {
            let mut measured = clean(1.0, 1.0);
            measured.outcome.packets = 100;
            measured.outcome.lost = lost;
            measured.seen.loss = lost as f64 / 100.0;
            measured
        };
        assert_eq!(losses(&lost(6), &lost(0), 2.0), (0.06, 0.0));
        assert_eq!(losses(&lost(0), &lost(6), 2.0), (0.0, 0.06));
        assert_eq!(losses(&lost(0), &lost(2), 2.0), (0.01, 0.01), "faster does not lose less");
        // 2 % more at an error of sqrt(0.0198 * 0.01): 0.71 of the limit, cubed.
        let (fast, slow) = losses(&lost(2), &lost(0), 2.0);
        assert!((fast - slow - 0.02 * 0.3572).abs() < 1e-4, "{fast} {slow}");
        assert_eq!(losses(&lost(2), &lost(0), 0.0), (0.02, 0.0));
    }
}
