use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

use super::config::PccConfig;
use super::policy::{MeasuredInterval, RatePolicy, RoundState};

/// epsilon_max, in steps: largest probe (PCC, NSDI '15, Section 3.2).
const MAX_PROBE_STEPS: u32 = 5;
/// Largest step after a warm start, in steps, until the rate has been too high once. The paper has no limit; on a long
/// path with an empty buffer steps would be far beyond the link's rate when the buffer is full.
/// Measured in docs/research/mcc.md (Migration).
const MAX_STEPS_AFTER_WARM_START: u32 = 1;
/// Largest step after losses that may be random, in steps, until the rate has certainly been too high.
/// Measured in docs/research/mcc.md (Migration).
const MAX_STEPS_AFTER_RANDOM_LOSS: u32 = 3;
/// Largest change of one step, as a share of the rate.
const MAX_STEP_FRACTION: f64 = 0.5;

/// Steps of fixed size while utility rises (PCC, NSDI '15, Section 3.2).
#[derive(Debug)]
pub(super) struct FixedStep {
    /// epsilon_min.
    step: f64,
    state: FixedStepState,
    /// Largest step, in steps.
    max_steps: u32,
}

#[derive(Clone, Copy, Debug)]
enum FixedStepState {
    /// Two pairs of probes, `steps` times epsilon_min above and below, must agree.
    Deciding { steps: u32 },
    /// The n-th rate in one direction is n times epsilon_min beyond the previous rate.
    Adjusting { up: bool, n: u32, best: f64 },
}

impl FixedStep {
    pub(super) fn new(config: PccConfig) -> Self {
        Self {
            step: config.probe_step,
            state: FixedStepState::Deciding { steps: 1 },
            max_steps: u32::MAX,
        }
    }

    fn gain(&self, up: bool, steps: u32) -> f64 {
        let size = (f64::from(steps) * self.step).min(MAX_STEP_FRACTION);
        if up { 1.0 + size } else { 1.0 - size }
    }

    fn on_pairs(&mut self, round: &RoundState<'_>, steps: u32) -> Option<f64> {
        let mut best = 0.0;
        let mut ups = 0;
        for pair in round.results.chunks_exact(2) {
            let (a, b) = (pair[0]?, pair[1]?);
            let utility = |probe: &MeasuredInterval| round.utility.of(&probe.seen);
            let (fast, slow) = if a.gain >= b.gain { (a, b) } else { (b, a) };
            let (of_fast, of_slow) = (utility(&fast), utility(&slow));
            ups += u32::from(of_fast > of_slow);
            best += of_fast.max(of_slow) / 2.0;
        }
        let up = match ups {
            0 => false,
            1 => {
                self.state = FixedStepState::Deciding { steps: (steps + 1).min(MAX_PROBE_STEPS) };
                return Some(round.central_mbps);
            }
            _ => true,
        };
        self.state = FixedStepState::Adjusting { up, n: 1, best };
        Some(round.central_mbps * self.gain(up, steps))
    }
}

/// Whether the rate was certainly too high: its losses were not random.
fn is_certainly_too_high(measured: &MeasuredInterval) -> bool {
    measured.outcome.lost == 0 || measured.outcome.significant_loss(measured.seen.loss) > 0.0
}

impl RatePolicy for FixedStep {
    fn plan(&mut self, _central_mbps: f64, rng: &mut Pcg64Mcg, gains: &mut Vec<f64>) {
        match self.state {
            FixedStepState::Deciding { steps } => {
                for _ in 0..2 {
                    let up = rng.next_u32() & 1 == 0;
                    gains.extend([self.gain(up, steps), self.gain(!up, steps)]);
                }
            }
            FixedStepState::Adjusting { up, n, .. } => gains.push(self.gain(up, n)),
        }
    }

    /// In the adjusting state the rate under test stays until its result arrives.
    fn waiting_gain(&self) -> f64 {
        match self.state {
            FixedStepState::Deciding { .. } => 1.0,
            FixedStepState::Adjusting { up, n, .. } => self.gain(up, n),
        }
    }

    fn decide(&mut self, round: &RoundState<'_>) -> Option<f64> {
        match self.state {
            FixedStepState::Deciding { steps } => self.on_pairs(round, steps),
            FixedStepState::Adjusting { up, n, best } => {
                let measured = (*round.results.first()?)?;
                let utility = round.utility.of(&measured.seen);
                if utility <= best {
                    let max_steps = if is_certainly_too_high(&measured) {
                        u32::MAX
                    } else {
                        MAX_STEPS_AFTER_RANDOM_LOSS
                    };
                    self.max_steps = self.max_steps.max(max_steps);
                    self.state = FixedStepState::Deciding { steps: 1 };
                    return Some(round.central_mbps);
                }
                let gain = self.gain(up, n);
                let n = n.saturating_add(1).min(self.max_steps);
                self.state = FixedStepState::Adjusting { up, n, best: utility };
                Some(round.central_mbps * gain)
            }
        }
    }

