use super::VivaceConfig;
use super::monitor_interval::Outcome;

/// Losses that start-up takes for chance (Section 5.2.1, "initial ignorance").
const IGNORED_LOSSES: u64 = 50;
/// RTT gradient that start-up takes for chance (Section 5.2.1).
const IGNORED_GRADIENT: f64 = 0.2;

/// What start-up does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// `confirmed_mbps` is good: try twice that.
    Faster { confirmed_mbps: f64 },
    /// Too fast: stay at `mbps` for an interval, for the queue to drain.
    Drain { mbps: f64 },
    /// Start-up has ended at `mbps`.
    Done { mbps: f64 },
}

/// Doubles the rate with each interval until utility falls (Section 4).
///
/// The next doubling waits for what the last one showed, at the rate that is known to be
/// good: at worst one interval at less than twice the capacity goes out.
#[derive(Debug)]
pub(super) struct StartUp {
    config: VivaceConfig,
    best: Option<Best>,
    lost: u64,
    /// Where to go on after the queue has drained.
    found_mbps: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Best {
    mbps: f64,
    utility: f64,
}

impl StartUp {
    pub(super) fn new(config: VivaceConfig) -> Self {
        Self { config, best: None, lost: 0, found_mbps: None }
    }

    /// Whether nothing has been measured.
    pub(super) fn is_fresh(&self) -> bool {
        self.best.is_none()
    }

    pub(super) fn on_outcome(&mut self, outcome: &Outcome) -> Step {
        if let Some(mbps) = self.found_mbps {
            return Step::Done { mbps };
        }
        self.lost += outcome.lost;
        let (gradient, loss) = self.signals(outcome);
        let utility = self.config.utility.of(outcome.sent_mbps, gradient, loss);
        match self.best {
            Some(best) if utility <= best.utility => self.leave(best, outcome),
            _ => {
                let mbps = outcome.target_mbps;
                self.best = Some(Best { mbps, utility });
                Step::Faster { confirmed_mbps: mbps }
            }
        }
    }

    /// Whether the interval made a queue grow. That counts also when there was too little to send
    /// for the whole of it: a video's segments end before an interval at a high rate does.
    pub(super) fn shows_queue(&self, outcome: &Outcome) -> bool {
        self.signals(outcome).0 > 0.0
    }

    /// RTT gradient and loss rate as far as they are taken seriously.
    fn signals(&self, outcome: &Outcome) -> (f64, f64) {
        let mut gradient = self.config.filtered(outcome.slope);
        let mut loss = outcome.lost as f64 / outcome.packets.max(1) as f64;
        if self.config.initial_ignorance {
            if gradient < IGNORED_GRADIENT {
                gradient = 0.0;
            }
            if self.lost < IGNORED_LOSSES {
                loss = 0.0;
            }
        }
        (gradient, loss)
    }

    /// Half of what was too much, as the paper, or what was delivered of it.
    fn leave(&mut self, best: Best, outcome: &Outcome) -> Step {
        if !self.config.start_from_delivered {
            return Step::Done { mbps: best.mbps };
        }
        let mbps = outcome.delivered_mbps.clamp(best.mbps, outcome.target_mbps.max(best.mbps));
        self.found_mbps = Some(mbps);
        Step::Drain { mbps: best.mbps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimators::Slope;

    fn outcome(mbps: f64, lost: u64, gradient: f64) -> Outcome {
        Outcome {
            target_mbps: mbps,
            sent_mbps: mbps,
            delivered_mbps: mbps.min(12.0),
            slope: Slope { value: gradient, error: 0.0 },
            packets: 20,
            lost,
            app_limited: false,
        }
    }

    #[test]
    fn it_doubles_until_utility_falls_and_goes_on_from_what_was_delivered() {
        let mut start_up = StartUp::new(VivaceConfig::latency());
        assert_eq!(
            start_up.on_outcome(&outcome(8.0, 0, 0.0)),
            Step::Faster { confirmed_mbps: 8.0 }
        );
        assert_eq!(start_up.on_outcome(&outcome(16.0, 0, 0.3)), Step::Drain { mbps: 8.0 });
        assert_eq!(start_up.on_outcome(&outcome(8.0, 0, 0.0)), Step::Done { mbps: 12.0 });
    }

    #[test]
    fn the_paper_goes_on_from_half() {
        let config = VivaceConfig { start_from_delivered: false, ..VivaceConfig::latency() };
        let mut start_up = StartUp::new(config);
        start_up.on_outcome(&outcome(8.0, 0, 0.0));
        assert_eq!(start_up.on_outcome(&outcome(16.0, 0, 0.3)), Step::Done { mbps: 8.0 });
    }

    #[test]
    fn one_loss_in_a_small_interval_ends_it_only_without_ignorance() {
        for ignorance in [true, false] {
            let config = VivaceConfig { initial_ignorance: ignorance, ..VivaceConfig::latency() };
            let mut start_up = StartUp::new(config);
            start_up.on_outcome(&outcome(1.0, 0, 0.0));
            let step = start_up.on_outcome(&outcome(2.0, 1, 0.0));
            assert_eq!(step == Step::Faster { confirmed_mbps: 2.0 }, ignorance, "{step:?}");
        }
    }
}
