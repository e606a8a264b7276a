use std::time::Duration;

use crate::estimators::Regression;

/// k is refitted so often (Section V-B).
const REFIT_EVERY: Duration = Duration::from_secs(5);
/// What a fit leaves of the weight of what it was made from: k is stationary "in a short period
/// of time" only (Section IV-A4).
const FADE: f64 = 0.5;
/// A slope below so many of its standard errors is chance: the last good one stays.
const LEAST_CERTAINTY: f64 = 3.0;
/// How far k may be from what the path's physics say, either way: see [`DelaySlope::get`].
const MOST_DEVIATION: f64 = 2.0;

/// k of Eq. 2: by how much an epoch's excess of sending over receiving rate raises the RTT, in
/// seconds per (10^6 bit/s) of an epoch of the usual length.
#[derive(Debug)]
pub(super) struct DelaySlope {
    epoch: Duration,
    history: Regression,
    age: Duration,
    fitted: Option<f64>,
}

impl DelaySlope {
    pub(super) fn new(epoch: Duration) -> Self {
        Self { epoch, history: Regression::default(), age: Duration::ZERO, fitted: None }
    }

    /// An epoch of `duration` sent `excess_mbps` more than was received, and its mean RTT was
    /// `rise_s` above that of the epoch before.
    pub(super) fn add(&mut self, duration: Duration, excess_mbps: f64, rise_s: f64) {
        // A stretched epoch raises the RTT for longer.
        let length = duration.as_secs_f64() / self.epoch.as_secs_f64();
        self.history.add_point(excess_mbps * length, rise_s);
        self.age += duration;
        if self.age >= REFIT_EVERY {
            self.fit();
        }
    }

    /// Fits k to the history (Eq. 2). Start-up ends with it, then it is done every 5 s.
    pub(super) fn fit(&mut self) {
        let slope = self.history.slope();
        if slope.value > LEAST_CERTAINTY * slope.error && slope.value > 0.0 {
            self.fitted = Some(slope.value);
        }
        self.history.fade(FADE);
        self.age = Duration::ZERO;
    }

    /// k while `received_mbps` come through.
    ///
    /// A queue from which r leaves grows by (x - r) e / r in an epoch of length e, so that k = e /
    /// r: a fit far from that has caught noise (or a rate of long ago), and a wrong k is a wrong
    /// step until the next fit.
    pub(super) fn get(&self, received_mbps: f64) -> f64 {
        let physical = self.epoch.as_secs_f64() / received_mbps;
        let (least, most) = (physical / MOST_DEVIATION, physical * MOST_DEVIATION);
        self.fitted.map_or(physical, |fitted| fitted.clamp(least, most))
    }

    /// The last good fit.
    pub(super) fn fitted(&self) -> Option<f64> {
        self.fitted
    }
}
