use super::config::PccConfig;
use super::monitor_interval::Outcome;
use super::utility::{Observed, Utility};

/// Losses that start-up takes for chance (Section 5.2.1, "initial ignorance").
const IGNORED_LOSSES: u64 = 50;
/// Where an interval surely loses more than this and delivers less than [`FAR_SHORT`] of the rate that
/// was thought to be good, that never was: nothing was known before it. Slow links would have to lose
/// fifty packets first. (50 kbit/s with room for ten packets: doubling never ended, because the
/// window did not let the next rate be reached, and 55 to 88 % were lost.) With less losses or more
/// delivered it would be newcomers on a busy link that gave up: of four flows Vivace-Loss's had a
/// Jain index of 0.51 instead of 0.999.
const HEAVY_LOSS: f64 = 0.1;
/// See [`HEAVY_LOSS`].
const FAR_SHORT: f64 = 0.5;
/// An interval that has less than this share of its rate was kept from it.
pub(super) const KEPT_BELOW: f64 = 0.9;
/// A queue stands where round trips are so many times as long as before.
const STANDS: f64 = 1.5;
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
    ignorance: bool,
    from_delivered: bool,
    best: Option<Best>,
    lost: u64,
    /// Least mean round trip of an interval.
    least_rtt_s: Option<f64>,
    /// Where to go on after the queue has drained.
    found_mbps: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Best {
    mbps: f64,
    utility: f64,
}

impl StartUp {
    pub(super) fn new(config: &PccConfig) -> Self {
        Self {
            ignorance: config.initial_ignorance,
            from_delivered: config.start_from_delivered,
            best: None,
            lost: 0,
            least_rtt_s: None,
            found_mbps: None,
        }
    }

    /// The end of it: all is known but for the queue, which an interval drains.
    pub(super) fn draining(config: &PccConfig, mbps: f64) -> Self {
        Self { found_mbps: Some(mbps), ..Self::new(config) }
    }

    /// Whether nothing has been measured.
    pub(super) fn is_fresh(&self) -> bool {
        self.best.is_none() && self.found_mbps.is_none()
    }

    pub(super) fn on_outcome(
        &mut self,
        utility: &Utility,
        outcome: &Outcome,
        seen: &Observed,
    ) -> Step {
        if let Some(mbps) = self.found_mbps {
            return Step::Done { mbps };
        }
        self.lost += outcome.lost;
        let held_back = self.is_held_back(outcome);
        if outcome.rtt_s > 0.0 {
            let least = self.least_rtt_s.unwrap_or(outcome.rtt_s);
            self.least_rtt_s = Some(least.min(outcome.rtt_s));
        }
        let utility = utility.of(&self.serious(outcome, seen));
        match self.best {
            Some(best) if held_back || utility <= best.utility => {
                self.leave(best, outcome, seen, held_back)
            }
            _ => {
                let mbps = outcome.target_mbps;
                self.best = Some(Best { mbps, utility });
                Step::Faster { confirmed_mbps: mbps }
            }
        }
    }

    /// Whether the interval made a queue grow, or overflow. That counts also when there was too
    /// little to send for the whole of it: a video's segments end before an interval at a high rate
    /// does.
    pub(super) fn shows_queue(&self, outcome: &Outcome, seen: &Observed) -> bool {
        self.serious(outcome, seen).gradient > 0.0
            || self.is_out_of_reach(outcome, seen)
            || self.is_held_back(outcome)
    }

    /// See [`HEAVY_LOSS`].
    fn is_out_of_reach(&self, outcome: &Outcome, seen: &Observed) -> bool {
        let delivered = outcome.delivered_mbps;
        let good = self.best.map_or(outcome.target_mbps, |best| best.mbps);
        let short = delivered < FAR_SHORT * good;
        short && delivered > 0.0 && outcome.sure_loss(seen.loss) > HEAVY_LOSS
    }

