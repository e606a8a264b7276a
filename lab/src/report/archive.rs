//! `millrace-lab archive`: results in a form small enough for the repository.
//!
//! Of each scenario: the page, the figures of every run and flow, and their provenance. Dates are omitted, so
//! that the same runs give the same files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::csv::quoted;
use super::document::Document;
use super::gallery::MAX_IMAGE_BYTES;
use super::heading::{facts, warnings};
use super::samples::Setting;
use super::summary::{self, StoredSummary};
use super::viewers::FILE as FRAMES_FILE;
use super::{figure, fill, read_page};
use crate::checkout;
use crate::output;
use crate::results::{entries, metric, read_json};

/// Largest page, so that a clone of the repository stays small.
const MAX_PAGE_BYTES: usize = 3_000_000;
/// The default output directory, in the repository.
const OUT: &str = "docs/research/results";
/// The fact that changes with each run.
const DATE: &str = "Finished";

/// Options of `millrace-lab archive`.
#[derive(Debug, Clone, Args)]
pub struct ArchiveOptions {
    /// Directory with results, of one scenario or of many
    #[arg(required = true)]
    results: PathBuf,
    /// Output directory, with a subdirectory for each scenario [default: docs/research/results of the repository]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Also archive what `run --reuse` needs: settings, figures, series and frames of each run
    #[arg(long)]
    runs: bool,
    /// The page without figures [default: figures.html beside this program, else lab/web/dist/figures.html of
    /// the repository]
    #[arg(long)]
    page: Option<PathBuf>,
}

/// Writes report.html, flows.csv and README.md of each scenario.
///
/// # Errors
/// When there are no results, they can't be read, one was shortened, a page is too large even without frames,
/// or it can't be written.
pub fn run(options: &ArchiveOptions) -> Result<()> {
    let page = read_page(options.page.as_deref())?;
    let out = match &options.out {
        Some(out) => out.clone(),
        None => checkout::directory()
            .context("this program is in no checkout of the repository; --out names the output directory")?
            .join(OUT),
    };
    for summary in summary::read_all(&options.results)? {
        let directory = out.join(&summary.scenario.name);
        archive(&summary, &page, &directory)?;
        archive_runs(&summary, options.runs, &directory)?;
        output::line(directory.display())?;
    }
    Ok(())
}

fn archive(summary: &StoredSummary, page: &str, directory: &Path) -> Result<()> {
    let name = &summary.scenario.name;
    if summary.quick.as_ref().is_some_and(|quick| !quick.is_null()) {
        bail!("{name}: a quick run proves nothing and is not archived; run it without --quick");
    }
    let html = bounded_page(summary, page)?;
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let texts =
        [("report.html", html), ("flows.csv", flows(summary)?), ("README.md", readme(summary))];
    for (file, text) in texts {
        let path = directory.join(file);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Archived files of a run, beside the frames of its players.
const RUN_FILES: [&str; 3] = ["run.json", "flows.json", "series.parquet"];

/// Replaces the archived runs by the valid ones, under the names that `summary.json` has for them.
fn archive_runs(summary: &StoredSummary, wanted: bool, directory: &Path) -> Result<()> {
    let runs = directory.join("runs");
    if runs.exists() {
        fs::remove_dir_all(&runs).with_context(|| runs.display().to_string())?;
    }
    let text = directory.join("summary.json");
    if !wanted {
        return match fs::remove_file(&text) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| text.display().to_string())
            }
            _ => Ok(()),
        };
    }
    copy(&summary.directory.join("summary.json"), &text)?;
    for run in summary.cells.iter().flat_map(|cell| cell.run_directories()) {
        let target = runs.join(run.file_name().context("a run's directory has a name")?);
        fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
        for file in RUN_FILES.map(|file| run.join(file)).iter().filter(|file| file.is_file()) {
            copy(file, &target)?;
        }
        archive_frames(&run, &target)?;
    }
    Ok(())
}

fn archive_frames(run: &Path, target: &Path) -> Result<()> {
    for player in entries(run)?.into_iter().filter(|path| path.join(FRAMES_FILE).is_file()) {
        let target = target.join(player.file_name().context("a player's directory has a name")?);
        fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
        for file in entries(&player)? {
            let is_picture = file.extension().is_some_and(|extension| extension == "webp");
            if is_picture || file.ends_with(FRAMES_FILE) {
                copy(&file, &target)?;
            }
        }
    }
    Ok(())
}

