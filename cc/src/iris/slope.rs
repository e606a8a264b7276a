use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::estimators::Regression;

/// Time between two fits of k (Section V-B).
const REFIT_INTERVAL: Duration = Duration::from_secs(5);
/// Factor of the weight of old points after each fit: k is stationary "in a short period of time" only
/// (Section IV-A4).
const REFIT_DECAY: f64 = 0.5;
/// A slope counts if it is more than this many of its standard errors; otherwise the last valid slope stays.
/// Chosen by `a_bad_fit_changes_nothing_and_a_stale_one_is_bounded`.
const MIN_SLOPE_ERRORS: f64 = 3.0;
/// Largest ratio, either way, between a fitted k and the k of an ideal queue ([`DelaySlope::get`]).
/// Chosen by `a_bad_fit_changes_nothing_and_a_stale_one_is_bounded`.
const MAX_IDEAL_RATIO: f64 = 2.0;

/// What k is, to measure what learning it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlopeSource {
    /// Fitted at the end of start-up and every 5 s (Section V-B).
    Learned,
    /// Fitted at the end of start-up.
    StartUp,
    /// Never fitted: that of an ideal queue, an epoch over the receiving rate.
    Ideal,
}

/// k of Eq. 2: increase of the RTT by an epoch's excess of sending over receiving rate, in seconds per
/// (10^6 bit/s) of an epoch of the usual length.
#[derive(Debug)]
pub(super) struct DelaySlope {
    epoch: Duration,
    source: SlopeSource,
    /// Whether a fit counts only near the k of an ideal queue.
    bound: bool,
    history: Regression,
    age: Duration,
    fitted: Option<f64>,
}

impl DelaySlope {
    pub(super) fn new(epoch: Duration, source: SlopeSource, bound: bool) -> Self {
        let history = Regression::default();
        Self { epoch, source, bound, history, age: Duration::ZERO, fitted: None }
    }

    /// Adds an epoch of `duration` that sent `excess_mbps` more than was received, and whose mean RTT was
    /// `rise_s` above that of the previous epoch.
    pub(super) fn add(&mut self, duration: Duration, excess_mbps: f64, rise_s: f64) {
        // A stretched epoch raises the RTT for longer.
        let length = duration.as_secs_f64() / self.epoch.as_secs_f64();
        self.history.add_point(excess_mbps * length, rise_s);
        self.age += duration;
        if self.age >= REFIT_INTERVAL && self.source == SlopeSource::Learned {
            self.fit();
        }
    }

    /// Start-up has ended.
    pub(super) fn on_start_up_end(&mut self) {
        if self.source != SlopeSource::Ideal {
            self.fit();
        }
    }

    /// Fits k to the history (Eq. 2).
    fn fit(&mut self) {
        let slope = self.history.slope();
        if slope.value > MIN_SLOPE_ERRORS * slope.error && slope.value > 0.0 {
            self.fitted = Some(slope.value);
        }
        self.history.fade(REFIT_DECAY);
        self.age = Duration::ZERO;
    }

    /// k at the receiving rate `received_mbps`.
    ///
    /// A queue drained at the rate r grows by (x - r) e / r in an epoch of length e, so that k = e / r.
    /// A fit far from that results from noise or from an earlier rate.
    pub(super) fn get(&self, received_mbps: f64) -> f64 {
        let ideal = self.epoch.as_secs_f64() / received_mbps;
        let (least, most) = (ideal / MAX_IDEAL_RATIO, ideal * MAX_IDEAL_RATIO);
        self.fitted
            .map_or(ideal, |fitted| if self.bound { fitted.clamp(least, most) } else { fitted })
    }

    /// The last valid fit.
    pub(super) fn fitted(&self) -> Option<f64> {
        self.fitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Duration = Duration::from_millis(50);

    /// A path of 20 Mbit/s: each epoch's excess of rate becomes queue.
    fn fitted(noise_s: f64, sign: f64) -> DelaySlope {
        fitted_from(SlopeSource::Learned, noise_s, sign)
    }

    fn fitted_from(source: SlopeSource, noise_s: f64, sign: f64) -> DelaySlope {
        let mut slope = DelaySlope::new(EPOCH, source, true);
        for n in 0..100_u32 {
            let excess_mbps = f64::from(n % 7) - 3.0;
            let noise = if n % 2 == 0 { noise_s } else { -noise_s };
            slope.add(EPOCH, excess_mbps, sign * excess_mbps / 20.0 * 0.05 + noise);
        }
        slope
    }

    #[test]
    fn k_is_an_epoch_over_the_capacity() {
        let slope = fitted(0.0, 1.0);
        assert!((slope.fitted().expect("5 s") - 0.0025).abs() < 1e-9);
        assert!((slope.get(20.0) - 0.0025).abs() < 1e-9);
        assert!((fitted(0.001, 1.0).get(20.0) - 0.0025).abs() < 2e-4, "jitter of 1 ms");
    }

    #[test]
    fn a_stretched_epoch_counts_for_longer() {
        let mut slope = DelaySlope::new(EPOCH, SlopeSource::Learned, true);
        for excess in [-2.0, -1.0, 1.0, 2.0] {
            slope.add(EPOCH * 2, excess, excess * 0.005);
        }
        slope.fit();
        assert!((slope.get(20.0) - 0.0025).abs() < 1e-9);
    }

    #[test]
    fn a_bad_fit_changes_nothing_and_a_stale_one_is_bounded() {
        assert_eq!(fitted(0.0, -1.0).fitted(), None, "a queue that shrinks under load");
        assert_eq!(fitted(0.1, 1.0).fitted(), None, "noise");
        assert_eq!(fitted(0.1, 1.0).get(20.0), 0.0025, "the ideal queue");
        assert_eq!(fitted(0.0, 1.0).get(200.0), 0.0005, "twice the 0.00025 of ten times the rate");
        let free = DelaySlope { bound: false, ..fitted(0.0, 1.0) };
        assert!((free.get(200.0) - 0.0025).abs() < 1e-9, "as it was fitted");
    }
    #[test]
    fn k_is_learnt_again_once_or_never() {
        let mut once = fitted_from(SlopeSource::StartUp, 0.0, 1.0);
        assert_eq!(once.fitted(), None, "five seconds, and no end of start-up");
        once.on_start_up_end();
        assert!((once.get(20.0) - 0.0025).abs() < 1e-9);
        let mut never = fitted_from(SlopeSource::Ideal, 0.0, 1.0);
        never.on_start_up_end();
        assert_eq!(never.fitted(), None);
        assert_eq!(never.get(10.0), 0.005, "an epoch over the rate");
    }
}