    /// Whether a queue kept the interval from its rate: so long that the window holds no more. No later one
    /// would come further. (Waiting for one that did lost a fifth of all packets for good where the buffer
    /// was not as deep as the window, and had a queue that stood where it was.)
    fn is_held_back(&self, outcome: &Outcome) -> bool {
        let kept = !outcome.app_limited && outcome.sent_mbps < KEPT_BELOW * outcome.target_mbps;
        let stands = self.least_rtt_s.is_some_and(|least| outcome.rtt_s > STANDS * least);
        kept && stands && outcome.delivered_mbps > 0.0
    }

    /// RTT gradient and loss rate as far as they are taken seriously.
    fn serious(&self, outcome: &Outcome, seen: &Observed) -> Observed {
        let mut seen = *seen;
        if self.ignorance && seen.gradient < IGNORED_GRADIENT {
            seen.gradient = 0.0;
        }
        if self.ignorance && self.lost < IGNORED_LOSSES && !self.is_out_of_reach(outcome, &seen) {
            seen.loss = 0.0;
        }
        seen
    }

    /// Half of what was too much, as the paper, or what was delivered of it.
    fn leave(&mut self, best: Best, outcome: &Outcome, seen: &Observed, held_back: bool) -> Step {
        if !self.from_delivered {
            return Step::Done { mbps: best.mbps };
        }
        if held_back || self.is_out_of_reach(outcome, seen) {
            let mbps = outcome.delivered_mbps;
            self.found_mbps = Some(mbps);
            return Step::Drain { mbps };
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
    use crate::pcc::VIVACE_LATENCY;

    fn after(start_up: &mut StartUp, mbps: f64, lost: u64, gradient: f64) -> Step {
        let outcome = Outcome {
            target_mbps: mbps,
            sent_mbps: mbps,
            delivered_mbps: mbps.min(12.0),
            slope: Slope { value: gradient, error: 0.0 },
            rtt_s: 0.03,
            deviation_s: 0.0,
            residual_s: 0.0,
            duration_s: 0.03,
            packets: 20,
            lost,
            app_limited: false,
        };
        let loss = lost as f64 / 20.0;
        let seen = Observed { rate_mbps: mbps, gradient, loss, ..Observed::default() };
        start_up.on_outcome(&VIVACE_LATENCY.utility, &outcome, &seen)
    }

    #[test]
    fn it_doubles_until_utility_falls_and_goes_on_from_what_was_delivered() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY);
        assert!(start_up.is_fresh());
        let step = after(&mut start_up, 8.0, 0, 0.0);
        assert_eq!(step, Step::Faster { confirmed_mbps: 8.0 });
        assert_eq!(after(&mut start_up, 16.0, 0, 0.3), Step::Drain { mbps: 8.0 });
        assert_eq!(after(&mut start_up, 8.0, 0, 0.0), Step::Done { mbps: 12.0 });
    }

    #[test]
    fn the_paper_goes_on_from_half() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY.as_published());
        after(&mut start_up, 8.0, 0, 0.0);
        assert_eq!(after(&mut start_up, 16.0, 0, 0.3), Step::Done { mbps: 8.0 });
    }

    #[test]
    fn heavy_losses_far_above_the_link_end_it_however_few_packets_they_are() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY);
        after(&mut start_up, 48.0, 15, 0.0);
        assert_eq!(after(&mut start_up, 96.0, 17, 0.0), Step::Drain { mbps: 12.0 });
        assert_eq!(after(&mut start_up, 12.0, 0, 0.0), Step::Done { mbps: 12.0 });
    }

    #[test]
    fn heavy_losses_near_the_link_s_rate_are_ignored_as_long_as_others_are() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY);
        after(&mut start_up, 16.0, 5, 0.0);
        assert_eq!(after(&mut start_up, 32.0, 12, 0.0), Step::Faster { confirmed_mbps: 32.0 });
    }

    #[test]
    fn one_loss_in_a_small_interval_ends_it_only_without_ignorance() {
        for ignorance in [true, false] {
            let config = PccConfig { initial_ignorance: ignorance, ..VIVACE_LATENCY };
            let mut start_up = StartUp::new(&config);
            after(&mut start_up, 1.0, 0, 0.0);
            let step = after(&mut start_up, 2.0, 1, 0.0);
            assert_eq!(step == Step::Faster { confirmed_mbps: 2.0 }, ignorance, "{step:?}");
        }
    }
}
