//! Several repeats as one statistic.

use serde::Serialize;

use super::bootstrap;
use crate::scenario::Statistic;

/// Of one figure over the repeats. What is infinite in it (a time that never came) is null in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// How many there are.
    pub n: usize,
    /// The middle one; of two, their mean.
    pub median: f64,
    /// Its 95 % bootstrap interval; `None` of one value.
    pub median_95: Option<[f64; 2]>,
    /// Their mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub stddev: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// 5th percentile, interpolated.
    pub p5: f64,
    /// 25th percentile.
    pub p25: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 95th percentile.
    pub p95: f64,
    /// All, in the order of the repeats.
    pub values: Vec<f64>,
}

impl Statistics {
    /// The statistics of these values; `None` without values.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n as f64;
        Some(Self {
            n,
            median: quantile(&sorted, 0.5),
            median_95: bootstrap::of_median(&sorted),
            mean,
            stddev: variance.sqrt(),
            min: sorted[0],
            max: sorted[n - 1],
            p5: quantile(&sorted, 0.05),
            p25: quantile(&sorted, 0.25),
            p75: quantile(&sorted, 0.75),
            p95: quantile(&sorted, 0.95),
            values,
        })
    }
}

/// One statistic of these values; not-a-number without values.
pub(super) fn of_repeats(mut values: Vec<f64>, statistic: Statistic) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    if statistic == Statistic::Mean {
        return values.iter().sum::<f64>() / values.len() as f64;
    }
    values.sort_by(f64::total_cmp);
    let share = match statistic {
        Statistic::Min => 0.0,
        Statistic::P5 => 0.05,
        Statistic::Median | Statistic::Mean => 0.5,
        Statistic::P95 => 0.95,
        Statistic::Max => 1.0,
    };
    quantile(&values, share)
}

/// Between the two nearest ranks, as numpy's default.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    let part = place.fract();
    // Infinity times zero would be not-a-number.
    if part == 0.0 || low == high { low } else { low + (high - low) * part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_ranks() {
        let found = Statistics::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((found.median, found.mean, found.p25, found.p75), (2.5, 2.5, 1.75, 3.25));
        assert_eq!((found.min, found.max, found.n), (1.0, 4.0, 4));
        assert!((found.stddev - 1.25_f64.sqrt()).abs() < 1e-12);
        assert_eq!(found.values, [4.0, 1.0, 3.0, 2.0]);
        assert_eq!(found.median_95, Some([1.0, 4.0]));
        assert_eq!(Statistics::of(Vec::new()), None);
        let one = |statistic| of_repeats(vec![4.0, 1.0, 3.0, 2.0], statistic);
        let all =
            [Statistic::Min, Statistic::P5, Statistic::Median, Statistic::Mean, Statistic::P95];
        assert_eq!(all.map(one), [found.min, found.p5, found.median, found.mean, found.p95]);
        assert_eq!(one(Statistic::Max), 4.0);
    }

    #[test]
    fn a_time_that_never_came_is_longer_than_any() {
        let found = Statistics::of(vec![3.0, f64::INFINITY, 2.0]).unwrap();
        assert_eq!((found.median, found.max), (3.0, f64::INFINITY));
        let most = Statistics::of(vec![f64::INFINITY, f64::INFINITY, 2.0]).unwrap();
        assert_eq!(most.median, f64::INFINITY);
        let json = serde_json::to_value(&most).unwrap();
        assert!(json["median"].is_null() && json["values"][0].is_null());
        assert_eq!(json["min"], 2.0);
    }
}
