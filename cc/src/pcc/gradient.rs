use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

use super::config::{NoiseFilter, PccConfig};
use super::policy::{MeasuredInterval, RatePolicy, RoundState};
use super::utility::{FilteredOutcome, Utility};

/// Consecutive increases limited by the boundary that show a rate far below the capacity.
/// Measured in docs/research/cc/pcc.md (`bandwidth_probe`).
const MIN_LIMITED_INCREASES: u32 = 5;
/// Largest distance of a probe from the central rate, as a share of it: `probe_step` has the same limit.
const MAX_PROBE_STEP: f64 = 0.5;
/// A difference of so many lost packets is chance, with `agreeing_pairs`.
const MAX_CHANCE_PACKETS: u64 = 2;
/// Pairs of probes of which a majority decides with Proteus's filter (SIGCOMM '20, Section 5).
const PROTEUS_PAIRS: usize = 3;

/// Follows the utility's gradient (Vivace, Section 4).
#[derive(Debug)]
pub(super) struct Gradient {
    config: PccConfig,
    ascent: Ascent,
    /// The gradient that the next pair is to confirm.
    unsure: Option<f64>,
    /// Whether the last step went up, with `agreeing_pairs`; `None` while two pairs are to agree.
    direction: Option<bool>,
    last: f64,
}

impl Gradient {
    pub(super) fn new(config: PccConfig) -> Self {
        Self { config, ascent: Ascent::default(), unsure: None, direction: None, last: 0.0 }
    }

    fn pairs(&self) -> usize {
        match self.config.noise_filter {
            NoiseFilter::None if self.config.agreeing_pairs && self.direction.is_none() => 2,
            NoiseFilter::None => 1,
            NoiseFilter::Proteus => PROTEUS_PAIRS,
        }
    }

    /// The next rate by pairs that must agree, or by one that goes on in the direction of the last step. A faster
    /// probe that lost clearly less is checked once more.
    fn agreed(
        &mut self,
        pairs: &[Option<ProbePair>],
        round_loss: f64,
        round: &RoundState<'_>,
    ) -> f64 {
        let central_mbps = round.central_mbps;
        let known = || pairs.iter().flatten();
        let doubtful = round_loss >= self.config.double_check_loss
            && known().any(|pair| pair.fewer_lost > MAX_CHANCE_PACKETS);
        if doubtful && self.unsure.is_none() {
            self.unsure = Some(0.0);
            return central_mbps;
        }
        self.unsure = None;
        let ups = known().filter(|pair| pair.gradient > 0.0).count();
        let up = ups > 0;
        let agree = (ups == 0 || ups == known().count())
            && self.direction.is_none_or(|direction| direction == up);
        if !agree {
            self.direction = None;
            return central_mbps;
        }
        self.direction = Some(up);
        let sum: f64 = known().map(|pair| pair.gradient).sum();
        self.moved(sum / known().count() as f64, round)
    }

    fn moved(&mut self, gradient: f64, round: &RoundState<'_>) -> f64 {
        self.last = gradient;
        let (mbps, queued) = (round.central_mbps, round.queued_packet_mbps);
        mbps + self.ascent.change(&self.config, gradient, mbps, queued)
    }

    /// With a double check (Section 4.3): sending faster does not cause less loss.
    fn one_pair(&mut self, pair: &ProbePair, round: &RoundState<'_>) -> f64 {
        let gradient = match self.unsure.take() {
            None if pair.fast_lost_less && self.config.double_check => {
                self.unsure = Some(pair.gradient);
                return round.central_mbps;
            }
            Some(first) if first * pair.gradient > 0.0 => (first + pair.gradient) / 2.0,
            _ => pair.gradient,
        };
        self.moved(gradient, round)
    }
}

impl RatePolicy for Gradient {
    /// Random order, so that a trend of the path favours neither (Section 4.2).
    fn plan(&mut self, central_mbps: f64, rng: &mut Pcg64Mcg, gains: &mut Vec<f64>) {
        let least = (self.config.min_probe_mbps / central_mbps).min(MAX_PROBE_STEP);
        let size = self.config.probe_step.max(least);
        for _ in 0..self.pairs() {
            let up = rng.next_u32() & 1 == 0;
            let step = if up { size } else { -size };
            gains.extend([1.0 + step, 1.0 - step]);
        }
    }

