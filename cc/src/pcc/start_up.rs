use super::config::PccConfig;
use super::monitor_interval::IntervalOutcome;
use super::utility::{FilteredOutcome, Utility};

/// Losses that start-up ignores as random (Section 5.2.1, "initial ignorance").
const IGNORED_LOSSES: u64 = 50;
/// An interval is out of reach if its loss rate is significantly above this and it delivers less than
/// [`MIN_DELIVERED_FRACTION`]: the initial rate was too high. Slow links would have to lose fifty packets first.
/// With a lower loss or a higher delivery threshold, new flows on a busy link would give up.
/// Chosen by `fifty_kilobits_and_ten_gigabits_work` (lab/sim/tests/real_conditions.rs).
const HEAVY_LOSS_RATE: f64 = 0.1;
/// Share of the confirmed rate that an interval must deliver, unless its loss is below [`HEAVY_LOSS_RATE`].
const MIN_DELIVERED_FRACTION: f64 = 0.5;
/// An interval that sent less than this share of its rate was limited by something else.
pub(super) const MIN_START_UP_REACHED_FRACTION: f64 = 0.9;
/// A standing queue makes RTTs more than this multiple of the smallest RTT of an interval.
/// Chosen by `start_up_ends_where_the_window_limits_the_rate` (lab/sim/tests/real_conditions.rs).
const STANDING_QUEUE_RTT_RATIO: f64 = 1.5;
/// RTT gradient that start-up ignores (Section 5.2.1).
const IGNORED_GRADIENT: f64 = 0.2;

/// Next step of start-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StartUpStep {
    /// `confirmed_mbps` is confirmed: try twice that.
    Faster { confirmed_mbps: f64 },
    /// Too fast: stay at `mbps` for an interval while the queue drains.
    Drain { mbps: f64 },
    /// Start-up has ended at `mbps`.
    Done { mbps: f64 },
}

/// Doubles the rate with each interval until utility falls (Section 4).
///
/// The next doubling waits for the outcome of the last one, at the confirmed rate: at worst one
/// interval at less than twice the capacity is sent.
#[derive(Debug)]
pub(super) struct StartUp {
    ignorance: bool,
    from_delivered: bool,
    best: Option<BestRate>,
    lost: u64,
    /// Smallest mean RTT of an interval.
    least_rtt_s: Option<f64>,
    /// The rate after the queue has drained.
    found_mbps: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct BestRate {
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

    /// The last step of start-up: the rate is known, and one interval drains the queue.
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
        outcome: &IntervalOutcome,
        seen: &FilteredOutcome,
    ) -> StartUpStep {
        if let Some(mbps) = self.found_mbps {
            return StartUpStep::Done { mbps };
        }
        self.lost += outcome.lost;
        let is_limited = self.is_limited_by_queue(outcome);
        if outcome.rtt_s > 0.0 {
            let least = self.least_rtt_s.unwrap_or(outcome.rtt_s);
            self.least_rtt_s = Some(least.min(outcome.rtt_s));
        }
        let utility = utility.of(&self.without_ignored(outcome, seen));
        match self.best {
            Some(best) if is_limited || utility <= best.utility => {
                self.leave(best, outcome, seen, is_limited)
            }
            _ => {
                let mbps = outcome.target_mbps;
                self.best = Some(BestRate { mbps, utility });
                StartUpStep::Faster { confirmed_mbps: mbps }
            }
        }
    }

    /// Whether the interval made a queue grow or overflow. Also counts when the application ran out of
    /// data: a video's segments end before an interval at a high rate does.
    pub(super) fn shows_queue(&self, outcome: &IntervalOutcome, seen: &FilteredOutcome) -> bool {
        self.without_ignored(outcome, seen).gradient > 0.0
            || self.is_out_of_reach(outcome, seen)
            || self.is_limited_by_queue(outcome)
    }

    /// Whether the rate is far above the path's: heavy loss, and little delivered ([`HEAVY_LOSS_RATE`]).
    fn is_out_of_reach(&self, outcome: &IntervalOutcome, seen: &FilteredOutcome) -> bool {
        let delivered = outcome.delivered_mbps;
        let mut good = self.best.map_or(outcome.target_mbps, |best| best.mbps);
        if outcome.app_limited {
            good = good.min(outcome.sent_mbps);
        }
        let short = delivered < MIN_DELIVERED_FRACTION * good;
        short && delivered > 0.0 && outcome.significant_loss(seen.loss) > HEAVY_LOSS_RATE
    }

    /// Whether a standing queue kept the interval from its rate: it fills the window. Later intervals would not reach
    /// the rate either.
    fn is_limited_by_queue(&self, outcome: &IntervalOutcome) -> bool {
        let kept = !outcome.app_limited
            && outcome.sent_mbps < MIN_START_UP_REACHED_FRACTION * outcome.target_mbps;
        let stands =
            self.least_rtt_s.is_some_and(|least| outcome.rtt_s > STANDING_QUEUE_RTT_RATIO * least);
        kept && stands && outcome.delivered_mbps > 0.0
    }

