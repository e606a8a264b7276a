//! `millrace-lab report`: one self-contained page from the results of many runs.
//!
//! [`Plot`] is the form that a scenario file gives its results; [`document`] is what the page is
//! made from. The page itself is `lab/web/page/figures/`, built with the rest by `make build`.

pub mod archive;
mod claims;
mod comparison;
mod csv;
mod defaults;
pub mod document;
mod gallery;
mod panels;
mod plot;
mod samples;
mod series;
mod spread;
pub(crate) mod summary;
#[cfg(test)]
mod synthetic_players;
#[cfg(test)]
mod synthetic_results;
mod table;
#[cfg(test)]
mod tests;
mod units;
pub(crate) mod viewers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use time::OffsetDateTime;

use document::{Document, Fact, Panel, ScenarioFigure};
use gallery::MAX_IMAGE_BYTES;
pub use plot::{Corner, OneOrMore, Plot, PlotKind, ReferenceLine, Scalar};
use summary::{StoredStamp, StoredSummary};

/// What the built page has where the figures belong.
const PLACE: &str = "\"millrace-report-data\"";

/// The built page.
const PAGE: &str = "lab/web/dist/figures.html";

/// Where the figures' numbers go, beside the page.
const CSV_DIRECTORY: &str = "figures";

/// Options of `millrace-lab report`.
#[derive(Debug, Clone, Args)]
pub struct ReportOptions {
    /// Directory with results of one scenario or of many; several as LABEL=DIR are shown side by side and
    /// compared with the first
    #[arg(required = true, value_name = "[LABEL=]DIR")]
    pub results: Vec<Labelled>,
    /// Output file [default: report.html in the first directory]; figures/*.csv are written beside it
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// File for the claims as Markdown tables
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// Title of the page
    #[arg(long, default_value = "Millrace: the papers' figures")]
    pub title: String,
    /// The page without figures, as `make build` makes it
    #[arg(long, default_value = PAGE, hide = true)]
    pub page: PathBuf,
}

/// A directory with results and what they are called beside others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelled {
    /// What they are called.
    pub label: String,
    /// Where they are.
    pub directory: PathBuf,
}

impl std::str::FromStr for Labelled {
    type Err = String;

    /// `LABEL=DIR`, or a directory that labels itself by its name.
    fn from_str(text: &str) -> Result<Self, String> {
        let (label, directory) = match text.split_once('=') {
            Some((label, directory)) => (label.to_owned(), PathBuf::from(directory)),
            None => {
                let directory = PathBuf::from(text);
                let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
                (name.unwrap_or_else(|| text.to_owned()), directory)
            }
        };
        if label.is_empty() || directory.as_os_str().is_empty() {
            return Err(format!("{text:?}, expected a directory or LABEL=DIRECTORY"));
        }
        Ok(Self { label, directory })
    }
}

/// Writes the page and the CSV files.
///
/// # Errors
/// When there are no results, they can't be read, the page has not been built, or it can't be written.
pub fn run(options: &ReportOptions) -> Result<()> {
    let page = read_page(&options.page)?;
    let document = read(&options.results, &options.title)?;
    let first = options.results.first().context("there are results")?;
    let out = options.out.clone().unwrap_or_else(|| first.directory.join("report.html"));
    let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    write_csv(&document, directory)?;
    fs::write(&out, fill(&page, &document)?).with_context(|| out.display().to_string())?;
    if let Some(file) = &options.table {
        fs::write(file, table::text(&document)).with_context(|| file.display().to_string())?;
    }
    let count = |verdict: &str| {
        let claims = document.figures.iter().flat_map(|figure| &figure.claims);
        claims.filter(|claim| claim.verdict == verdict).count()
    };
    let (hold, fail) = (count("holds"), count("fails"));
    let not_measured = count("not measured");
    println!("{hold} claims hold, {fail} fail, {not_measured} were not measured");
    println!("{}", out.display());
    Ok(())
}

/// The page without figures.
fn read_page(page: &Path) -> Result<String> {
    let missing = || format!("{} is missing: run `make build` first", page.display());
    fs::read_to_string(page).with_context(missing)
}

