//! The cells of a summary as samples: settings, flows and measured figures.

use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::plot::{OneOrMore, Plot, Scalar};
use super::summary::{StoredCell, StoredPart, StoredStatistic, StoredStatistics, StoredSummary};
use super::units::{self, quantity};

/// One group or one flow of one cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellSample<'a> {
    pub(super) cell: &'a StoredCell,
    part: Option<&'a StoredPart>,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Setting {
    Number(f64),
    Text(String),
}

impl Setting {
    pub(super) fn from_json(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Number(number) => Self::Number(number.as_f64().unwrap_or(f64::NAN)),
            other => Self::Text(other.to_string()),
        }
    }

    pub(super) fn is_one_of(&self, wanted: &OneOrMore<Scalar>) -> bool {
        wanted.as_slice().iter().any(|wanted| self.is(wanted))
    }

    pub(super) fn is(&self, wanted: &Scalar) -> bool {
        match (self, wanted) {
            (Self::Number(a), Scalar::Number(b)) => a == b,
            (Self::Text(a), Scalar::Text(b)) => a == b,
            (Self::Text(a), Scalar::Flag(b)) => *a == b.to_string(),
            _ => false,
        }
    }

    /// For people, as the value of this key.
    pub(super) fn shown(&self, key: &str) -> String {
        match self {
            // Of a file its name; where it lies says nothing of the link.
            Self::Text(text) if key.ends_with(".trace") => {
                let stem = Path::new(text).file_stem().and_then(|stem| stem.to_str());
                stem.unwrap_or(text).to_owned()
            }
            Self::Text(text) => text.clone(),
            Self::Number(number) => match key {
                "flow" => format!("Flow {}", number + 1.0),
                "group" => format!("Group {}", number + 1.0),
                _ => {
                    let quantity = quantity(key);
                    units::shown(number * quantity.scale, quantity.unit)
                }
            },
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Of which parts of a cell samples are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Cell,
    Group,
    Flow,
}

impl Level {
    /// The coarsest at which everything that the plot names exists.
    pub(super) fn of(plot: &Plot, swept: &[String]) -> Self {
        let keys = [&plot.x, &plot.series, &plot.panel, &plot.rows, &plot.columns];
        let figures = plot.y.iter().flat_map(OneOrMore::as_slice);
        keys.into_iter()
            .flatten()
            .chain(plot.only.keys())
            .chain(figures)
            .map(|key| match key.as_str() {
                "flow" => Self::Flow,
                "cc" | "label" => Self::Cell,
                key if swept.iter().any(|known| known == key) => Self::Cell,
                key if key.starts_with("link.") => Self::Cell,
                _ => Self::Group,
            })
            .max()
            .unwrap_or(Self::Group)
    }
}

/// All samples at a level that pass `where`.
pub(super) fn samples<'a>(
    summary: &'a StoredSummary,
    level: Level,
    plot: &Plot,
) -> Vec<CellSample<'a>> {
    let mut all = Vec::new();
    for cell in summary.cells.iter().filter(|cell| !cell.runs.is_empty()) {
        match level {
            // The first group names the algorithm.
            Level::Cell => all.push(CellSample::of_cell(cell)),
            Level::Group => {
                all.extend(cell.groups.iter().map(|part| CellSample { cell, part: Some(part) }))
            }
            Level::Flow => {
                all.extend(cell.flows.iter().map(|part| CellSample { cell, part: Some(part) }))
            }
        }
    }
    all.retain(|sample| sample.passes(plot));
    all
}

impl<'a> CellSample<'a> {
    pub(super) fn flow(cell: &'a StoredCell, part: &'a StoredPart) -> Self {
        Self { cell, part: Some(part) }
    }

    /// As its first group.
    pub(super) fn of_cell(cell: &'a StoredCell) -> Self {
        Self { cell, part: cell.groups.first() }
    }

    pub(super) fn passes(&self, plot: &Plot) -> bool {
        plot.only
            .iter()
            .all(|(key, wanted)| self.setting(key).is_some_and(|value| value.is_one_of(wanted)))
    }

    /// The value of a swept key or of a fact about the flows.
    pub(super) fn setting(&self, key: &str) -> Option<Setting> {
        if let Some(value) = self.cell.at.get(key) {
            return Some(Setting::from_json(value));
        }
        let part = self.part?;
        match key {
            "cc" => Some(Setting::Text(part.cc.clone())),
            "label" => Some(Setting::Text(part.label.clone())),
            "group" => Some(Setting::Number(part.group as f64)),
            "flow" => part.flow.map(|flow| Setting::Number(flow as f64)),
            "count" => part.count.map(|count| Setting::Number(count as f64)),
            _ => None,
        }
    }

    /// A figure: of the link when its name says so, else of the flows.
    pub(super) fn figure(&self, name: &str) -> Option<&'a StoredStatistic> {
        let found = |figures: &'a StoredStatistics, name: &str| figures.get(name);
        match name.strip_prefix("link.") {
            Some(name) => found(&self.cell.link, name),
            None => found(&self.part?.figures, name),
        }
    }
}

/// The different values of a key, in the order in which they come.
pub(super) fn values(samples: &[CellSample<'_>], key: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    for value in samples.iter().filter_map(|sample| sample.setting(key)) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Median, least and greatest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Middle {
    pub(super) median: f64,
    /// The 95 % bootstrap interval of the median of one statistic.
    pub(super) interval_95: Option<[f64; 2]>,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) stddev: Option<f64>,
}

/// Of one figure of some samples; of several all their values count alike. `None` where it does
/// not exist or more than half never came.
pub(super) fn middle(samples: &[CellSample<'_>], name: &str) -> Option<Middle> {
    let statistics: Vec<_> = samples.iter().filter_map(|sample| sample.figure(name)).collect();
    if let [only] = statistics[..] {
        let median = only.median.filter(|value| value.is_finite())?;
        let (low, high) = (only.min.unwrap_or(median), only.max.unwrap_or(median));
        let interval_95 = only.finite_interval_95();
        return Some(Middle { median, interval_95, low, high, stddev: only.stddev });
    }
    let mut all: Vec<f64> = statistics
        .iter()
        .flat_map(|statistic| &statistic.values)
        .map(|value| value.unwrap_or(f64::INFINITY))
        .collect();
    all.sort_unstable_by(f64::total_cmp);
    let count = all.len();
    let (low, high) = (*all.first()?, *all.last()?);
    let median = f64::midpoint(all[(count - 1) / 2], all[count / 2]);
    if !median.is_finite() {
        return None;
    }
    let mean = all.iter().sum::<f64>() / count as f64;
    let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count as f64;
    let stddev = Some(variance.sqrt()).filter(|value| value.is_finite());
    let high = if high.is_finite() { high } else { median };
    Some(Middle { median, interval_95: None, low, high, stddev })
}