/// To a file, or into a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let to = match from.file_name() {
        Some(name) if to.is_dir() => to.join(name),
        _ => to.to_owned(),
    };
    fs::copy(from, &to).map(drop).with_context(|| to.display().to_string())
}

/// The page with as many frames as it has room for.
fn bounded_page(summary: &StoredSummary, page: &str) -> Result<String> {
    for images_bytes in [MAX_IMAGE_BYTES, MAX_IMAGE_BYTES / 2, 0] {
        let mut figure = figure(summary, images_bytes)?;
        figure.csv = Some("flows.csv".to_owned());
        let mut facts = facts(&[summary]);
        facts.retain(|fact| fact.name != DATE);
        let document = Document {
            title: figure.title.clone(),
            facts,
            warnings: warnings(&[summary]),
            sets: Vec::new(),
            figures: vec![figure],
        };
        let html = fill(page, &document)?;
        if html.len() <= MAX_PAGE_BYTES {
            return Ok(html);
        }
    }
    let name = &summary.scenario.name;
    bail!("{name}: more than {MAX_PAGE_BYTES} bytes of page without frames; draw fewer plots")
}

/// The provenance of the results.
fn readme(summary: &StoredSummary) -> String {
    let scenario = &summary.scenario;
    let title = scenario.title.as_deref().unwrap_or(&scenario.name);
    let mut text = format!("# {title}\n\n");
    if let Some(figure) = &scenario.figure {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{figure}.\n");
    }
    text.push_str("| | |\n|---|---|\n");
    let told = facts(&[summary]);
    for fact in told.iter().filter(|fact| ![DATE, "Scenarios"].contains(&fact.name)) {
        let value = fact.value.replace('|', "\\|");
        let value = if fact.name == "Command" { format!("`{value}`") } else { value };
        let _ = writeln!(text, "| {} | {value} |", fact.name.to_lowercase());
    }
    let counts = summary.counts;
    let excluded = counts.skipped + counts.failed + counts.invalid;
    let _ = writeln!(text, "| excluded runs | {excluded} |\n");
    text.push_str(
        "`report.html` needs nothing but a browser; it is not in git, and ../README.md says how to make \
         it. `flows.csv` has the figures of each valid run and flow; \
         docs/research/results.md says what each is. `inf` is a time that never came, nothing a figure \
         that does not exist.\n",
    );
    text
}

/// What is read of `run.json`.
#[derive(Debug, Deserialize)]
struct ArchivedRunFile {
    cell: u64,
    repeat: u64,
    seed: u64,
    at: Map<String, Value>,
}

/// What is read of `flows.json`.
#[derive(Debug, Deserialize)]
struct ArchivedFlowsFile {
    link: Map<String, Value>,
    flows: Vec<Map<String, Value>>,
}

/// Facts about a flow, before its figures.
const FACTS: [&str; 6] = ["flow", "group", "cc", "label", "start_s", "stop_s"];

