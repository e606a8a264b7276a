//! Selection of scenario files on the command line, `list` and `check`.

use std::fs;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use crate::checkout;
use crate::cli::outcome::DisplayOptions;
use crate::output;
use crate::runner::{self, Earlier};
use crate::scenario::part::{self, CellSelector};
use crate::scenario::{AlgorithmPreset, AlgorithmVariant, BaselineSettings, Driver, ScenarioFile};
use crate::traces::Traces;

/// Directories with the scenarios of this repository, by purpose.
const SCENARIOS: [&str; 5] = [
    "lab/scenarios/papers",
    "lab/scenarios/conditions",
    "lab/scenarios/real",
    "lab/scenarios/parity",
    "lab/scenarios/players",
];
/// Exit code of a file that can't be used (`EX_USAGE` of `sysexits.h`).
pub const UNUSABLE: u8 = 64;

/// Which scenarios and cells are run, and how their results are printed.
#[derive(Debug, Args)]
pub struct ScenarioSelection {
    /// Scenario files, or directories of them
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// Run only scenarios whose name contains this text (repeatable)
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Run only cells with this value of a swept key: `flow.0.cc=iris-min` (repeatable). Several values
    /// of one key add up; scenarios that do not sweep the key run whole
    #[arg(long = "select", value_name = "KEY=VALUE")]
    cells: Vec<CellSelector>,
    /// Reuse valid runs with the same settings, seed and driver from results that --out has written
    /// (repeatable). With --select, cells that are in those results stay too
    #[arg(long, value_name = "DIR", conflicts_with = "quick")]
    reuse: Vec<PathBuf>,
    #[command(flatten)]
    variant: VariantOptions,
    #[command(flatten)]
    trace_options: TraceOptions,
    /// Skip runs over recorded links that are missing, instead of refusing their scenarios
    #[arg(long)]
    skip_missing_traces: bool,
    /// Print the figures of invalid runs too, flagged; they count in no claim and no other figure
    #[arg(long)]
    show_invalid: bool,
    /// Divide times and repeats: for development, proves nothing
    #[arg(long)]
    pub quick: bool,
    /// Print results as JSON
    #[arg(long)]
    pub json: bool,
}

/// Where recorded links are.
#[derive(Debug, Clone, Args)]
pub struct TraceOptions {
    /// Directory of recorded links that are not beside their scenario [default: $MILLRACE_TRACES, else
    /// ../shared/traces]
    #[arg(long)]
    traces: Option<PathBuf>,
}

impl TraceOptions {
    fn find(&self) -> Traces {
        Traces::find(self.traces.as_deref())
    }
}

/// Other settings of the algorithms than those of the scenario files.
#[derive(Debug, Clone, Copy, Args)]
struct VariantOptions {
    /// Preset of every member of Vivace and Iris that has it, unless the file sets one. Scenarios without any are left
    /// out, and so are reasons of claims, which are about the file's own settings
    #[arg(long, value_enum)]
    preset: Option<AlgorithmPreset>,
    /// Settings of the algorithms that these are compared with, unless the file sets them. Scenarios without any are
    /// left out
    #[arg(long, value_enum)]
    baselines: Option<BaselineSettings>,
}

/// The scenarios to run.
#[derive(Debug)]
pub struct SelectedScenarios {
    /// In the order of their names.
    pub files: Vec<ScenarioFile>,
    /// The recorded links.
    pub traces: Traces,
    /// How `--quick` has shortened them.
    pub quick: Option<String>,
    /// Runs to reuse.
    pub earlier: Option<Earlier>,
}

