//! Why a claim fails, with the measured values in their places.

use super::claims::{ClaimData, ClaimPoint};
use super::statistic;
use crate::report::units::{quantity, shown};
use crate::scenario::{Against, AlgorithmVariant, Claim, Over, ReasonPart, Statistic, Where};

const NOT_MEASURED: &str = "(not measured)";

impl ClaimData<'_> {
    /// The reason of a claim on which `decisive` decides. Reasons are about the settings that the file has, so there is
    /// none with others.
    pub(super) fn reason(&self, claim: &Claim, decisive: Option<&ClaimPoint>) -> Option<String> {
        if self.file.head.variant != AlgorithmVariant::default() {
            return None;
        }
        let reason = claim.reason.as_ref()?;
        let part = |part: &ReasonPart| match part {
            ReasonPart::Text(text) | ReasonPart::Fixed(text) => text.clone(),
            ReasonPart::Value => {
                decisive.map_or_else(|| NOT_MEASURED.to_owned(), |point| value(claim, point))
            }
            ReasonPart::Figure { metric, filter } => self.figure(metric, filter),
        };
        Some(reason.0.iter().map(part).collect())
    }

    /// The median over the repeats; of several cells or algorithms the least and the greatest.
    fn figure(&self, metric: &str, filter: &Where) -> String {
        let subjects = self.subjects(metric, filter, Over::Mean);
        let medians = subjects.iter().map(|subject| {
            statistic::of_repeats(self.values(subject, metric, Over::Mean), Statistic::Median)
        });
        let mut medians: Vec<f64> = medians.filter(|median| !median.is_nan()).collect();
        medians.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (medians.first(), medians.last()) else {
            return NOT_MEASURED.to_owned();
        };
        let (low, high) = (words(metric, *low), words(metric, *high));
        if low == high { low } else { format!("{low} to {high}") }
    }
}

fn value(claim: &Claim, point: &ClaimPoint) -> String {
    let condition = &claim.conditions[point.condition];
    match condition.reference.as_ref().map(|reference| reference.how) {
        Some(Against::Ratio) if point.measured.is_finite() => shown(point.measured, ""),
        _ => words(&condition.metric, point.measured),
    }
}

fn words(metric: &str, value: f64) -> String {
    if !value.is_finite() {
        return "never".to_owned();
    }
    let quantity = quantity(metric);
    shown(value * quantity.scale, quantity.unit)
}
