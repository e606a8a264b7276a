//! A scenario's section: how it was run, its claims, and why those fail that fail by default.

use std::fmt::Write as _;

use super::claim_table::{ClaimResults, ClaimTable, escaped};
use crate::report::summary::StoredSummary;
use crate::scenario::AlgorithmPreset;

pub(super) fn text(table: &ClaimTable, name: &str) -> String {
    let mut text = String::new();
    // The file's own settings, if they were run.
    let all: Vec<&StoredSummary> = table.summaries(name).collect();
    let as_filed = all.iter().find(|summary| summary.scenario.variant.is_none());
    let Some(first) = as_filed.or(all.first()) else { return text };
    let _ = writeln!(text, "\n## {name}: {}\n", title(first));
    let _ = writeln!(text, "{}", method(first));
    let number = first.claims.len();
    let mut notes = Vec::new();
    let mut columns = Vec::new();
    for column in &table.columns {
        match table.missing_preset(name, column).map(AlgorithmPreset::name) {
            Some(preset) => notes.push(format!(
                "No *{column}* column: no algorithm here has `preset = \"{preset}\"`."
            )),
            None if table.summary(name, column, None).is_none() => {
                notes.push(format!("Not run: *{column}*."));
            }
            None => columns.push(column.as_str()),
        }
    }
    let rows: Vec<_> = (0..number).map(|n| table.rows_of(name, n)).collect();
    let has_rows = rows.iter().any(|rows| rows.len() > 1);
    let mut head = vec!["claim", "bound"];
    head.extend(has_rows.then_some("baselines"));
    head.extend(&columns);
    let _ = writeln!(text, "\n| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for (n, (claim, rows)) in first.claims.iter().zip(rows).enumerate() {
        for row in rows {
            let mut cells = match row {
                None => vec![escaped(&claim.text), escaped(&claim.bound)],
                Some(_) => vec![String::new(), String::new()],
            };
            cells.extend(has_rows.then(|| row.unwrap_or("default").to_owned()));
            let values = columns.iter().map(|column| table.cell(name, n, column, row).text());
            cells.extend(values.map(|value| escaped(&value)));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    notes.extend(problems(table, name));
    for note in notes {
        let _ = writeln!(text, "\n{note}");
    }
    let _ = write!(text, "{}", reasons(as_filed.copied()));
    text
}

/// Why runs are missing, in each column and row.
fn problems(table: &ClaimTable, name: &str) -> Vec<String> {
    let of = |results: &ClaimResults| {
        let problems = results.summaries.get(name)?.problems.iter();
        let words = problems.filter_map(|problem| {
            Some(format!("{} runs: {}", problem.get("runs")?, problem.get("reason")?.as_str()?))
        });
        let words: Vec<_> = words.collect();
        let row = results.row.as_ref().map_or(String::new(), |row| format!(", baselines {row}"));
        let place = format!("{}{row}", results.column);
        (!words.is_empty()).then(|| format!("Missing in *{place}*: {}.", words.join("; ")))
    };
    table.results.iter().filter_map(of).collect()
}

/// Why claims fail with the settings that the file has.
fn reasons(as_filed: Option<&StoredSummary>) -> String {
    let Some(summary) = as_filed else { return String::new() };
    let failed = summary.claims.iter().filter(|claim| claim.verdict == "fails");
    let lines: Vec<_> = failed
        .map(|claim| {
            let reason = claim.reason.as_deref().unwrap_or("No reason is known.");
            format!("- *{}*: {}", claim.text, reason.trim().replace('\n', " "))
        })
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!("\nWhy claims fail by default:\n\n{}\n", lines.join("\n")),
    }
}

fn title(summary: &StoredSummary) -> &str {
    summary.scenario.title.as_deref().unwrap_or(&summary.scenario.name)
}

/// `Vivace, Figure 2. 84 cells of 60 s, each run 5 times (seeds 1 to 5).`
fn method(summary: &StoredSummary) -> String {
    let scenario = &summary.scenario;
    let figure = scenario.figure.as_ref().map_or(String::new(), |figure| format!("{figure}. "));
    let (repeat, seed) = (scenario.repeat.unwrap_or(1), scenario.seed.unwrap_or(1));
    let times = match repeat {
        0 | 1 => format!("each run once (seed {seed})"),
        repeat => format!("each run {repeat} times (seeds {seed} to {})", seed + repeat - 1),
    };
    let cells = match summary.cells.len() {
        1 => "1 cell".to_owned(),
        number => format!("{number} cells"),
    };
    let about = scenario.about.as_deref().unwrap_or_default().trim().replace('\n', " ");
    let about = if about.is_empty() { String::new() } else { format!(" {about}") };
    format!("{figure}{cells}, {times}.{about}")
}
