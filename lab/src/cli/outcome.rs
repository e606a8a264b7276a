//! The outcome of claims and runs, as text or as JSON.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use crate::output;
use crate::results::claims::{ClaimVerdict, Judged};
use crate::results::{CellSummary, GroupSummary, Statistics, Summary};
use crate::scenario::AlgorithmVariant;

/// A longer table is in summary.json.
const MAX_TABLE_ROWS: usize = 60;
/// Exit code when a claim without a `reason` fails.
const CLAIM_FAILED: u8 = 2;

/// How results are printed.
#[derive(Debug, Clone, Copy)]
pub struct DisplayOptions {
    /// As JSON.
    pub json: bool,
    /// Runs were shortened.
    pub quick: bool,
    /// The figures of invalid runs are printed.
    pub show_invalid: bool,
}

/// Counts of all claims and runs by outcome.
#[derive(Debug, Default)]
pub struct OutcomeTally {
    hold: usize,
    undecided: usize,
    fail: usize,
    unexplained: usize,
    not_measured: usize,
    done_runs: usize,
    failed_runs: usize,
    skipped_runs: usize,
    invalid_runs: usize,
    scenarios: Vec<serde_json::Value>,
}

impl OutcomeTally {
    /// Adds a scenario, and prints it unless the output is JSON.
    pub fn add(&mut self, summary: &Summary, path: &Path, display: DisplayOptions) -> Result<()> {
        if !display.json {
            show(summary, path, display)?;
        }
        for claim in &summary.claims {
            match claim.verdict {
                ClaimVerdict::Holds => self.hold += 1,
                ClaimVerdict::Undecided => self.undecided += 1,
                ClaimVerdict::NotMeasured => self.not_measured += 1,
                ClaimVerdict::Fails => {
                    self.fail += 1;
                    // Reasons are about the settings that the file has.
                    let is_as_filed = summary.scenario.variant == AlgorithmVariant::default();
                    self.unexplained += usize::from(is_as_filed && claim.reason.is_none());
                }
            }
        }
        self.done_runs += summary.counts.done;
        self.failed_runs += summary.counts.failed;
        self.skipped_runs += summary.counts.skipped;
        self.invalid_runs += summary.counts.invalid;
        self.scenarios.push(json!({
            "name": summary.scenario.name,
            "directory": path,
            "counts": summary.counts,
            "problems": summary.problems,
            "claims": summary.claims,
            "quick": summary.quick,
        }));
        Ok(())
    }

    /// Prints the totals, and answers the exit code.
    pub fn close(self, display: DisplayOptions) -> Result<ExitCode> {
        if display.json {
            let all = json!({
                "scenarios": self.scenarios,
                "claims": {
                    "hold": self.hold,
                    "undecided": self.undecided,
                    "fail": self.fail,
                    "fail_without_reason": self.unexplained,
                    "not_measured": self.not_measured,
                },
                "failed_runs": self.failed_runs,
                "skipped_runs": self.skipped_runs,
                "invalid_runs": self.invalid_runs,
            });
            output::line(serde_json::to_string_pretty(&all)?)?;
        } else {
            let mut parts = match self.hold + self.undecided + self.fail + self.not_measured {
                0 => vec!["no claims".to_owned()],
                _ => vec![
                    format!("{} claims hold", self.hold),
                    format!("{} fail ({} without a reason)", self.fail, self.unexplained),
                ],
            };
            let more = [
                (self.undecided, "undecided"),
                (self.not_measured, "not measured"),
                (self.skipped_runs, "runs skipped"),
                (self.failed_runs, "runs failed"),
                (self.invalid_runs, "runs invalid"),
            ];
            let more = more.into_iter().filter(|(count, _)| *count > 0);
            parts.extend(more.map(|(count, what)| format!("{count} {what}")));
            let quick = if display.quick { "; quick: proves nothing" } else { "" };
            output::line(format_args!("{}{quick}", parts.join(", ")))?;
        }
        if self.done_runs == 0 && self.skipped_runs > 0 {
            return Ok(ExitCode::FAILURE);
        }
        Ok(match (self.failed_runs + self.invalid_runs, self.unexplained) {
            (0, 0) => ExitCode::SUCCESS,
            // Shortened runs can't keep what full ones promise.
            (0, _) if display.quick => ExitCode::SUCCESS,
            (0, _) => ExitCode::from(CLAIM_FAILED),
            _ => ExitCode::FAILURE,
        })
    }
}

/// Prints a scenario's results as text.
fn show(summary: &Summary, path: &Path, display: DisplayOptions) -> Result<()> {
    let head = &summary.scenario;
    output::line(format_args!("{}: {}", head.name, head.title))?;
    if let Some(quick) = &summary.quick {
        output::line(format_args!("  quick: {quick}"))?;
    }
    output::line(table(summary, summary.cells.iter()))?;
    show_invalid(summary, display)?;
    for problem in &summary.problems {
        output::line(format_args!("  {} runs not done: {}", problem.runs, problem.reason))?;
    }
    for claim in &summary.claims {
        output::line(format_args!("  {}", sentence(claim)))?;
    }
    output::line(format_args!("  {}\n", path.display()))?;
    Ok(())
}