    fn restart(&mut self) {
        self.state = FixedStepState::Deciding { steps: 1 };
        self.max_steps = u32::MAX;
    }

    fn on_warm_start(&mut self) {
        self.restart();
        self.max_steps = MAX_STEPS_AFTER_WARM_START;
    }

    fn state(&self) -> &'static str {
        match self.state {
            FixedStepState::Deciding { .. } => "deciding",
            FixedStepState::Adjusting { .. } => "adjusting",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcc::ALLEGRO;
    use crate::pcc::rate_control::tests::clean;
    use rand_core::SeedableRng;

    struct Flow {
        policy: FixedStep,
        rng: Pcg64Mcg,
        mbps: f64,
        gains: Vec<f64>,
    }

    impl Flow {
        fn new(mbps: f64) -> Self {
            let rng = Pcg64Mcg::seed_from_u64(3);
            Self { policy: FixedStep::new(ALLEGRO), rng, mbps, gains: Vec::new() }
        }

        /// One round over a path that loses `loss` of what is sent, by rate.
        fn round(&mut self, loss: impl Fn(f64) -> f64) {
            self.gains.clear();
            self.policy.plan(self.mbps, &mut self.rng, &mut self.gains);
            let measure = |gain: &f64| {
                let mut measured = clean(self.mbps * gain, *gain);
                measured.seen.loss = loss(self.mbps * gain);
                Some(measured)
            };
            let results: Vec<_> = self.gains.iter().map(measure).collect();
            let utility = &ALLEGRO.utility;
            let round = RoundState {
                central_mbps: self.mbps,
                queued_packet_mbps: None,
                utility,
                results: &results,
            };
            self.mbps = self.policy.decide(&round).expect("all results are there");
        }
    }

    #[test]
    fn two_pairs_that_agree_move_it_and_each_step_is_larger_than_the_last() {
        let mut flow = Flow::new(100.0);
        flow.round(|_| 0.0);
        let mut gains = flow.gains.clone();
        gains.sort_by(f64::total_cmp);
        assert_eq!(gains, [0.99, 0.99, 1.01, 1.01]);
        assert!((flow.mbps - 101.0).abs() < 1e-9);
        for (n, gain) in [(1, 1.01), (2, 1.02), (3, 1.03)] {
            let before = flow.mbps;
            assert_eq!(flow.policy.waiting_gain(), gain, "{n}");
            flow.round(|_| 0.0);
            assert!((flow.mbps / before - gain).abs() < 1e-9, "{n}");
        }
    }

    #[test]
    fn falling_utility_restores_the_rate_and_starts_deciding_again() {
        let mut flow = Flow::new(100.0);
        let full = |mbps: f64| (1.0 - 102.0 / mbps).max(0.0) * 5.0;
        flow.round(full);
        flow.round(full);
        let before = flow.mbps;
        assert_eq!(flow.policy.state(), "adjusting");
        flow.round(full);
        assert_eq!((flow.mbps, flow.policy.state()), (before, "deciding"));
    }

    #[test]
    fn pairs_that_differ_widen_the_probes_up_to_five_percent() {
        let mut flow = Flow::new(100.0);
        for steps in [1, 2, 3, 4, 5, 5] {
            flow.gains.clear();
            flow.policy.plan(flow.mbps, &mut flow.rng, &mut flow.gains);
            let widest = flow.gains.iter().copied().fold(0.0, f64::max);
            assert!((widest - 1.0 - f64::from(steps) * 0.01).abs() < 1e-9, "{widest}");
            // The first pair votes up, the second down.
            let results: Vec<_> = (0..4)
                .map(|at| {
                    let mut measured = clean(100.0 * flow.gains[at], flow.gains[at]);
                    let down = at >= 2 && flow.gains[at] > 1.0;
                    measured.seen.loss = if down { 0.2 } else { 0.0 };
                    Some(measured)
                })
                .collect();
            let utility = &ALLEGRO.utility;
            let round = RoundState {
                central_mbps: 100.0,
                queued_packet_mbps: None,
                utility,
                results: &results,
            };
            assert_eq!(flow.policy.decide(&round), Some(100.0));
        }
        flow.round(|_| 0.0);
        assert!((flow.mbps - 105.0).abs() < 1e-9);
        flow.policy.restart();
        assert_eq!(flow.policy.state(), "deciding");
    }
}
