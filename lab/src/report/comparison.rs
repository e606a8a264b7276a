//! Several results of the same scenarios side by side: those of two commits, or of the simulator and
//! the emulator.
//!
//! Each scenario becomes one summary with the labelled cells of all results, so that all plots draw them
//! together; a table compares each with the first.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::ReportTable;
use super::samples::{CellSample, Setting};
use super::summary::{StoredCell, StoredCounts, StoredPart, StoredSummary};
use super::units::{quantity, rounded};

/// What the label of the results is called among a cell's keys.
pub(super) const KEY: &str = "results";

/// A figure that is compared: how far apart two may be and still agree.
struct Compared {
    figure: &'static str,
    /// As a part of the first one.
    relative: f64,
    /// In the figure's own unit; the wider of both counts.
    absolute: f64,
}

/// How far the emulator may be from the simulator.
const COMPARED: [Compared; 3] = [
    Compared { figure: "goodput_mbps", relative: 0.05, absolute: 0.0 },
    Compared { figure: "queueing_ms.p95", relative: 0.15, absolute: 2.0 },
    // A factor of 1.5 either way; a difference of ten packets of a hundred thousand is ignored.
    Compared { figure: "loss_rate", relative: 0.5, absolute: 1e-4 },
];

impl Compared {
    fn agrees(&self, first: f64, other: f64) -> bool {
        let apart = (first - other).abs();
        // Relative to the smaller one, so that it does not matter which is first.
        apart <= self.absolute || apart <= self.relative * first.abs().min(other.abs())
    }
}

/// One figure of one group in one cell, first and then by each other label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FigurePair {
    /// The cell and the flows.
    pub(super) at: String,
    pub(super) figure: &'static str,
    pub(super) first: f64,
    /// Label, value, whether it agrees.
    pub(super) others: Vec<(String, f64, bool)>,
}

/// Joins results of several labels, each with any number of scenarios, into one summary for each
/// scenario, in the order of the names; with what was compared of it.
pub(super) fn join(
    all: Vec<(String, Vec<StoredSummary>)>,
) -> Vec<(StoredSummary, Vec<FigurePair>)> {
    let mut by_name: BTreeMap<String, Vec<(String, StoredSummary)>> = BTreeMap::new();
    for (label, summaries) in all {
        for summary in summaries {
            let same = by_name.entry(summary.scenario.name.clone()).or_default();
            same.push((label.clone(), summary));
        }
    }
    by_name.into_values().map(join_one).collect()
}

fn join_one(mut all: Vec<(String, StoredSummary)>) -> (StoredSummary, Vec<FigurePair>) {
    let pairs = compare(&all);
    for (label, summary) in &mut all {
        tag(label, summary);
    }
    let mut all = all.into_iter().map(|(_, summary)| summary);
    let mut joined = all.next().expect("a name is there because a summary has it");
    for other in all {
        joined.cells.extend(other.cells);
        joined.claims.extend(other.claims);
        joined.problems.extend(other.problems);
        let (a, b) = (joined.counts, other.counts);
        joined.counts = StoredCounts {
            runs: a.runs + b.runs,
            skipped: a.skipped + b.skipped,
            failed: a.failed + b.failed,
            invalid: a.invalid + b.invalid,
        };
        joined.quick = joined.quick.or(other.quick);
    }
    (joined, pairs)
}

/// Adds the label to cells, groups, flows and claims.
fn tag(label: &str, summary: &mut StoredSummary) {
    let name = |part: &mut StoredPart| part.label = format!("{} ({label})", part.label);
    for cell in &mut summary.cells {
        cell.at.insert(KEY.to_owned(), Value::from(label));
        cell.groups.iter_mut().for_each(name);
        cell.flows.iter_mut().for_each(name);
    }
    for claim in &mut summary.claims {
        claim.text = format!("{} ({label})", claim.text);
    }
}

/// A series' name, with the label of its results where that is not in it yet.
pub(super) fn named(name: String, sample: &CellSample<'_>) -> String {
    let Some(label) = sample.setting(KEY).map(|label| label.to_string()) else { return name };
    let end = format!(" ({label})");
    if name == label || name.ends_with(&end) { name } else { name + &end }
}

fn compare(all: &[(String, StoredSummary)]) -> Vec<FigurePair> {
    let Some(((_, first), others)) = all.split_first() else { return Vec::new() };
    let mut pairs = Vec::new();
    for cell in first.cells.iter().filter(|cell| !cell.runs.is_empty()) {
        for part in &cell.groups {
            for compared in &COMPARED {
                let value = |cell: &StoredCell, part: &StoredPart| {
                    let statistic = part.figures.get(compared.figure)?;
                    statistic.median.filter(|_| !cell.runs.is_empty())
                };
                let Some(first) = value(cell, part) else { continue };
                let of = |(label, other): &(String, StoredSummary)| {
                    let cell = other.cells.iter().find(|it| it.at == cell.at)?;
                    let part = cell.groups.iter().find(|it| it.group == part.group)?;
                    let value = value(cell, part)?;
                    Some((label.clone(), value, compared.agrees(first, value)))
                };
                let others: Vec<_> = others.iter().filter_map(of).collect();
                if !others.is_empty() {
                    let at = place(cell, part);
                    pairs.push(FigurePair { at, figure: compared.figure, first, others });
                }
            }
        }
    }
    pairs
}

