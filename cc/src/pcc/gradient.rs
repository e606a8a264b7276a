use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

use super::ascent::Ascent;
use super::config::{NoiseFilter, PccConfig};
use super::policy::{MeasuredInterval, RatePolicy, RoundState};
use super::probe_pair::ProbePair;

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
            NoiseFilter::Proteus => PROTEUS_PAIRS,
            _ if self.config.agreeing_pairs && self.direction.is_none() => 2,
            _ => 1,
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
        let loss_decides = known().any(|pair| pair.loss_decides);
        self.moved(sum / known().count() as f64, loss_decides, round)
    }

    fn moved(&mut self, gradient: f64, loss_decides: bool, round: &RoundState<'_>) -> f64 {
        self.last = gradient;
        let (mbps, queued) = (round.central_mbps, round.queued_packet_mbps);
        mbps + self.ascent.change(&self.config, gradient, mbps, queued, loss_decides)
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
        self.moved(gradient, pair.loss_decides, round)
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
        if self.config.agreeing_pairs && self.config.noise_filter != NoiseFilter::Proteus {
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
        Some(self.moved(won.mean(), true, round))
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    use crate::pcc::rate_control::tests::clean;
    use crate::pcc::{VIVACE_LATENCY, VIVACE_LOSS};

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
}