    /// RTT gradient and loss rate without those that start-up ignores.
    fn without_ignored(
        &self,
        outcome: &IntervalOutcome,
        seen: &FilteredOutcome,
    ) -> FilteredOutcome {
        let mut seen = *seen;
        if self.ignorance && seen.gradient < IGNORED_GRADIENT {
            seen.gradient = 0.0;
        }
        if self.ignorance && self.lost < IGNORED_LOSSES && !self.is_out_of_reach(outcome, &seen) {
            seen.loss = 0.0;
        }
        seen
    }

    /// Ends start-up at half of the rate that was too high, as in the paper, or at the delivery rate.
    fn leave(
        &mut self,
        best: BestRate,
        outcome: &IntervalOutcome,
        seen: &FilteredOutcome,
        is_limited: bool,
    ) -> StartUpStep {
        if !self.from_delivered {
            return StartUpStep::Done { mbps: best.mbps };
        }
        if is_limited || self.is_out_of_reach(outcome, seen) {
            let mbps = outcome.delivered_mbps;
            self.found_mbps = Some(mbps);
            return StartUpStep::Drain { mbps };
        }
        let mbps = outcome.delivered_mbps.clamp(best.mbps, outcome.target_mbps.max(best.mbps));
        self.found_mbps = Some(mbps);
        StartUpStep::Drain { mbps: best.mbps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimators::Slope;
    use crate::pcc::VIVACE_LATENCY;

    fn after(start_up: &mut StartUp, mbps: f64, lost: u64, gradient: f64) -> StartUpStep {
        let outcome = IntervalOutcome {
            target_mbps: mbps,
            sent_mbps: mbps,
            delivered_mbps: mbps.min(12.0),
            slope: Slope { value: gradient, error: 0.0 },
            floor_slope: None,
            rtt_s: 0.03,
            deviation_s: 0.0,
            residual_s: 0.0,
            duration_s: 0.03,
            packets: 20,
            lost,
            app_limited: false,
        };
        let loss = lost as f64 / 20.0;
        let seen =
            FilteredOutcome { rate_mbps: mbps, gradient, loss, ..FilteredOutcome::default() };
        start_up.on_outcome(&VIVACE_LATENCY.utility, &outcome, &seen)
    }

    #[test]
    fn start_up_doubles_until_utility_falls_and_ends_at_the_delivery_rate() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY);
        assert!(start_up.is_fresh());
        let step = after(&mut start_up, 8.0, 0, 0.0);
        assert_eq!(step, StartUpStep::Faster { confirmed_mbps: 8.0 });
        assert_eq!(after(&mut start_up, 16.0, 0, 0.3), StartUpStep::Drain { mbps: 8.0 });
        assert_eq!(after(&mut start_up, 8.0, 0, 0.0), StartUpStep::Done { mbps: 12.0 });
    }

    #[test]
    fn published_start_up_ends_at_half_the_rate() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY.as_published());
        after(&mut start_up, 8.0, 0, 0.0);
        assert_eq!(after(&mut start_up, 16.0, 0, 0.3), StartUpStep::Done { mbps: 8.0 });
    }

    #[test]
    fn heavy_loss_far_above_the_link_rate_ends_start_up() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY);
        after(&mut start_up, 48.0, 15, 0.0);
        assert_eq!(after(&mut start_up, 96.0, 17, 0.0), StartUpStep::Drain { mbps: 12.0 });
        assert_eq!(after(&mut start_up, 12.0, 0, 0.0), StartUpStep::Done { mbps: 12.0 });
    }

    #[test]
    fn heavy_loss_near_the_link_rate_is_ignored() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY);
        after(&mut start_up, 16.0, 5, 0.0);
        assert_eq!(
            after(&mut start_up, 32.0, 12, 0.0),
            StartUpStep::Faster { confirmed_mbps: 32.0 }
        );
    }

    #[test]
    fn one_loss_in_a_small_interval_ends_start_up_only_without_ignorance() {
        for ignorance in [true, false] {
            let config = PccConfig { initial_ignorance: ignorance, ..VIVACE_LATENCY };
            let mut start_up = StartUp::new(&config);
            after(&mut start_up, 1.0, 0, 0.0);
            let step = after(&mut start_up, 2.0, 1, 0.0);
            assert_eq!(step == StartUpStep::Faster { confirmed_mbps: 2.0 }, ignorance, "{step:?}");
        }
    }

    #[test]
    fn a_burst_that_loses_some_packets_is_not_out_of_reach() {
        let mut start_up = StartUp::new(&VIVACE_LATENCY);
        after(&mut start_up, 20.0, 0, 0.0);
        let burst = crate::pcc::rate_control::tests::clean(40.0, 1.0).outcome;
        let seen = FilteredOutcome { rate_mbps: 9.0, loss: 0.2, ..FilteredOutcome::default() };
        let sent = IntervalOutcome { sent_mbps: 9.0, delivered_mbps: 7.2, lost: 200, ..burst };
        for app_limited in [false, true] {
            let outcome = IntervalOutcome { app_limited, ..sent };
            assert_eq!(start_up.shows_queue(&outcome, &seen), !app_limited);
        }
    }
}
