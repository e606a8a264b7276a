//! `millrace-lab report`: one self-contained page from the results of many runs.
//!
//! [`Plot`] is the form that a scenario file gives its results; [`document`] is what the page is
//! made from. The page itself is `lab/web/page/figures/`, built with the rest by `make build`.

pub mod archive;
mod claims;
pub mod claims_page;
mod comparison;
mod csv;
mod defaults;
pub mod document;
mod gallery;
mod heading;
mod invalid_runs;
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
pub(crate) mod units;
pub(crate) mod viewers;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::checkout;
use crate::output;
use document::{Document, Panel, ReportTable, ScenarioFigure};
use gallery::MAX_IMAGE_BYTES;
pub use plot::{Corner, OneOrMore, Plot, PlotKind, ReferenceLine, Scalar};
use summary::StoredSummary;

/// What the built page has where the figures belong.
const PLACE: &str = "\"millrace-report-data\"";

/// The built page in the repository, and its name beside the program.
const PAGE: &str = "lab/web/dist/figures.html";
const PAGE_BESIDE_PROGRAM: &str = "figures.html";

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
    /// Title of the page [default: that of the scenario, or their number]
    #[arg(long)]
    pub title: Option<String>,
    /// Show the figures of invalid runs too, in a table; they are in no claim and no plot
    #[arg(long)]
    pub show_invalid: bool,
    /// The page without figures [default: figures.html beside this program, else lab/web/dist/figures.html of
    /// the repository]
    #[arg(long)]
    pub page: Option<PathBuf>,
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
    let page = read_page(options.page.as_deref())?;
    let shown =
        ReportContent { title: options.title.as_deref(), invalid_runs: options.show_invalid };
    let document = read(&options.results, shown)?;
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
    let (hold, fail, undecided) = (count("holds"), count("fails"), count("undecided"));
    let not_measured = count("not measured");
    if hold + fail + undecided + not_measured > 0 {
        output::line(format_args!(
            "{hold} claims hold, {fail} fail, {undecided} are undecided, {not_measured} were not measured"
        ))?;
    }
    output::line(out.display())?;
    Ok(())
}

/// The page without figures.
fn read_page(given: Option<&Path>) -> Result<String> {
    let page = match given {
        Some(page) => page.to_owned(),
        None => checkout::beside_program(PAGE_BESIDE_PROGRAM)
            .unwrap_or_else(|| checkout::existing(Path::new(PAGE))),
    };
    fs::read_to_string(&page).with_context(|| {
        let page = page.display();
        format!("{page} can't be read: `make pages` in the repository builds it; --page names another file")
    })
}

/// What of the results is shown, and under which title.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReportContent<'a> {
    /// The title, unless it is that of the results.
    pub title: Option<&'a str>,
    /// Whether invalid runs are shown, in a table of their own.
    pub invalid_runs: bool,
}

/// What the results below some directories show.
///
/// # Errors
/// When there are no results, they can't be read, or two have the same label.
pub fn read(results: &[Labelled], content: ReportContent<'_>) -> Result<Document> {
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
    let (facts, warnings) = (heading::facts(&heads), heading::warnings(&heads));
    let title = content.title.map_or_else(|| heading::title(&heads), str::to_owned);
    let invalid = |(label, summaries): &(String, Vec<StoredSummary>)| {
        let label = (results.len() > 1).then(|| label.clone());
        let found = summaries.iter().filter_map(|it| {
            Some((it.scenario.name.clone(), invalid_runs::table(it, label.as_deref())?))
        });
        found.collect::<Vec<_>>()
    };
    let invalid: Vec<(String, ReportTable)> = match content.invalid_runs {
        true => all.iter().flat_map(invalid).collect(),
        false => Vec::new(),
    };
    let mut figures = match &results {
        [_] => all.iter().flat_map(|(_, it)| it).map(whole).collect::<Result<Vec<_>>>()?,
        _ => side_by_side(all)?,
    };
    for (name, table) in invalid {
        let mut of_it = figures.iter_mut().filter(|figure| figure.id == name);
        if let Some(figure) = of_it.next() {
            figure.plots.push(vec![Panel::Table(table)]);
        }
    }
    let sets = match results {
        [_] => Vec::new(),
        _ => results.iter().map(|of| of.label.clone()).collect(),
    };
    Ok(Document { title, facts, warnings, sets, figures })
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
        bail!(
            "the page has no place for the figures: `make pages` in the repository builds one that has"
        );
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
            "run {more} times with different seeds: medians, with the least and the greatest in plots"
        ),
    };
    let length = summary.scenario.duration_s.map_or_else(String::new, |s| format!(" of {s} s"));
    let mut notes = vec![format!("{} runs{length}; each point {each}.", counts.runs)];
    let variant = &summary.scenario.variant;
    let options = [("preset", &variant.preset), ("baselines", &variant.baselines)];
    let options = options
        .into_iter()
        .filter_map(|(name, value)| value.as_deref().map(|value| format!("`--{name} {value}`")));
    let options: Vec<_> = options.collect();
    if !options.is_empty() {
        notes.push(format!("Settings of the algorithms: {}.", options.join(" ")));
    }
    let missing =
        [(counts.skipped, "skipped"), (counts.failed, "failed"), (counts.invalid, "invalid")];
    let missing: Vec<_> =
        missing.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !missing.is_empty() {
        let hint = if counts.invalid > 0 {
            " `millrace-lab report --show-invalid` adds the figures of invalid runs."
        } else {
            ""
        };
        notes.push(format!("Excluded: {}.{hint}", missing.join(", ")));
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
