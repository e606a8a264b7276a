//! Plots for a scenario that asks for none, from what it sweeps.

use super::plot::{Corner, OneOrMore, Plot, PlotKind};
use super::summary::StoredSummary;

/// From this many repeats on their distribution is drawn.
const REPEATS_FOR_CDF: usize = 20;

/// What a plot says when it says nothing but its kind.
fn plain(kind: PlotKind) -> Plot {
    let text = serde_json::json!({ "kind": kind });
    serde_json::from_value(text).expect("invariant: every field but the kind is optional")
}

/// What the file asks for, or what the sweep suggests: each numeric key is an axis; else a
/// distribution where there are many repeats; else bars. Where there is more than one flow or
/// nothing swept, the first repeat over time.
pub(super) fn plots(summary: &StoredSummary) -> Vec<Plot> {
    if !summary.plots.is_empty() {
        return summary.plots.clone();
    }
    let mut plots: Vec<Plot> = summary.keys.iter().flat_map(|key| against(summary, key)).collect();
    if plots.is_empty() {
        let repeats = summary.cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
        plots = if repeats >= REPEATS_FOR_CDF { distributions() } else { comparison() };
    }
    let several = summary.cells.iter().any(|cell| cell.flows.len() > 1);
    if several || summary.keys.is_empty() {
        let panel = (summary.cells.len() > 1).then(|| "label".to_owned());
        let y = Some(OneOrMore::One("rate_mbps".to_owned()));
        plots.push(Plot { y, panel, mean_over_s: Some(1.0), ..plain(PlotKind::Series) });
    }
    plots
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
