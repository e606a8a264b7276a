//! Bootstrap intervals: how far a statistic of the repeats would move if the repeats were drawn again (Efron and
//! Tibshirani, An Introduction to the Bootstrap, Chapter 13: the percentile interval).

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Share of the distribution outside the interval, at each end: 95 % are inside.
const TAIL: f64 = 0.025;
/// Draws of repeats; the ends of the interval move by about a hundredth of its width with another seed.
const RESAMPLES: usize = 1000;
/// The same results give the same interval.
const SEED: u64 = 1;

/// The 95 % interval of the median of `sorted` values; `None` of fewer than two.
///
/// Exact, without draws: the m-th smallest of a resample is at most the k-th smallest value with the probability that
/// at least m of n draws are among the k smallest. Of two middle values each bounds its end.
pub(super) fn of_median(sorted: &[f64]) -> Option<[f64; 2]> {
    let n = sorted.len();
    if n < 2 {
        return None;
    }
    let (low_rank, high_rank) = (n.div_ceil(2), n / 2 + 1);
    let low = (1..=n).find(|k| at_least(n, low_rank, *k) > TAIL).unwrap_or(n);
    let high = (1..=n).find(|k| at_least(n, high_rank, *k) >= 1.0 - TAIL).unwrap_or(n);
    Some([sorted[low - 1], sorted[high - 1]])
}

/// The probability that at least `m` of `n` draws from `n` values are among `k` of them.
fn at_least(n: usize, m: usize, k: usize) -> f64 {
    let share = k as f64 / n as f64;
    if k == n {
        return 1.0;
    }
    // The binomial terms from 0 draws on, by their logarithms: the first underflows with many draws.
    let mut log_term = n as f64 * (1.0 - share).ln();
    let mut below = 0.0;
    for hits in 0..m {
        below += log_term.exp();
        log_term += ((n - hits) as f64 / (hits + 1) as f64).ln() + (share / (1.0 - share)).ln();
    }
    1.0 - below
}

/// The 95 % interval of `statistic`, which gets the numbers of the drawn repeats of each of `sizes`; `None` where there
/// are fewer than two of each, or a draw has no value. Samples of the same size are drawn together, because their
/// repeats have the same seeds.
pub(super) fn of_statistic(
    sizes: &[usize],
    mut statistic: impl FnMut(&[Vec<usize>]) -> f64,
) -> Option<[f64; 2]> {
    if sizes.iter().any(|size| *size < 2) {
        return None;
    }
    let mut rng = Pcg64Mcg::seed_from_u64(SEED);
    let mut draw = |size: usize| -> Vec<usize> {
        // Modulo: the bias is below 10^-6 for any number of repeats.
        (0..size).map(|_| rng.next_u32() as usize % size).collect()
    };
    let mut values: Vec<f64> = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut drawn: Vec<Vec<usize>> = Vec::with_capacity(sizes.len());
        for (index, size) in sizes.iter().enumerate() {
            let together = sizes[..index].iter().position(|other| other == size);
            let next = together.map_or_else(|| draw(*size), |other| drawn[other].clone());
            drawn.push(next);
        }
        values.push(statistic(&drawn));
    }
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    let outside = (TAIL * RESAMPLES as f64) as usize;
    Some([values[outside], values[RESAMPLES - 1 - outside]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_few_values_is_uncertain_by_their_range() {
        assert_eq!(of_median(&[1.0]), None);
        assert_eq!(of_median(&[1.0, 2.0]), Some([1.0, 2.0]));
        assert_eq!(of_median(&[1.0, 2.0, 9.0]), Some([1.0, 9.0]));
    }

    #[test]
    fn exact_interval_of_the_median_is_that_of_many_draws() {
        for n in [5, 9, 20, 41, 100] {
            let values: Vec<f64> = (0..n).map(|i| f64::from(i).powi(2)).collect();
            let exact = of_median(&values).unwrap();
            let median = |drawn: &[Vec<usize>]| {
                let mut drawn: Vec<f64> = drawn[0].iter().map(|at| values[*at]).collect();
                drawn.sort_unstable_by(f64::total_cmp);
                (drawn[(drawn.len() - 1) / 2] + drawn[drawn.len() / 2]) / 2.0
            };
            let drawn = of_statistic(&[values.len()], median).unwrap();
            // In ranks: draws miss an end by one or two.
            for (exact, drawn) in exact.iter().zip(drawn) {
                assert!((exact.sqrt() - drawn.sqrt()).abs() <= 2.0, "{n}: {exact} {drawn}");
            }
        }
    }

    #[test]
    fn more_repeats_make_the_interval_narrower() {
        let width = |n: u32| {
            let values: Vec<f64> = (0..n).map(|i| f64::from(i) / f64::from(n)).collect();
            let [low, high] = of_median(&values).unwrap();
            high - low
        };
        assert!(width(10) > 1.5 * width(40) && width(40) > 1.5 * width(160));
        assert!(of_median(&[f64::INFINITY; 3]).is_some());
    }

    #[test]
    fn samples_of_one_size_are_drawn_together() {
        let values = [1.0, 5.0, 9.0];
        let sum = |drawn: &Vec<usize>| drawn.iter().map(|at| values[*at]).sum::<f64>();
        let same = of_statistic(&[3, 3], |drawn| sum(&drawn[0]) - sum(&drawn[1]));
        assert_eq!(same, Some([0.0, 0.0]));
        assert_eq!(of_statistic(&[3, 1], |_| 0.0), None);
        assert_eq!(of_statistic(&[3], |_| f64::NAN), None);
    }
}