/// Prints the figures of invalid runs where they are wanted, and otherwise how to see them.
fn show_invalid(summary: &Summary, display: DisplayOptions) -> Result<()> {
    let invalid = &summary.invalid_runs;
    if !invalid.is_empty() && !display.show_invalid {
        output::line(format_args!(
            "  {} invalid runs are not shown; --show-invalid shows them",
            invalid.len()
        ))?;
    }
    for run in invalid.iter().filter(|_| display.show_invalid) {
        let (name, because) = (run.cell.runs.join(", "), run.because.join("; "));
        output::line(format_args!("  INVALID {name}, in no claim: {because}"))?;
        output::line(table(summary, std::iter::once(&run.cell)))?;
    }
    Ok(())
}

fn sentence(claim: &Judged) -> String {
    let verdict = match claim.verdict {
        ClaimVerdict::Holds => "holds",
        ClaimVerdict::Fails => "FAILS",
        ClaimVerdict::Undecided => "undecided",
        ClaimVerdict::NotMeasured => return format!("not measured: {}", claim.text),
    };
    let measured = claim.measured.map_or_else(|| "never".to_owned(), shown);
    let interval = interval(claim.interval_95);
    let mut place: Vec<String> = claim.cc.iter().cloned().collect();
    for (key, value) in claim.at.iter().flatten() {
        let is_cc = value.as_str().is_some_and(|value| place.first().is_some_and(|cc| cc == value));
        if !is_cc && !value.is_object() {
            place.push(format!("{key} = {value}"));
        }
    }
    let (metric, bound, text) = (&claim.metric, &claim.bound, &claim.text);
    let mut line = format!(
        "{verdict}: {text}\n      {metric} {measured}{interval}, {bound} ({})",
        place.join(", ")
    );
    if let (ClaimVerdict::Fails, Some(reason)) = (claim.verdict, &claim.reason) {
        line.push_str(&format!("\n      {reason}"));
    }
    line
}

/// The 95 % interval of a median, where it is not a point.
fn interval(interval_95: Option<[f64; 2]>) -> String {
    match interval_95.map(|ends| ends.map(shown)) {
        Some([low, high]) if low != high => format!(" ({low} to {high})"),
        _ => String::new(),
    }
}

fn shown(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "never / never".to_owned(),
        _ if value.is_infinite() => "never".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn table<'a>(summary: &Summary, cells: impl Iterator<Item = &'a CellSummary>) -> Table {
    // The algorithm has its own column.
    let is_cc = |key: &&String| {
        let last = key.rsplit('.').next();
        key.starts_with("flow.") && matches!(last, Some("cc" | "label" | "parameters"))
    };
    let keys: Vec<&String> = summary.keys.iter().filter(|key| !is_cc(key)).collect();
    let figures = [
        ("Mbit/s", "throughput_mbps"),
        ("+-", "stddev_mbps"),
        ("loss", "loss_rate"),
        ("queue ms", "queueing_ms.mean"),
        ("p95", "queueing_ms.p95"),
        ("converged s", "convergence_s"),
    ];
    let mut table = Table::new();
    let header = keys.iter().map(|key| key.as_str()).chain(["flows"]);
    let header = header.chain(figures.iter().map(|(name, _)| *name)).chain(["jain"]);
    table.load_preset(presets::NOTHING).set_header(header);
    let rows = cells.flat_map(|cell| cell.groups.iter().map(move |g| (cell, g)));
    let row = |(cell, group): (&CellSummary, &GroupSummary)| {
        let at = keys.iter().map(|key| cell.at.get(*key).map(ToString::to_string));
        let mut row: Vec<String> = at.map(Option::unwrap_or_default).collect();
        row.push(match group.count {
            1 => group.label.clone(),
            count => format!("{count} x {}", group.label),
        });
        for (_, figure) in figures {
            let words = |of: &Statistics| shown(of.median) + &interval(of.median_95);
            row.push(group.figures.get(figure).map_or(String::new(), words));
        }
        row.push(cell.link.get("jain").map_or(String::new(), |value| shown(value.median)));
        row
    };
    let all: Vec<_> = rows.map(row).collect();
    let more = all.len().saturating_sub(MAX_TABLE_ROWS);
    for row in all.into_iter().take(MAX_TABLE_ROWS) {
        table.add_row(row);
    }
    if more > 0 {
        table.add_row([format!("... {more} more in summary.json")]);
    }
    for column in table.column_iter_mut().skip(keys.len() + 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