/// What the results below some directories show.
///
/// # Errors
/// When there are no results, they can't be read, or two have the same label.
pub fn read(results: &[Labelled], title: &str) -> Result<Document> {
    let mut labels: Vec<&str> = results.iter().map(|of| of.label.as_str()).collect();
    labels.sort_unstable();
    if let Some(pair) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("two results are called {:?}: say LABEL=DIR", pair[0]);
    }
    let mut all = Vec::new();
    for of in results {
        all.push((of.label.clone(), summary::read_all(&of.directory)?));
    }
    let heads: Vec<&StoredSummary> = all.iter().flat_map(|(_, summaries)| summaries).collect();
    let (facts, warnings) = (facts(&heads), warnings(&heads));
    let figures = match &results {
        [_] => all.iter().flat_map(|(_, it)| it).map(whole).collect::<Result<Vec<_>>>()?,
        _ => side_by_side(all)?,
    };
    let sets = match results {
        [_] => Vec::new(),
        _ => results.iter().map(|of| of.label.clone()).collect(),
    };
    Ok(Document { title: title.to_owned(), facts, warnings, sets, figures })
}

fn whole(summary: &StoredSummary) -> Result<ScenarioFigure> {
    figure(summary, MAX_IMAGE_BYTES)
}

fn side_by_side(all: Vec<(String, Vec<StoredSummary>)>) -> Result<Vec<ScenarioFigure>> {
    let first = all.first().map(|(label, _)| label.clone()).unwrap_or_default();
    let of = |(summary, pairs): (StoredSummary, Vec<comparison::FigurePair>)| {
        let mut figure = whole(&summary)?;
        let judged = || pairs.iter().flat_map(|pair| &pair.others);
        let (count, agree) = (judged().count(), judged().filter(|(.., agrees)| *agrees).count());
        if count > 0 {
            figure.notes.push(format!("{agree} of {count} figures agree with {first}."));
        }
        if let Some(table) = comparison::table(&first, &pairs) {
            figure.plots.push(vec![Panel::Table(table)]);
        }
        Ok(figure)
    };
    comparison::join(all).into_iter().map(of).collect()
}

/// Puts a document into the built page.
///
/// # Errors
/// It isn't that page.
pub fn fill(page: &str, document: &Document) -> Result<String> {
    let Some((before, after)) = page.split_once(PLACE) else {
        bail!("the page has no place for the figures: run `make build` again");
    };
    // A `<` could end the script that the figures are in.
    let json = serde_json::to_string(document)?.replace('<', "\\u003c");
    Ok(format!("{before}{json}{after}"))
}

