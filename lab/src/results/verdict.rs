//! What the repeats say of one comparison of a claim.

use serde::Serialize;

use super::{bootstrap, statistic};
use crate::scenario::{Against, Bound, Condition, Statistic};

/// The verdict on a claim, or on one comparison of it, in the order in which a worse one decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ClaimVerdict {
    /// A comparison fails: its interval is outside of the bound.
    #[serde(rename = "fails")]
    Fails,
    /// The interval of a comparison is on both sides of the bound: another set of repeats could tell otherwise.
    #[serde(rename = "undecided")]
    Undecided,
    /// Every comparison holds: its interval is within the bound.
    #[serde(rename = "holds")]
    Holds,
    /// There was nothing to compare.
    #[serde(rename = "not measured")]
    NotMeasured,
}

/// The repeats of what a condition compares, and of what it is compared with.
pub(super) struct ComparedValues<'a> {
    pub(super) condition: &'a Condition,
    pub(super) values: &'a [f64],
    pub(super) others: Option<&'a [f64]>,
}

impl ComparedValues<'_> {
    /// Value, reference and what is compared, of all repeats.
    pub(super) fn whole(&self) -> (f64, Option<f64>, f64) {
        let value = self.over(self.values.to_vec());
        let reference = self.others.map(|others| self.over(others.to_vec()));
        (value, reference, self.measured(value, reference))
    }

    /// The least and the greatest repeat have no interval: they were observed, and no resample exceeds them.
    pub(super) fn interval_95(&self) -> Option<[f64; 2]> {
        if matches!(self.condition.over_repeats, Statistic::Min | Statistic::Max) {
            return None;
        }
        let sizes: Vec<usize> =
            std::iter::once(self.values.len()).chain(self.others.map(<[f64]>::len)).collect();
        bootstrap::of_statistic(&sizes, |drawn| {
            let of = |values: &[f64], drawn: &[usize]| {
                self.over(drawn.iter().map(|at| values[*at]).collect())
            };
            let value = of(self.values, &drawn[0]);
            self.measured(value, self.others.map(|others| of(others, &drawn[1])))
        })
    }

    fn over(&self, repeats: Vec<f64>) -> f64 {
        statistic::of_repeats(repeats, self.condition.over_repeats)
    }

    /// Zero by zero is nothing; never by never is nothing either.
    fn measured(&self, value: f64, reference: Option<f64>) -> f64 {
        match (reference, self.condition.reference.as_ref().map(|it| it.how)) {
            (Some(by), Some(Against::Ratio)) => value / by,
            (Some(less), Some(Against::Difference)) => value - less,
            _ => value,
        }
    }
}

/// Whether an interval is within a bound, outside of it, or neither; without one the value alone decides.
pub(super) fn verdict(bound: &Bound, measured: f64, interval_95: Option<[f64; 2]>) -> ClaimVerdict {
    let [low, high] = interval_95.unwrap_or([measured, measured]);
    let is_within = |value: f64| bound.slack(value) >= 0.0;
    let is_outside = bound.at_least.is_some_and(|least| high < least)
        || bound.at_most.is_some_and(|most| low > most);
    match (is_within(low) && is_within(high), is_outside || measured.is_nan()) {
        (true, _) => ClaimVerdict::Holds,
        (false, true) => ClaimVerdict::Fails,
        (false, false) => ClaimVerdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_on_both_sides_of_a_bound_is_undecided() {
        let bound = |at_least, at_most| Bound { at_least, at_most };
        let least = bound(Some(8.0), None);
        assert_eq!(verdict(&least, 9.0, Some([8.0, 9.5])), ClaimVerdict::Holds);
        assert_eq!(verdict(&least, 9.0, Some([7.9, 9.5])), ClaimVerdict::Undecided);
        assert_eq!(verdict(&least, 7.0, Some([6.0, 8.0])), ClaimVerdict::Undecided);
        assert_eq!(verdict(&least, 7.0, Some([6.0, 7.9])), ClaimVerdict::Fails);
        let both = bound(Some(8.0), Some(9.0));
        assert_eq!(verdict(&both, 8.5, Some([7.0, 10.0])), ClaimVerdict::Undecided);
        assert_eq!(verdict(&both, 9.5, Some([9.1, 10.0])), ClaimVerdict::Fails);
        // With one repeat the value decides.
        assert_eq!(verdict(&least, 8.0, None), ClaimVerdict::Holds);
        assert_eq!(verdict(&least, 7.9, None), ClaimVerdict::Fails);
        assert_eq!(verdict(&least, f64::NAN, None), ClaimVerdict::Fails);
        assert_eq!(verdict(&least, f64::INFINITY, Some([9.0, f64::INFINITY])), ClaimVerdict::Holds);
    }
}
