//! Runs to come and about how long they take.

use std::fmt;

use super::options::ConnectionsOptions;
use super::plan::SweepPoint;

/// Shown as `12 runs, about 96 s`.
#[derive(Debug, Clone, Copy)]
pub struct SweepProgress {
    runs: usize,
    seconds: f64,
}

impl SweepProgress {
    /// Of all these.
    pub fn new(options: &ConnectionsOptions, points: &[(usize, SweepPoint)]) -> Self {
        // The sum of nothing is -0.
        let seconds = 0.0 + points.iter().map(|(_, point)| options.estimate_s(point)).sum::<f64>();
        Self { runs: points.len(), seconds }
    }

    /// One that takes so long has begun.
    pub fn subtract(&mut self, seconds: f64) {
        self.runs -= 1;
        self.seconds = (self.seconds - seconds).max(0.0);
    }
}

impl fmt::Display for SweepProgress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} runs, about {:.0} s", self.runs, self.seconds)
    }
}
