use super::config::PccConfig;
use super::monitor_interval::IntervalOutcome;

/// Time over which the mean forgets, s: several of a camera's key frames, which come each half second to four seconds.
const HORIZON_S: f64 = 5.0;
/// Least rate after a burst, as a multiple of the mean: a burst must not delay the data of the next. As much as
/// `MAX_RATE_OVER_SENT`.
const MIN_RATE_OVER_MEAN: f64 = 1.25;

/// What the application sends in the mean, and what a burst of its data may be sent at.
///
/// A sender that runs out of data learns nothing of the path, and its rate stays far above what it sends. Its bursts (a
/// camera's key frames) then leave at that rate, overflow a small buffer, and take packets of all flows with them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AppRate {
    /// 10^6 bit/s.
    mean_mbps: Option<f64>,
}

impl AppRate {
    pub(super) fn on_outcome(&mut self, outcome: &IntervalOutcome) {
        let weight = 1.0 - libm::exp(-outcome.duration_s / HORIZON_S);
        let mean = self.mean_mbps.unwrap_or(outcome.sent_mbps);
        self.mean_mbps = Some(mean + weight * (outcome.sent_mbps - mean));
    }

    /// The rate after an interval that was sent around `central_mbps`, in which the application ran out of data and
    /// `loss` of its packets were lost; `None` if it stays.
    pub(super) fn after_burst(
        &self,
        config: &PccConfig,
        central_mbps: f64,
        outcome: &IntervalOutcome,
        loss: f64,
    ) -> Option<f64> {
        let (decrease, limit) = (config.burst_decrease?, config.fall_at_loss?);
        if !outcome.app_limited || outcome.significant_loss(loss) <= limit {
            return None;
        }
        let least = self.mean_mbps? * MIN_RATE_OVER_MEAN;
        let lower = (central_mbps * decrease).max(least);
        (lower < central_mbps).then_some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcc::VIVACE_LATENCY;
    use crate::pcc::rate_control::tests::clean;

    fn sent(mbps: f64, duration_s: f64) -> IntervalOutcome {
        IntervalOutcome { duration_s, app_limited: true, ..clean(mbps, 1.0).outcome }
    }

    #[test]
    fn the_mean_follows_by_time_and_not_by_number_of_intervals() {
        let after = |intervals: u32, duration_s: f64| {
            let mut rate = AppRate::default();
            rate.on_outcome(&sent(10.0, duration_s));
            (0..intervals).for_each(|_| rate.on_outcome(&sent(20.0, duration_s)));
            rate.mean_mbps.unwrap()
        };
        // A horizon leaves 1/e of the difference.
        assert!((after(50, 0.1) - 16.321).abs() < 0.01, "{}", after(50, 0.1));
        assert!((after(5, 1.0) - after(50, 0.1)).abs() < 1e-6);
    }

    #[test]
    fn a_burst_that_is_lost_lowers_the_rate_to_what_the_application_needs() {
        let mut rate = AppRate::default();
        let burst = sent(16.0, 0.2);
        assert_eq!(rate.after_burst(&VIVACE_LATENCY, 60.0, &burst, 0.3), None, "nothing is known");
        rate.on_outcome(&burst);
        let after = |central, loss| rate.after_burst(&VIVACE_LATENCY, central, &burst, loss);
        assert_eq!(after(60.0, 0.3), Some(42.0));
        assert_eq!(after(25.0, 0.3), Some(20.0), "1.25 times the mean");
        assert_eq!((after(18.0, 0.3), after(60.0, 0.05)), (None, None));
        let full = IntervalOutcome { app_limited: false, ..burst };
        assert_eq!(rate.after_burst(&VIVACE_LATENCY, 60.0, &full, 0.3), None);
        let published = VIVACE_LATENCY.as_published();
        assert_eq!(rate.after_burst(&published, 60.0, &burst, 0.3), None);
    }
}