impl ScenarioSelection {
    /// Reads the scenarios that `driver` can run; `None` after printing what is wrong with a file.
    pub fn load(&self, driver: Driver) -> Result<Option<SelectedScenarios>> {
        let Some(mut files) = load(&self.scenarios)? else { return Ok(None) };
        let driver_name = driver.name();
        let other = files.iter().find(|file| !file.head.drivers.contains(&driver));
        if let Some(named) = other.filter(|file| self.scenarios.contains(&file.path)) {
            let path = named.path.display();
            bail!("{path}: drivers: the {driver_name} can't run this scenario");
        }
        files.retain(|file| file.head.drivers.contains(&driver));
        if files.is_empty() {
            bail!("the {driver_name} can run none of these scenarios; `list` shows their drivers");
        }
        if !self.filter.is_empty() {
            files.retain(|file| self.filter.iter().any(|text| file.head.name.contains(text)));
        }
        if files.is_empty() {
            bail!("no scenario of these has a name with {}", self.filter.join(" or "));
        }
        let VariantOptions { preset, baselines } = self.variant;
        files.retain_mut(|file| file.apply(AlgorithmVariant { preset, baselines }));
        if files.is_empty() {
            output::error_line("millrace-lab: no scenario has algorithms with these settings");
            return Ok(None);
        }
        let reuses = !self.reuse.is_empty();
        let earlier = reuses.then(|| Earlier::read(&self.reuse)).transpose()?;
        let there = |scenario: &_| earlier.as_ref().is_some_and(|earlier| earlier.has(scenario));
        part::select(&mut files, &self.cells, there).map_err(anyhow::Error::msg)?;
        if files.is_empty() {
            bail!("no cell of these scenarios matches --select");
        }
        let traces = self.trace_options.find();
        if !self.skip_missing_traces && !traces_are_there(&files, &traces) {
            let hint = "--skip-missing-traces runs the others";
            writeln!(stderr(), "millrace-lab: {hint}").ok();
            return Ok(None);
        }
        let mut quick = None;
        for file in files.iter_mut().filter(|_| self.quick) {
            quick = Some(runner::quicker(file));
        }
        Ok(Some(SelectedScenarios { files, traces, quick, earlier }))
    }

    /// How results are printed.
    pub fn display(&self) -> DisplayOptions {
        DisplayOptions { json: self.json, quick: self.quick, show_invalid: self.show_invalid }
    }
}

#[derive(Debug, Args)]
pub struct ListOptions {
    /// Scenario files, or directories of them
    #[arg(default_values = SCENARIOS)]
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
    #[command(flatten)]
    trace_options: TraceOptions,
}

pub fn list(options: &ListOptions) -> Result<ExitCode> {
    let scenarios: Vec<_> = options.scenarios.iter().map(|it| checkout::existing(it)).collect();
    let Some(files) = load(&scenarios)? else { return Ok(ExitCode::from(UNUSABLE)) };
    let runs = |file: &ScenarioFile| file.cells.len() as u64 * file.head.repeat;
    if options.json {
        let entry = |file: &ScenarioFile| {
            json!({
                "name": file.head.name,
                "file": file.path,
                "title": file.head.title,
                "figure": file.head.figure,
                "drivers": file.head.drivers,
                "runs": runs(file),
                "claims": file.claims.len(),
            })
        };
        let all: Vec<_> = files.iter().map(entry).collect();
        output::line(serde_json::to_string_pretty(&all)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for file in &files {
        let (name, title) = (&file.head.name, &file.head.title);
        let (runs, claims) = (runs(file), file.claims.len());
        let drivers: Vec<_> = file.head.drivers.iter().map(|driver| driver.name()).collect();
        let drivers = drivers.join(", ");
        output::line(format_args!("{name:16} {title} ({drivers}; {runs} runs, {claims} claims)"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn check(options: &CheckOptions) -> Result<ExitCode> {
    let Some(files) = load(&options.scenarios)? else { return Ok(ExitCode::from(UNUSABLE)) };
    if !traces_are_there(&files, &options.trace_options.find()) {
        return Ok(ExitCode::from(UNUSABLE));
    }
    for file in &files {
        let (cells, claims) = (file.cells.len(), file.claims.len());
        let path = file.path.display();
        let repeat = file.head.repeat;
        output::line(format_args!("{path}: good: {cells} cells x {repeat}, {claims} claims"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the recorded links of all scenarios can be read; prints what is wrong, once for each trace.
fn traces_are_there(files: &[ScenarioFile], traces: &Traces) -> bool {
    let cells = files.iter().flat_map(|file| &file.cells);
    let problems = cells.filter_map(|cell| traces.check(&cell.scenario).err());
    let mut problems: Vec<String> = problems.map(|problem| problem.to_string()).collect();
    problems.sort_unstable();
    problems.dedup();
    for problem in &problems {
        writeln!(stderr(), "{problem}").ok();
    }
    problems.is_empty()
}

/// All files, in the order of their names; `None` after printing what is wrong with a file.
fn load(paths: &[PathBuf]) -> Result<Option<Vec<ScenarioFile>>> {
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
        match ScenarioFile::load(path) {
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
