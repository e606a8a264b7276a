//! Scenario files on the command line: which, `list` and `check`.

use std::fs;
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use millrace_lab::runner::{self, Earlier};
use millrace_lab::scenario::File;
use millrace_lab::scenario::part::{self, Choice};
use serde_json::json;

use crate::outcome::How;

/// Where the scenarios of this repository are.
const SCENARIOS: &str = "tests/lab/scenarios";
/// Exit code of a file that can't be used (`EX_USAGE` of `sysexits.h`).
pub const UNUSABLE: u8 = 64;

/// Which scenarios are run, and where their results go.
#[derive(Debug, Args)]
pub struct Chosen {
    /// Scenario files, or directories of them
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// Only those whose name contains this (can be given several times)
    #[arg(long)]
    only: Vec<String>,
    /// Only cells with this value of a key that they sweep: `flow.0.cc=iris-min`. Several values of a key
    /// add up; scenarios that don't sweep it stay as they are
    #[arg(long = "where", value_name = "KEY=VALUE")]
    cells: Vec<Choice>,
    /// Take over what counts of these results, as --out has them: runs with the same settings and seed
    /// are not done again. With --where, cells that are there come along. Can be given several times
    #[arg(long, value_name = "DIR", conflicts_with = "quick")]
    resume: Vec<PathBuf>,
    /// Directory of recorded links [default: $MILLRACE_TRACES, else ../shared/traces]
    #[arg(long)]
    pub traces: Option<PathBuf>,
    /// Divide times and repeats: for development, proves nothing
    #[arg(long)]
    pub quick: bool,
    /// Print results as JSON
    #[arg(long)]
    pub json: bool,
}

/// What is to be run.
#[derive(Debug)]
pub struct Work {
    /// In the order of their names.
    pub files: Vec<File>,
    /// What was left out of them for speed.
    pub quick: Option<String>,
    /// Runs that are there already.
    pub earlier: Option<Earlier>,
}

impl Chosen {
    /// Reads them; `None` when one is wrong, which has been said then.
    pub fn load(&self) -> Result<Option<Work>> {
        let Some(mut files) = load(&self.scenarios)? else { return Ok(None) };
        if !self.only.is_empty() {
            files.retain(|file| self.only.iter().any(|only| file.head.name.contains(only)));
        }
        if files.is_empty() {
            bail!("no scenario of these has a name with {}", self.only.join(" or "));
        }
        let wanted = !self.resume.is_empty();
        let earlier = wanted.then(|| Earlier::read(&self.resume)).transpose()?;
        let there = |scenario: &_| earlier.as_ref().is_some_and(|earlier| earlier.has(scenario));
        part::choose(&mut files, &self.cells, there).map_err(anyhow::Error::msg)?;
        if files.is_empty() {
            bail!("no cell of these has all that --where asks for");
        }
        let mut quick = None;
        for file in files.iter_mut().filter(|_| self.quick) {
            quick = Some(runner::quicker(file));
        }
        Ok(Some(Work { files, quick, earlier }))
    }

    /// How results are shown.
    pub fn how(&self) -> How {
        How { json: self.json, quick: self.quick }
    }
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