    fn decide(&mut self, round: &RoundState<'_>) -> Option<f64> {
        let (mut up, mut down) = (Votes::default(), Votes::default());
        let round_loss = round_loss(round.results);
        let pools = self.config.pooled_loss > 0.0 && round_loss <= self.config.pooled_loss;
        let judged = |probe| if pools { pooled(probe, round_loss) } else { probe };
        let mut pairs = [None; PROTEUS_PAIRS];
        for (pair, results) in pairs.iter_mut().zip(round.results.chunks_exact(2)) {
            let [Some(a), Some(b)] = *results else { continue };
            let errors = match round.queued_packet_mbps {
                Some(_) => self.config.queued_loss_errors.unwrap_or(self.config.loss_errors),
                None => self.config.loss_errors,
            };
            *pair = Some(ProbePair::new(judged(a), judged(b), round.utility, errors));
        }
        if self.config.agreeing_pairs && self.config.noise_filter == NoiseFilter::None {
            let complete = round.results.iter().all(Option::is_some);
            return complete.then(|| self.agreed(&pairs, round_loss, round));
        }
        for pair in pairs.into_iter().flatten() {
            if self.pairs() == 1 {
                return Some(self.one_pair(&pair, round));
            }
            let votes = if pair.gradient > 0.0 { &mut up } else { &mut down };
            votes.add(pair.gradient);
        }
        let won = [up, down].into_iter().find(|votes| votes.count > PROTEUS_PAIRS / 2)?;
        Some(self.moved(won.mean(), round))
    }