fn write_csv(document: &Document, beside: &Path) -> Result<()> {
    let directory = beside.join(CSV_DIRECTORY);
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for figure in &document.figures {
        let Some(name) = &figure.csv else { continue };
        let file = beside.join(name);
        fs::write(&file, csv::text(&figure.plots)).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn figure(summary: &StoredSummary, images_bytes: usize) -> Result<ScenarioFigure> {
    let scenario = &summary.scenario;
    let mut notes = notes(summary);
    let mut plots: Vec<Vec<Panel>> = Vec::new();
    for plot in defaults::plots(summary) {
        let panels = if plot.kind == PlotKind::Series {
            let (panels, said) = series::panels(summary, &plot)?;
            notes.extend(said);
            panels
        } else {
            panels::panels(summary, &plot)
        };
        if !panels.is_empty() {
            plots.push(panels);
        }
    }
    if let Some((table, said)) = spread::table(summary) {
        plots.push(vec![Panel::Table(table)]);
        notes.push(said);
    }
    notes.dedup();
    let csv = (!plots.is_empty()).then(|| format!("{CSV_DIRECTORY}/{}.csv", scenario.name));
    Ok(ScenarioFigure {
        id: scenario.name.clone(),
        title: scenario.title.clone().unwrap_or_else(|| scenario.name.clone()),
        source: scenario.figure.clone(),
        about: scenario.about.clone(),
        notes,
        claims: claims::claims(summary),
        plots,
        gallery: gallery::gallery(summary, images_bytes)?,
        csv,
    })
}

/// What the plots of a scenario are made of, and what is missing from them.
fn notes(summary: &StoredSummary) -> Vec<String> {
    let counts = summary.counts;
    let repeats = summary.scenario.repeat.unwrap_or(1);
    let each = match repeats {
        0 | 1 => "run once".to_owned(),
        more => format!(
            "run {more} times with different seeds: medians, with the least and the greatest"
        ),
    };
    let length = summary.scenario.duration_s.map_or_else(String::new, |s| format!(" of {s} s"));
    let mut notes = vec![format!("{} runs{length}; each point {each}.", counts.runs)];
    let missing =
        [(counts.skipped, "skipped"), (counts.failed, "failed"), (counts.invalid, "invalid")];
    let missing: Vec<_> =
        missing.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !missing.is_empty() {
        notes.push(format!("Excluded: {}.", missing.join(", ")));
    }
    notes.extend(summary.problems.iter().map(|problem| match problem {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Object(of) => {
            let reason = of.get("reason").or(of.get("problem")).and_then(|value| value.as_str());
            reason.map_or_else(|| problem.to_string(), str::to_owned)
        }
        other => other.to_string(),
    }));
    notes
}

fn facts(summaries: &[&StoredSummary]) -> Vec<Fact> {
    let all = |of: fn(&StoredStamp) -> Option<String>| {
        let values: BTreeSet<_> = summaries.iter().filter_map(|s| of(&s.stamp)).collect();
        values.into_iter().collect::<Vec<_>>().join("; ")
    };
    let runs: u64 = summaries.iter().map(|summary| summary.counts.runs).sum();
    let machine = |stamp: &StoredStamp| {
        let cpus = stamp.cpus.map_or_else(String::new, |cpus| format!(", {cpus} CPUs"));
        Some(format!("{}{cpus}", stamp.architecture.clone()?))
    };
    let command = |stamp: &StoredStamp| match stamp.command.clone()? {
        serde_json::Value::Array(words) => {
            let words = words.iter().map(|word| word.as_str().unwrap_or_default());
            Some(words.collect::<Vec<_>>().join(" "))
        }
        other => other.as_str().map(str::to_owned),
    };
    let finished = summaries.iter().filter_map(|summary| summary.stamp.finished_unix_s);
    let date = finished.reduce(f64::max).and_then(date).unwrap_or_default();
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for (commit, runs) in summaries.iter().flat_map(|summary| &summary.reused) {
        *taken.entry(short(commit)).or_default() += runs;
    }
    let taken = taken.iter().map(|(commit, runs)| format!("{runs} of commit {commit}"));
    let facts = [
        ("Commit", all(|stamp| stamp.commit.as_deref().map(short))),
        ("Version", all(|stamp| stamp.version.clone())),
        ("Command", all(command)),
        ("Finished", date),
        ("Machine", all(machine)),
        ("Kernel", all(|stamp| stamp.kernel.clone())),
        ("Scenarios", summaries.len().to_string()),
        ("Runs", runs.to_string()),
        ("Of these run earlier", taken.collect::<Vec<_>>().join("; ")),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    facts.map(|(name, value)| Fact { name, value }).collect()
}

/// Twelve digits; with the `+` that stands for changes since.
fn short(commit: &str) -> String {
    let changed = if commit.ends_with('+') { "+" } else { "" };
    format!("{:.12}{changed}", commit.trim_end_matches('+'))
}

fn date(unix_s: f64) -> Option<String> {
    // Whole seconds are enough, and in range for any clock that is nearly right.
    let at = OffsetDateTime::from_unix_timestamp(unix_s as i64).ok()?;
    let (month, minute) = (u8::from(at.month()), at.minute());
    Some(format!("{}-{month:02}-{:02} {:02}:{minute:02} UTC", at.year(), at.day(), at.hour()))
}

fn warnings(summaries: &[&StoredSummary]) -> Vec<String> {
    let named = |wanted: fn(&StoredSummary) -> bool| {
        let names = summaries.iter().filter(|s| wanted(s)).map(|s| s.scenario.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let mut warnings = Vec::new();
    let quick = named(|summary| summary.quick.as_ref().is_some_and(|quick| !quick.is_null()));
    if !quick.is_empty() {
        warnings.push(format!("A quick run, shortened, proves nothing: {quick}."));
    }
    let commits = summaries.iter().flat_map(|s| s.stamp.commit.iter().chain(s.reused.keys()));
    let commits: BTreeSet<_> = commits.collect();
    if commits.len() > 1 {
        warnings.push("The results are of different commits.".to_owned());
    }
    let broken = named(|summary| summary.counts.failed > 0);
    if !broken.is_empty() {
        warnings.push(format!("Runs failed in {broken}."));
    }
    warnings
}
