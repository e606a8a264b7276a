use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

use super::config::PccConfig;
use super::policy::{Measured, Policy, Round};

/// epsilon_max: beyond it probes grow no further (PCC, NSDI '15, Section 3.2).
const MAX_STEPS: u32 = 5;
/// Steps grow no further until the rate that was taken over has been found too high once. The paper's grow
/// without an end; on a long path with an empty buffer they are far beyond the link's rate when that is full.
const MOST_STEPS_AT_FIRST: u32 = 1;
/// Then so far, until it has been for sure: a packet or two may be lost by chance. (With 4 there is a pair left on
/// the lossy path of docs/mcc.md#migration, without an end there are three; with 1 it takes ten seconds from 5
/// to 8 Mbit/s of 20.)
const MOST_STEPS_AFTER_CHANCE: u32 = 3;
/// One step never takes more of the rate than this.
const MOST_OF_RATE: f64 = 0.5;

/// Steps of fixed size while utility rises (PCC, NSDI '15, Section 3.2).
#[derive(Debug)]
pub(super) struct FixedStep {
    /// epsilon_min.
    step: f64,
    state: State,
    /// How far steps grow.
    most_steps: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Two pairs of probes, `steps` times epsilon_min to both sides, must agree.
    Deciding { steps: u32 },
    /// The n-th rate in one direction is n times epsilon_min beyond the last.
    Adjusting { up: bool, n: u32, best: f64 },
}

impl FixedStep {
    pub(super) fn new(config: PccConfig) -> Self {
        Self { step: config.probe_step, state: State::Deciding { steps: 1 }, most_steps: u32::MAX }
    }

    fn gain(&self, up: bool, steps: u32) -> f64 {
        let size = (f64::from(steps) * self.step).min(MOST_OF_RATE);
        if up { 1.0 + size } else { 1.0 - size }
    }

    fn on_pairs(&mut self, round: &Round<'_>, steps: u32) -> Option<f64> {
        let mut best = 0.0;
        let mut ups = 0;
        for pair in round.results.chunks_exact(2) {
            let (a, b) = (pair[0]?, pair[1]?);
            let utility = |probe: &Measured| round.utility.of(&probe.seen);
            let (fast, slow) = if a.gain >= b.gain { (a, b) } else { (b, a) };
            let (of_fast, of_slow) = (utility(&fast), utility(&slow));
            ups += u32::from(of_fast > of_slow);
            best += of_fast.max(of_slow) / 2.0;
        }
        let up = match ups {
            0 => false,
            1 => {
                self.state = State::Deciding { steps: (steps + 1).min(MAX_STEPS) };
                return Some(round.central_mbps);
            }
            _ => true,
        };
        self.state = State::Adjusting { up, n: 1, best };
        Some(round.central_mbps * self.gain(up, steps))
    }
}

/// Whether a rate is too high, and not only unlucky.
fn is_sure(measured: &Measured) -> bool {
    measured.outcome.lost == 0 || measured.outcome.sure_loss(measured.seen.loss) > 0.0
}

impl Policy for FixedStep {
    fn plan(&mut self, rng: &mut Pcg64Mcg, gains: &mut Vec<f64>) {
        match self.state {
            State::Deciding { steps } => {
                for _ in 0..2 {
                    let up = rng.next_u32() & 1 == 0;
                    gains.extend([self.gain(up, steps), self.gain(!up, steps)]);
                }
            }
            State::Adjusting { up, n, .. } => gains.push(self.gain(up, n)),
        }
    }

    /// In the adjusting state the rate on trial stays until its result is there.
    fn waiting_gain(&self) -> f64 {
        match self.state {
            State::Deciding { .. } => 1.0,
            State::Adjusting { up, n, .. } => self.gain(up, n),
        }
    }

    fn decide(&mut self, round: &Round<'_>) -> Option<f64> {
        match self.state {
            State::Deciding { steps } => self.on_pairs(round, steps),
            State::Adjusting { up, n, best } => {
                let measured = (*round.results.first()?)?;
                let utility = round.utility.of(&measured.seen);
                if utility <= best {
                    let most = if is_sure(&measured) { u32::MAX } else { MOST_STEPS_AFTER_CHANCE };
                    self.most_steps = self.most_steps.max(most);
                    self.state = State::Deciding { steps: 1 };
                    return Some(round.central_mbps);
                }
                let gain = self.gain(up, n);
                let n = n.saturating_add(1).min(self.most_steps);
                self.state = State::Adjusting { up, n, best: utility };
                Some(round.central_mbps * gain)
            }
        }
    }

    fn restart(&mut self) {
        self.state = State::Deciding { steps: 1 };
        self.most_steps = u32::MAX;
    }

    fn take_over(&mut self) {
        self.restart();
        self.most_steps = MOST_STEPS_AT_FIRST;
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Deciding { .. } => "deciding",
            State::Adjusting { .. } => "adjusting",
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
            self.policy.plan(&mut self.rng, &mut self.gains);
            let measure = |gain: &f64| {
                let mut measured = clean(self.mbps * gain, *gain);
                measured.seen.loss = loss(self.mbps * gain);
                Some(measured)
            };
            let results: Vec<_> = self.gains.iter().map(measure).collect();
            let utility = &ALLEGRO.utility;
            let round = Round { central_mbps: self.mbps, utility, results: &results };
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
    fn it_goes_back_when_utility_falls_and_decides_anew() {
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
            flow.policy.plan(&mut flow.rng, &mut flow.gains);
            let widest = flow.gains.iter().copied().fold(0.0, f64::max);
            assert!((widest - 1.0 - f64::from(steps) * 0.01).abs() < 1e-9, "{widest}");
            // The first pair says up, the second down.
            let results: Vec<_> = (0..4)
                .map(|at| {
                    let mut measured = clean(100.0 * flow.gains[at], flow.gains[at]);
                    let down = at >= 2 && flow.gains[at] > 1.0;
                    measured.seen.loss = if down { 0.2 } else { 0.0 };
                    Some(measured)
                })
                .collect();
            let utility = &ALLEGRO.utility;
            let round = Round { central_mbps: 100.0, utility, results: &results };
            assert_eq!(flow.policy.decide(&round), Some(100.0));
        }
        flow.round(|_| 0.0);
        assert!((flow.mbps - 105.0).abs() < 1e-9);
        flow.policy.restart();
        assert_eq!(flow.policy.state(), "deciding");
    }
}