    fn restart(&mut self) {
        self.ascent = Ascent::default();
        self.unsure = None;
        self.direction = None;
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

/// Share of the packets of all intervals of a round that were lost.
fn round_loss(results: &[Option<MeasuredInterval>]) -> f64 {
    let known = || results.iter().flatten();
    let lost: u64 = known().map(|it| it.outcome.lost).sum();
    let packets: u64 = known().map(|it| it.outcome.packets).sum();
    lost as f64 / packets.max(1) as f64
}

/// The same probe with the loss rate of its round.
fn pooled(mut probe: MeasuredInterval, round_loss: f64) -> MeasuredInterval {
    probe.seen.loss = round_loss;
    probe
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
    /// By how many packets.
    fewer_lost: u64,
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
            fewer_lost: slow.outcome.lost.saturating_sub(fast.outcome.lost),
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
    fn change(
        &mut self,
        config: &PccConfig,
        gradient: f64,
        rate_mbps: f64,
        queued_packet_mbps: Option<f64>,
    ) -> f64 {
        let up = gradient > 0.0;
        if up != self.up {
            *self = Self { up, same: 0, over: 0 };
        }
        self.same = self.same.saturating_add(1);
        let wanted = amplifier(self.same) * config.conversion_factor * gradient.abs();
        let least = match queued_packet_mbps {
            Some(_) if !up => config.min_change.max(config.queued_min_decrease),
            _ => config.min_change,
        };
        let wanted = wanted.max(least * rate_mbps);
        let boundary = config.boundary_start + f64::from(self.over) * config.boundary_step;
        let bound = match (queued_packet_mbps, config.queued_increase_packets) {
            (Some(packet_mbps), Some(packets)) if up => {
                let first = packets * packet_mbps;
                let most = config.largest_change(true) * rate_mbps;
                (boundary / config.boundary_start * first).min(most)
            }
            _ => boundary.min(config.largest_change(up)) * rate_mbps,
        };
        let change = if wanted > bound {
            self.over = self.over.saturating_add(1);
            bound
        } else {
            let beyond = wanted / rate_mbps - config.boundary_start;
            self.over = (beyond / config.boundary_step).ceil().max(0.0) as u32;
            wanted
        };
        let change = change.max(config.min_change_mbps);
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
    use rand_core::SeedableRng;

    use crate::pcc::rate_control::tests::clean;
    use crate::pcc::{VIVACE_LATENCY, VIVACE_LOSS};

    #[test]
    fn the_amplifier_and_the_boundary_are_those_of_table_1() {
        assert_eq!([1, 2, 3, 4, 5].map(amplifier), [1.0, 2.0, 3.0, 5.0, 7.0]);
        let mut ascent = Ascent::default();
        let paper = VIVACE_LATENCY.as_published();
        // Beyond the boundary: 5 %, 15 %, 25 %; a turn starts at 5 % again.
        for share in [5.0, 15.0, 25.0] {
            assert!((ascent.change(&paper, -1e6, 100.0, None) + share).abs() < 1e-9);
        }
        assert!((ascent.change(&paper, 1e6, 100.0, None) - 5.0).abs() < 1e-9);
        // Below it k shrinks to the smallest that admits the change: 2 * 6 needs 15 %.
        assert!((ascent.change(&paper, 6.0, 100.0, None) - 12.0).abs() < 1e-9);
        assert_eq!(ascent.over, 1);
        let bounded = PccConfig { max_boundary: Some(0.1), ..paper };
        assert!(
            (ascent.change(&bounded, 1e6, 100.0, None) - 10.0).abs() < 1e-9,
            "largest boundary"
        );
    }

    /// A round over a path on which more than `capacity_mbps` makes a queue grow.
    fn round(
        policy: &mut Gradient,
        rng: &mut Pcg64Mcg,
        mbps: f64,
        capacity_mbps: f64,
    ) -> (usize, f64) {
        let mut gains = Vec::new();
        policy.plan(mbps, rng, &mut gains);
        let measure = |gain: &f64| {
            let mut measured = clean(mbps * gain, *gain);
            measured.seen.gradient = if mbps * gain > capacity_mbps { 0.02 } else { 0.0 };
            Some(measured)
        };
        let results: Vec<_> = gains.iter().map(measure).collect();
        let utility = policy.config.utility;
        let round = RoundState {
            central_mbps: mbps,
            queued_packet_mbps: None,
            utility: &utility,
            results: &results,
        };
        (gains.len() / 2, policy.decide(&round).expect("all results are there"))
    }

    #[test]
    fn a_turn_needs_two_pairs_and_the_next_step_one() {
        let config = VIVACE_LATENCY.as_nsdi18_code().expect("a member of Vivace");
        let (mut policy, mut rng) = (Gradient::new(config), Pcg64Mcg::seed_from_u64(3));
        let (pairs, faster) = round(&mut policy, &mut rng, 10.0, 100.0);
        assert_eq!((pairs, faster), (2, 10.5), "half a Mbit/s at least");
        let (pairs, faster) = round(&mut policy, &mut rng, faster, 100.0);
        assert!(pairs == 1 && faster > 10.9, "{pairs} {faster}");
        // The probes above the capacity turn it: at first it stays, and then two pairs agree.
        assert_eq!(round(&mut policy, &mut rng, faster, 5.0), (1, faster));
        let (pairs, slower) = round(&mut policy, &mut rng, faster, faster);
        assert!(pairs == 2 && slower < faster, "{pairs} {slower}");
    }

    #[test]
    fn little_loss_is_pooled_over_the_round() {
        let config = VIVACE_LOSS.as_nsdi18_code().expect("a member of Vivace");
        let lost = |gain: f64, lost: u64| {
            let mut measured = clean(10.0 * gain, gain);
            measured.outcome.packets = 1000;
            measured.outcome.lost = lost;
            measured.seen.loss = lost as f64 / 1000.0;
            Some(measured)
        };
        let next = |fast: u64| {
            let results = [lost(1.05, fast), lost(0.95, 0), lost(0.95, 0), lost(1.05, fast)];
            let round = RoundState {
                central_mbps: 10.0,
                queued_packet_mbps: None,
                utility: &config.utility,
                results: &results,
            };
            Gradient::new(config).decide(&round).expect("all results are there")
        };
        assert!(next(19) > 10.0, "0.95 % of the round, and a knee of 3 %");
        assert!(next(100) < 10.0, "10 % of the faster probes");
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
