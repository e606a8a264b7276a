//! `millrace-lab sim`, `list` and `check`.

use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use millrace_lab::results::claims::{Judged, Verdict};
use millrace_lab::results::{CellSummary, GroupSummary, Summary};
use millrace_lab::scenario::File;
use millrace_lab::simulate::{self, Traces};
use serde_json::json;

/// Where the scenarios of this repository are.
const SCENARIOS: &str = "tests/lab/scenarios";
/// A longer table is in summary.json.
const MAX_TABLE_ROWS: usize = 60;
/// Exit code of a file that can't be used (`EX_USAGE` of `sysexits.h`).
const UNUSABLE: u8 = 64;
/// Exit code when a claim falls short and nobody has said why.
const FALLS_SHORT: u8 = 2;

#[derive(Debug, Args)]
pub struct Options {
    /// Scenario files, or directories of them
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// Only those whose name contains this (can be given several times)
    #[arg(long)]
    only: Vec<String>,
    /// Where results go
    #[arg(long, default_value = "target/lab/results")]
    out: PathBuf,
    /// Directory of recorded links [default: $MILLRACE_TRACES, else ../shared/traces]
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Runs at the same time [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Divide times and repeats: for development, proves nothing
    #[arg(long)]
    quick: bool,
    /// Print results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ListOptions {
    /// Scenario files, or directories of them
    #[arg(default_value = SCENARIOS)]
    scenarios: Vec<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct CheckOptions {
    /// Scenario files, or directories of them
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
}

/// What became of all claims and runs.
#[derive(Debug, Default)]
struct Tally {
    hold: usize,
    fall_short: usize,
    unexplained: usize,
    not_measured: usize,
    failed_runs: usize,
    skipped_runs: usize,
    scenarios: Vec<serde_json::Value>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Some(mut files) = load(&options.scenarios)? else { return Ok(ExitCode::from(UNUSABLE)) };
    if !options.only.is_empty() {
        files.retain(|file| options.only.iter().any(|only| file.head.name.contains(only)));
    }
    if files.is_empty() {
        bail!("no scenario of these has a name with {}", options.only.join(" or "));
    }
    let mut quick = None;
    for file in files.iter_mut().filter(|_| options.quick) {
        quick = Some(simulate::quicker(file));
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let simulated = simulate::Options {
        out: options.out.clone(),
        jobs: options.jobs.map_or_else(cores, usize::from),
        traces: Traces::find(options.traces.as_deref()),
        quick,
    };
    let mut tally = Tally::default();
    simulate::run(&files, &simulated, |summary, path| {
        if !options.json {
            show(summary, path)?;
        }
        tally.add(summary, path);
        Ok(())
    })?;
    tally.close(options)
}

impl Tally {
    fn add(&mut self, summary: &Summary, path: &Path) {
        for claim in &summary.claims {
            match claim.verdict {
                Verdict::Holds => self.hold += 1,
                Verdict::NotMeasured => self.not_measured += 1,
                Verdict::FallsShort => {
                    self.fall_short += 1;
                    self.unexplained += usize::from(claim.reason.is_none());
                }
            }
        }
        self.failed_runs += summary.counts.failed;
        self.skipped_runs += summary.counts.skipped;
        self.scenarios.push(json!({
            "name": summary.scenario.name,
            "directory": path,
            "counts": summary.counts,
            "problems": summary.problems,
            "claims": summary.claims,
            "quick": summary.quick,
        }));
    }

    fn close(self, options: &Options) -> Result<ExitCode> {
        if options.json {
            let all = json!({
                "scenarios": self.scenarios,
                "claims": {
                    "hold": self.hold,
                    "fall_short": self.fall_short,
                    "fall_short_without_reason": self.unexplained,
                    "not_measured": self.not_measured,
                },
                "failed_runs": self.failed_runs,
                "skipped_runs": self.skipped_runs,
            });
            writeln!(stdout(), "{}", serde_json::to_string_pretty(&all)?)?;
        } else {
            let mut parts = vec![
                format!("{} claims hold", self.hold),
                format!("{} fall short ({} without a reason)", self.fall_short, self.unexplained),
            ];
            let more = [
                (self.not_measured, "not measured"),
                (self.skipped_runs, "runs skipped"),
                (self.failed_runs, "runs failed"),
            ];
            let more = more.into_iter().filter(|(count, _)| *count > 0);
            parts.extend(more.map(|(count, what)| format!("{count} {what}")));
            let quick = if options.quick { "; quick: proves nothing" } else { "" };
            writeln!(stdout(), "{}{quick}", parts.join(", "))?;
        }
        Ok(match (self.failed_runs, self.unexplained) {
            (0, 0) => ExitCode::SUCCESS,
            // Shortened runs can't keep what full ones promise.
            (0, _) if options.quick => ExitCode::SUCCESS,
            (0, _) => ExitCode::from(FALLS_SHORT),
            _ => ExitCode::FAILURE,
        })
    }
}

pub fn list(options: &ListOptions) -> Result<ExitCode> {
    let Some(files) = load(&options.scenarios)? else { return Ok(ExitCode::from(UNUSABLE)) };
    let runs = |file: &File| file.cells.len() as u64 * file.head.repeat;
    if options.json {
        let entry = |file: &File| {
            json!({
                "name": file.head.name,
                "file": file.path,
                "title": file.head.title,
                "figure": file.head.figure,
                "runs": runs(file),
                "claims": file.claims.len(),
            })
        };
        let all: Vec<_> = files.iter().map(entry).collect();
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for file in &files {
        let (name, title) = (&file.head.name, &file.head.title);
        let (runs, claims) = (runs(file), file.claims.len());
        writeln!(stdout(), "{name:16} {title} ({runs} runs, {claims} claims)")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn check(options: &CheckOptions) -> Result<ExitCode> {
    let Some(files) = load(&options.scenarios)? else { return Ok(ExitCode::from(UNUSABLE)) };
    for file in &files {
        let (cells, claims) = (file.cells.len(), file.claims.len());
        let path = file.path.display();
        let repeat = file.head.repeat;
        writeln!(stdout(), "{path}: good: {cells} cells x {repeat}, {claims} claims")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All files, in the order of their names; `None` when one is wrong, which has been said then.
fn load(paths: &[PathBuf]) -> Result<Option<Vec<File>>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
            let mut inside: Vec<PathBuf> =
                entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
            inside.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
            inside.sort();
            files.extend(inside);
        } else {
            files.push(path.clone());
        }
    }
    let mut good = Vec::new();
    let mut wrong = false;
    for path in &files {
        match File::load(path) {
            Ok(file) => good.push(file),
            Err(error) => {
                wrong = true;
                writeln!(stderr(), "{error}").ok();
            }
        }
    }
    let mut names: Vec<&str> = good.iter().map(|file| file.head.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("two scenarios are named {:?}: their results would be in one directory", pair[0]);
    }
    Ok((!wrong).then_some(good))
}

/// A scenario's results for people.
fn show(summary: &Summary, path: &Path) -> Result<()> {
    let out = &mut stdout();
    let head = &summary.scenario;
    writeln!(out, "{}: {}", head.name, head.title)?;
    if let Some(quick) = &summary.quick {
        writeln!(out, "  quick: {quick}")?;
    }
    writeln!(out, "{}", table(summary))?;
    for problem in &summary.problems {
        writeln!(out, "  {} runs not done: {}", problem.runs, problem.reason)?;
    }
    for claim in &summary.claims {
        writeln!(out, "  {}", sentence(claim))?;
    }
    writeln!(out, "  {}\n", path.display())?;
    Ok(())
}

fn sentence(claim: &Judged) -> String {
    let verdict = match claim.verdict {
        Verdict::Holds => "holds",
        Verdict::FallsShort => "FALLS SHORT",
        Verdict::NotMeasured => return format!("not measured: {}", claim.text),
    };
    let measured = claim.measured.map_or_else(|| "never".to_owned(), shown);
    let mut place: Vec<String> = claim.cc.iter().cloned().collect();
    for (key, value) in claim.at.iter().flatten() {
        let is_cc = value.as_str().is_some_and(|value| place.first().is_some_and(|cc| cc == value));
        if !is_cc && !value.is_object() {
            place.push(format!("{key} = {value}"));
        }
    }
    let (metric, bound, text) = (&claim.metric, &claim.bound, &claim.text);
    let mut line =
        format!("{verdict}: {text}\n      {metric} {measured}, {bound} ({})", place.join(", "));
    if let (Verdict::FallsShort, Some(reason)) = (claim.verdict, &claim.reason) {
        line.push_str(&format!("\n      {reason}"));
    }
    line
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

fn table(summary: &Summary) -> Table {
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
    let rows = summary.cells.iter().flat_map(|cell| cell.groups.iter().map(move |g| (cell, g)));
    let row = |(cell, group): (&CellSummary, &GroupSummary)| {
        let at = keys.iter().map(|key| cell.at.get(*key).map(ToString::to_string));
        let mut row: Vec<String> = at.map(Option::unwrap_or_default).collect();
        row.push(match group.count {
            1 => group.label.clone(),
            count => format!("{count} x {}", group.label),
        });
        for (_, figure) in figures {
            row.push(group.figures.get(figure).map_or(String::new(), |value| shown(value.median)));
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