/// `bbr, random loss 3 %`.
fn place(cell: &StoredCell, part: &StoredPart) -> String {
    let mut words = vec![part.label.clone()];
    for key in cell.at.keys() {
        match CellSample::flow(cell, part).setting(key) {
            Some(value @ Setting::Number(_)) => {
                words.push(format!("{} {}", quantity(key).name.to_lowercase(), value.shown(key)));
            }
            Some(Setting::Text(text)) if text != part.label && !text.starts_with('{') => {
                words.push(text);
            }
            _ => {}
        }
    }
    words.join(", ")
}

/// What was compared, as a table: a row for each place, a column for each figure and label.
pub(super) fn table(first: &str, pairs: &[FigurePair]) -> Option<ReportTable> {
    let labels: Vec<&String> = {
        let mut labels = Vec::new();
        for (label, ..) in pairs.iter().flat_map(|pair| &pair.others) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    };
    if labels.is_empty() {
        return None;
    }
    let mut columns = vec!["".to_owned()];
    for compared in &COMPARED {
        let of = quantity(compared.figure);
        let unit = if of.unit.is_empty() { String::new() } else { format!(", {}", of.unit) };
        columns.push(format!("{}{unit}: {first}", of.name));
        columns.extend(labels.iter().map(|label| (*label).clone()));
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for pair in pairs {
        let is_new = rows.last().is_none_or(|row| row[0] != pair.at);
        if is_new {
            let mut row = vec![String::new(); columns.len()];
            row[0].clone_from(&pair.at);
            rows.push(row);
        }
        let Some(row) = rows.last_mut() else { continue };
        let figure = COMPARED.iter().position(|it| it.figure == pair.figure).unwrap_or(0);
        let at = 1 + figure * (1 + labels.len());
        let scale = quantity(pair.figure).scale;
        row[at] = shown(pair.first * scale);
        for (label, value, agrees) in &pair.others {
            let Some(place) = labels.iter().position(|it| *it == label) else { continue };
            let mark = if *agrees { "" } else { " ≠" };
            row[at + 1 + place] = format!("{}{mark}", shown(value * scale));
        }
    }
    let title = Some(format!("Beside {first} (≠: apart by more than they may be)"));
    Some(ReportTable { title, columns, rows })
}

/// Three digits.
fn shown(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{}", rounded(format!("{value:.digits$}").parse().unwrap_or(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(goodput: f64, queueing: f64, loss: f64) -> StoredSummary {
        let figures = serde_json::json!({
            "goodput_mbps": { "median": goodput }, "queueing_ms.p95": { "median": queueing },
            "loss_rate": { "median": loss },
        });
        let part = serde_json::json!({
            "group": 0, "cc": "bbr", "label": "bbr", "count": 1, "figures": figures,
        });
        serde_json::from_value(serde_json::json!({
            "format": 1, "scenario": { "name": "a" }, "keys": ["link.loss"],
            "counts": { "runs": 1 },
            "cells": [{ "at": { "link.loss": 0.03 }, "runs": ["0000-r00"], "groups": [part] }],
            "claims": [{ "text": "fast", "metric": "m", "bound": "b", "verdict": "holds" }],
        }))
        .unwrap()
    }

    #[test]
    fn figures_agree_within_what_they_may_be_apart() {
        let [goodput, queueing, loss] = COMPARED;
        assert!(goodput.agrees(90.0, 94.0) && !goodput.agrees(90.0, 95.0));
        assert!(queueing.agrees(0.1, 2.0) && queueing.agrees(100.0, 114.0));
        assert!(!queueing.agrees(20.0, 24.0));
        assert!(loss.agrees(0.02, 0.03) && loss.agrees(0.03, 0.02) && !loss.agrees(0.02, 0.031));
        assert!(loss.agrees(0.0, 0.0001) && !loss.agrees(0.0, 0.001));
    }

    #[test]
    fn results_of_one_scenario_are_joined_and_compared() {
        let sim = ("sim".to_owned(), vec![summary(90.0, 5.0, 0.03)]);
        let emu = ("emu".to_owned(), vec![summary(80.0, 6.0, 0.031)]);
        let mut joined = join(vec![sim, emu]);
        assert_eq!(joined.len(), 1);
        let (summary, pairs) = joined.remove(0);
        let labels: Vec<&str> =
            summary.cells.iter().map(|cell| cell.groups[0].label.as_str()).collect();
        assert_eq!(labels, ["bbr (sim)", "bbr (emu)"]);
        assert_eq!(summary.counts.runs, 2);
        assert_eq!(summary.claims[1].text, "fast (emu)");
        assert_eq!(pairs.len(), 3);
        assert_eq!(pairs[0].at, "bbr, random loss 3 %");
        assert_eq!(pairs[0].others, [("emu".to_owned(), 80.0, false)]);
        let table = table("sim", &pairs).unwrap();
        assert_eq!(table.columns[1..3], ["Goodput, Mbit/s: sim", "emu"]);
        assert_eq!(
            table.rows[0],
            ["bbr, random loss 3 %", "90", "80 ≠", "5", "6", "3", "3.1"].map(str::to_owned)
        );
    }
}
