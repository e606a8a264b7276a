//! Claims with the measured values, in the form of the page.

use serde_json::{Map, Value};

use super::document::{Comparison, ReportedClaim};
use super::samples::{CellSample, Setting};
use super::summary::{self, StoredSummary};
use super::units::{quantity, rounded};

pub(super) fn claims(summary: &StoredSummary) -> Vec<ReportedClaim> {
    summary.claims.iter().map(|claim| of(summary, claim)).collect()
}

pub(super) fn of(summary: &StoredSummary, claim: &summary::StoredClaim) -> ReportedClaim {
    let is_ratio = claim.points.iter().any(|point| point.reference.is_some());
    // Shares are not converted to percent: their bound is a share too.
    let quantity = quantity(&claim.metric);
    let unit = if is_ratio || quantity.unit == "%" { "" } else { quantity.unit };
    ReportedClaim {
        text: claim.text.clone(),
        source: claim.source.clone(),
        metric: claim.metric.clone(),
        bound: claim.bound.clone(),
        verdict: claim.verdict.clone(),
        measured: claim.measured.map(rounded),
        spread: match claim.interval_95 {
            Some([low, high]) => low.zip(high).map(|(low, high)| [rounded(low), rounded(high)]),
            // Results of earlier versions have no interval.
            None if is_ratio => None,
            None => spread(summary, claim),
        },
        unit,
        at: claim.at.as_ref().map_or_else(String::new, |at| place(at, None)),
        reason: claim.reason.clone(),
        points: claim.points.iter().map(comparison).collect(),
    }
}

fn comparison(point: &summary::StoredPoint) -> Comparison {
    Comparison {
        at: place(&point.at, point.cc.as_deref()),
        value: point.value.map(rounded),
        reference: point.reference.map(rounded),
        measured: point.measured.map(rounded),
        interval: point.interval_95.and_then(|[low, high]| Some([rounded(low?), rounded(high?)])),
        holds: point.holds,
    }
}

/// `bbr, random loss 3 %`.
fn place(at: &Map<String, Value>, cc: Option<&str>) -> String {
    let named = |(key, value): (&String, &Value)| {
        let value = Setting::from_json(value);
        let words = match &value {
            Setting::Text(text) => text.clone(),
            Setting::Number(_) if key == "flow" || key == "group" => value.shown(key),
            Setting::Number(_) => {
                format!("{} {}", quantity(key).name.to_lowercase(), value.shown(key))
            }
        };
        (matches!(value, Setting::Number(_)), words)
    };
    // A table of parameters has a label, which is there too.
    let plain = at.iter().filter(|(_, value)| !value.is_object() && !value.is_array());
    let mut parts: Vec<_> = plain.map(named).chain(cc.map(|cc| (false, cc.to_owned()))).collect();
    // Names come first, and once: a swept algorithm is named by its key and as `cc`.
    parts.sort_by_key(|(number, _)| *number);
    parts.dedup();
    parts.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(", ")
}

/// Over the repeats, where `measured` is the median of one statistic and nothing else.
fn spread(summary: &StoredSummary, claim: &summary::StoredClaim) -> Option<[f64; 2]> {
    let (measured, at) = (claim.measured?, claim.at.as_ref()?);
    let meant = |sample: &CellSample<'_>| {
        at.iter().all(|(key, value)| sample.setting(key) == Some(Setting::from_json(value)))
    };
    let parts = summary.cells.iter().flat_map(|cell| {
        cell.groups.iter().chain(&cell.flows).map(move |part| CellSample::flow(cell, part))
    });
    let statistic = parts
        .filter(meant)
        .filter_map(|sample| sample.figure(&claim.metric))
        .find(|statistic| statistic.median.is_some_and(|median| close(median, measured)))?;
    Some([rounded(statistic.min?), rounded(statistic.max?)])
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
