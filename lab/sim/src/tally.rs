use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Delays;

/// Significant digits: quantiles are within 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Shorter delays are not distinguished.
const RESOLUTION_NS: u64 = 64;
/// Initial range of the histogram, which grows as needed.
const INITIAL_RANGE_NS: u64 = 1_000_000;

/// A distribution of delays in bounded memory.
#[derive(Debug)]
pub struct DelayTally {
    histogram: Histogram<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for DelayTally {
    fn default() -> Self {
        Self::new()
    }
}

impl DelayTally {
    /// An empty distribution.
    #[must_use]
    pub fn new() -> Self {
        let mut histogram =
            Histogram::new_with_bounds(RESOLUTION_NS, INITIAL_RANGE_NS, SIGNIFICANT_DIGITS)
                .expect("the bounds are far enough apart");
        histogram.auto(true);
        Self { histogram, count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Adds a delay.
    pub fn record(&mut self, delay_ns: u64) {
        self.histogram += delay_ns;
        self.count += 1;
        self.sum_ns += u128::from(delay_ns);
        self.min_ns = self.min_ns.min(delay_ns);
        self.max_ns = self.max_ns.max(delay_ns);
    }

    /// Removes all delays.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The distribution's figures.
    #[must_use]
    pub fn summary(&self) -> Delays {
        if self.count == 0 {
            return Delays::default();
        }
        // A bucket's upper end may lie beyond the extremes, which are exact.
        let quantile = |share: f64| {
            let ns = self.histogram.value_at_quantile(share);
            Duration::from_nanos(ns.clamp(self.min_ns, self.max_ns))
        };
        Delays {
            count: self.count,
            mean: Duration::from_nanos((self.sum_ns / u128::from(self.count)) as u64),
            min: Duration::from_nanos(self.min_ns),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            max: Duration::from_nanos(self.max_ns),
        }
    }
}
