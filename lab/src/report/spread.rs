//! The figures of the viewers, with their spread over the repeats.

use super::document::ReportTable;
use super::gallery::place;
use super::samples::CellSample;
use super::summary::{StoredCell, StoredPart, StoredStatistic, StoredSummary};
use super::units::{quantity, shown};

/// Figures of a viewer's session, in the order of the columns.
const FIGURES: [&str; 11] = [
    "qoe_lin",
    "bitrate_kbps",
    "rebuffer_ratio",
    "gave_up",
    "stalls",
    "psnr_db",
    "ssim",
    "vmaf",
    "switches",
    "startup_s",
    "lost_frames",
];

/// All viewers: a row for each algorithm and place, and a note on the spread; `None` without viewers.
pub(super) fn table(summary: &StoredSummary) -> Option<(ReportTable, String)> {
    let cells = summary.cells.iter().filter(|cell| !cell.runs.is_empty());
    let watched: Vec<_> = cells
        .flat_map(|cell| cell.groups.iter().map(move |part| (cell, part)))
        .filter(|(_, part)| part.figures.contains_key("rebuffer_ratio"))
        .collect();
    let has = |name: &&&str| watched.iter().any(|(_, part)| part.figures.contains_key(**name));
    let figures: Vec<&str> = FIGURES.iter().filter(has).copied().collect();
    if watched.is_empty() {
        return None;
    }
    let places = watched.iter().any(|(cell, _)| !place(cell).is_empty());
    let mut columns = vec!["Algorithm".to_owned()];
    columns.extend(places.then(|| "At".to_owned()));
    columns.push("Runs".to_owned());
    // Units in the heads: the cells are long enough without.
    columns.extend(figures.iter().map(|name| {
        let of = quantity(name);
        if of.unit.is_empty() { of.name } else { format!("{}, {}", of.name, of.unit) }
    }));
    let row = |(cell, part): &(&StoredCell, &StoredPart)| {
        let mut row =
            vec![super::comparison::named(part.label.clone(), &CellSample::flow(cell, part))];
        row.extend(places.then(|| place(cell)));
        row.push(cell.runs.len().to_string());
        row.extend(figures.iter().map(|name| words(part.figures.get(*name), name)));
        row
    };
    let rows = watched.iter().map(row).collect();
    let has_interval =
        watched.iter().any(|(_, part)| part.figures.values().any(|it| it.median_95.is_some()));
    let of = if has_interval { "95 % bootstrap interval" } else { "least to greatest" };
    let title = Some(format!("What viewers got: the median of the runs ({of})"));
    let said =
        agreement(&figures, &watched.iter().map(|(_, part)| &part.figures).collect::<Vec<_>>());
    Some((ReportTable { title, columns, rows }, said))
}

fn words(found: Option<&StoredStatistic>, name: &str) -> String {
    let quantity = quantity(name);
    let Some(found) = found else { return "–".to_owned() };
    let of = |value: f64| shown(value * quantity.scale, "");
    let Some(median) = found.median else { return "never".to_owned() };
    let [low, high] = found.median_95.unwrap_or([found.min, found.max]);
    let most = || high.map_or_else(|| "never".to_owned(), of);
    match low {
        // What rounding makes equal is no spread to speak of.
        Some(low) if of(low) != most() => {
            format!("{} ({} to {})", of(median), of(low), most())
        }
        _ => of(median),
    }
}

/// The widest range over the repeats of each figure among all viewers.
fn agreement(figures: &[&str], all: &[&super::summary::StoredStatistics]) -> String {
    let repeats = all.iter().flat_map(|it| it.values()).map(|it| it.values.len()).max();
    if repeats.unwrap_or(0) < 2 {
        return "One run of each: how far another would agree is not known.".to_owned();
    }
    let widest = |name: &&str| {
        let quantity = quantity(name);
        let of = |statistic: &StoredStatistic| match (statistic.min, statistic.max) {
            (Some(min), Some(max)) => (max - min) * quantity.scale,
            // Once it came and once it did not, or never.
            (Some(_), None) => f64::INFINITY,
            _ => 0.0,
        };
        let all = all.iter().filter_map(|figures| figures.get(*name)).map(of);
        let widest = all.fold(0.0, f64::max);
        let name = within_sentence(&quantity.name);
        match widest.is_finite() {
            true => format!("{name} {}", shown(widest, quantity.unit)),
            false => format!("{name} without bound (it came in some runs only)"),
        }
    };
    let widest: Vec<String> = figures.iter().map(widest).collect();
    format!("Runs of the same cell were apart by at most: {}.", widest.join(", "))
}

/// `Mean bitrate` with a small letter, `PSNR` as it is.
fn within_sentence(name: &str) -> String {
    let is_abbreviation = name.chars().take(2).all(char::is_uppercase);
    if is_abbreviation { name.to_owned() } else { name.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(runs: &[Option<f64>]) -> StoredSummary {
        let mut known: Vec<f64> = runs.iter().map(|it| it.unwrap_or(f64::INFINITY)).collect();
        known.sort_unstable_by(f64::total_cmp);
        let of = |at: usize| Some(known[at]).filter(|it| it.is_finite());
        let statistic = |scale: f64| {
            let of = |at| of(at).map(|value| value * scale);
            let (min, median, max) = (of(0), of(known.len() / 2), of(known.len() - 1));
            serde_json::json!({ "min": min, "median": median, "max": max, "values": runs })
        };
        let figures = serde_json::json!({
            "rebuffer_ratio": statistic(0.01), "bitrate_kbps": statistic(1000.0),
        });
        let part = serde_json::json!({
            "group": 0, "cc": "bbr", "label": "bbr", "count": 1, "figures": figures,
        });
        let names: Vec<String> = (0..runs.len()).map(|run| format!("0000-r{run:02}")).collect();
        serde_json::from_value(serde_json::json!({
            "format": 1, "scenario": { "name": "a" }, "keys": ["link.loss"], "counts": {},
            "cells": [{ "at": { "link.loss": 0.03 }, "runs": names, "groups": [part] }],
        }))
        .unwrap()
    }

    #[test]
    fn each_figure_has_its_median_and_its_range() {
        let (table, said) = table(&summary(&[Some(1.0), Some(3.0), Some(1.5)])).unwrap();
        assert_eq!(
            table.columns,
            ["Algorithm", "At", "Runs", "Mean bitrate, kbit/s", "Rebuffer ratio, %"]
        );
        let row = ["bbr", "random loss 3 %", "3", "1500 (1000 to 3000)", "1.5 (1 to 3)"];
        assert_eq!(table.rows, [row.map(str::to_owned)]);
        assert!(said.ends_with("at most: mean bitrate 2000 kbit/s, rebuffer ratio 2 %."), "{said}");
    }

    #[test]
    fn one_run_has_no_spread_and_what_never_came_is_no_agreement() {
        let (table_of_one, said) = table(&summary(&[Some(2.0)])).unwrap();
        assert_eq!(table_of_one.rows[0][3], "2000");
        assert!(said.starts_with("One run of each"), "{said}");
        let (of_two, said) = table(&summary(&[Some(1.0), None])).unwrap();
        assert_eq!(of_two.rows[0][3], "never");
        assert!(said.contains("mean bitrate without bound"), "{said}");
    }
}