/// A row for each valid run and flow.
fn flows(summary: &StoredSummary) -> Result<String> {
    let mut rows: Vec<(Vec<String>, BTreeMap<String, String>)> = Vec::new();
    for run in summary.cells.iter().flat_map(|cell| cell.run_directories()) {
        let of: ArchivedRunFile = read_json(&run.join("run.json"))?;
        let ArchivedFlowsFile { link, flows } = read_json(&run.join("flows.json"))?;
        for flow in &flows {
            let mut facts = vec![of.cell.to_string(), of.repeat.to_string(), of.seed.to_string()];
            let swept = summary.keys.iter().map(|key| of.at.get(key));
            facts.extend(swept.chain(FACTS.map(|key| flow.get(key))).map(plain));
            let mut figures = BTreeMap::new();
            flatten("", flow, &mut figures);
            flatten("link.", &link, &mut figures);
            rows.push((facts, figures));
        }
    }
    let known = metric::names().into_iter();
    let names: Vec<String> =
        known.filter(|name| rows.iter().any(|(_, figures)| figures.contains_key(name))).collect();
    let mut head = vec!["cell", "repeat", "seed"];
    head.extend(summary.keys.iter().map(String::as_str));
    head.extend(FACTS);
    head.extend(names.iter().map(String::as_str));
    let mut text = line(head.into_iter());
    for (facts, figures) in &rows {
        let figures = names.iter().map(|name| figures.get(name).map_or("", String::as_str));
        text += &line(facts.iter().map(String::as_str).chain(figures));
    }
    Ok(text)
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

fn plain(value: Option<&Value>) -> String {
    value.map_or_else(String::new, |value| Setting::from_json(value).to_string())
}

/// `rtt_ms` with a `p95` within becomes `rtt_ms.p95`; null is what never came.
fn flatten(before: &str, of: &Map<String, Value>, into: &mut BTreeMap<String, String>) {
    for (name, value) in of {
        let name = format!("{before}{name}");
        match value {
            Value::Object(inner) => flatten(&format!("{name}."), inner, into),
            Value::Null => _ = into.insert(name, "inf".to_owned()),
            other => _ = into.insert(name, plain(Some(other))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic_players::players;

    const PAGE: &str = "<script>\"millrace-report-data\"</script>";

    fn results(root: &Path) -> StoredSummary {
        players(root, "kept", &["a/slow.txt"], &["bbr", "iris-min"]);
        let mut all = summary::read_all(root).unwrap();
        for (cell, cc) in ["bbr", "iris-min"].iter().enumerate() {
            let run = root.join(format!("kept/runs/{cell:04}-r00"));
            let at = serde_json::json!({ "link.trace": "a/slow.txt", "flow.0.cc": cc });
            let file = serde_json::json!({ "cell": cell, "repeat": 0, "seed": 7, "at": at });
            fs::write(run.join("run.json"), file.to_string()).unwrap();
            let flow = serde_json::json!({
                "flow": 0, "group": 0, "cc": cc, "label": "a, b", "start_s": 0.0, "stop_s": 10.0,
                "rtt_ms": { "p95": 31.5 }, "follow_s": null, "ssim": 0.95,
            });
            let file = serde_json::json!({ "link": { "jain": 1.0 }, "flows": [flow] });
            fs::write(run.join("flows.json"), file.to_string()).unwrap();
        }
        all.remove(0)
    }

    #[test]
    fn archived_results_have_each_run_and_no_date() {
        let root = tempfile::tempdir().unwrap();
        let (summary, out) = (results(root.path()), root.path().join("out"));
        archive(&summary, PAGE, &out).unwrap();
        let text = |name: &str| fs::read_to_string(out.join(name)).unwrap();
        let csv = text("flows.csv");
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "cell,repeat,seed,link.trace,flow.0.cc,flow,group,cc,label,start_s,stop_s,rtt_ms.p95,\
                 follow_s,ssim,link.jain",
                "0,0,7,a/slow.txt,bbr,0,0,bbr,\"a, b\",0,10,31.5,inf,0.95,1",
            ]
        );
        assert_eq!(lines.len(), 3);
        let all = text("README.md") + &text("report.html");
        assert!(
            all.contains("run --driver simulator made-up.toml") && all.contains("0123456789ab")
        );
        assert!(!all.contains("2027-01-15"), "the day of the made-up run");
        assert!(text("report.html").contains("data:image/webp"));
    }

    #[test]
    fn archived_runs_can_be_reported_again() {
        let root = tempfile::tempdir().unwrap();
        let (summary, out) = (results(&root.path().join("measured")), root.path().join("kept"));
        let again = |wanted: bool| {
            archive(&summary, PAGE, &out).unwrap();
            archive_runs(&summary, wanted, &out).unwrap();
        };
        again(true);
        let all = summary::read_all(root.path().join("kept").as_path()).unwrap();
        assert_eq!(all[0].cells.len(), summary.cells.len());
        assert_eq!(flows(&all[0]).unwrap(), flows(&summary).unwrap());
        let page = |summary: &StoredSummary| bounded_page(summary, PAGE).unwrap();
        assert_eq!(page(&all[0]), page(&summary), "with the series and the frames");
        assert!(!out.join("runs/0000-r00/player-0/session.json").exists());
        again(false);
        assert!(!out.join("runs").exists() && !out.join("summary.json").exists());
    }

    #[test]
    fn a_page_that_is_too_large_goes_without_frames_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let summary = results(root.path());
        let empty = bounded_page(&summary, PAGE).unwrap();
        // A page with room for the frames, and one that is a byte too large for them.
        let without = "data:image/webp";
        let mut room = MAX_PAGE_BYTES - empty.len();
        let tight = bounded_page(&summary, &format!("{PAGE}{}", " ".repeat(room))).unwrap();
        assert!(tight.contains(without) && tight.len() == MAX_PAGE_BYTES);
        room += 1;
        let tight = bounded_page(&summary, &format!("{PAGE}{}", " ".repeat(room))).unwrap();
        assert!(!tight.contains(without) && tight.contains("Omitted"));
        assert!(bounded_page(&summary, &format!("{PAGE}{}", " ".repeat(MAX_PAGE_BYTES))).is_err());
    }
}
