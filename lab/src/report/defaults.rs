//! Plots for a scenario that asks for none, from what it sweeps.

use super::plot::{Corner, OneOrMore, Plot, PlotKind};
use super::summary::StoredSummary;

/// From this many repeats on their distribution is drawn.
const REPEATS_FOR_CDF: usize = 20;

/// A plot over time of more cells can't be read.
const MAX_CELLS_OVER_TIME: usize = 8;
/// The swept key of recorded links.
const TRACE: &str = "link.trace";

/// What a plot says when it says nothing but its kind.
fn plain(kind: PlotKind) -> Plot {
    let text = serde_json::json!({ "kind": kind });
    serde_json::from_value(text).expect("invariant: every field but the kind is optional")
}

/// What the file asks for, or what the sweep suggests: each numeric key is an axis; else a
/// distribution where there are many repeats; else bars. The first repeat over time, where runs have more than one
/// flow, where no number is swept and cells are few, and over each recorded link.
pub(super) fn plots(summary: &StoredSummary) -> Vec<Plot> {
    if !summary.plots.is_empty() {
        return summary.plots.clone();
    }
    let mut plots: Vec<Plot> = summary.keys.iter().flat_map(|key| against(summary, key)).collect();
    let has_axis = !plots.is_empty();
    if !has_axis {
        let repeats = summary.cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
        plots = if repeats >= REPEATS_FOR_CDF { distributions() } else { comparison() };
    }
    let several = summary.cells.iter().any(|cell| cell.flows.len() > 1);
    let few = !has_axis && summary.cells.len() <= MAX_CELLS_OVER_TIME;
    let sweeps_traces = summary.keys.iter().any(|key| key == TRACE);
    if several || few || sweeps_traces {
        plots.push(over_time(summary, sweeps_traces));
    }
    plots
}

/// The rate of each flow. Flows of one link are in one panel with its capacity, but where runs have several flows.
fn over_time(summary: &StoredSummary, sweeps_traces: bool) -> Plot {
    let several = summary.cells.iter().any(|cell| cell.flows.len() > 1);
    let same_link = summary.keys.iter().all(|key| !key.starts_with("link.") || key == TRACE);
    let panel = match (several, sweeps_traces) {
        (true, _) => (summary.cells.len() > 1).then_some("label"),
        (false, true) => Some(TRACE),
        (false, false) => None,
    };
    Plot {
        y: Some(OneOrMore::One("rate_mbps".to_owned())),
        panel: panel.map(str::to_owned),
        optimal: !several && same_link,
        mean_over_s: Some(1.0),
        ..plain(PlotKind::Series)
    }
}

fn against(summary: &StoredSummary, key: &str) -> Vec<Plot> {
    let mut numbers: Vec<f64> = Vec::new();
    for cell in &summary.cells {
        match cell.at.get(key).map(serde_json::Value::as_f64) {
            Some(Some(number)) => numbers.push(number),
            Some(None) => return Vec::new(),
            None => {}
        }
    }
    let (low, high) = numbers.iter().fold((f64::MAX, f64::MIN), |(l, h), n| (l.min(*n), h.max(*n)));
    if low >= high {
        return Vec::new();
    }
    let figures = ["goodput_mbps", "loss_rate", "queueing_ms.p95"];
    let lines = |y: &str| Plot {
        x: Some(key.to_owned()),
        y: Some(OneOrMore::One(y.to_owned())),
        // Buffers and rates are swept over decades.
        log_x: low > 0.0 && high / low >= 50.0,
        ..plain(PlotKind::Lines)
    };
    figures.iter().map(|y| lines(y)).collect()
}

fn distributions() -> Vec<Plot> {
    let cdf = |x: &str| Plot { x: Some(x.to_owned()), ..plain(PlotKind::Cdf) };
    vec![cdf("goodput_mbps"), cdf("loss_rate")]
}

fn comparison() -> Vec<Plot> {
    let bars = Plot {
        x: Some("label".to_owned()),
        y: Some(OneOrMore::One("goodput_mbps".to_owned())),
        ..plain(PlotKind::Bars)
    };
    let scatter = Plot {
        x: Some("queueing_ms.p95".to_owned()),
        y: Some(OneOrMore::One("goodput_mbps".to_owned())),
        ideal: Some(Corner::LowHigh),
        ..plain(PlotKind::Scatter)
    };
    vec![bars, scatter]
}
