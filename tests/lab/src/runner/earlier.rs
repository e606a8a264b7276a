//! Runs that are there already: what `--resume` takes over.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::results::{RunFigures, entries, read_json, write_json};
use crate::scenario::Scenario;

/// What is read of `run.json`.
#[derive(Debug, Deserialize)]
struct RunFile {
    driver: String,
    seed: u64,
    valid: bool,
    series: bool,
    settings: Value,
    stamp: StampFile,
}

#[derive(Debug, Deserialize)]
struct StampFile {
    commit: Option<String>,
}

/// All runs that count of earlier results.
#[derive(Debug)]
pub struct Earlier {
    runs: Vec<Run>,
}

/// A run that counts.
#[derive(Debug)]
pub(super) struct Run {
    path: PathBuf,
    file: RunFile,
}

/// What a run that is to be done is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) driver: &'a str,
    pub(super) scenario: &'a Scenario,
    pub(super) seed: u64,
    pub(super) with_series: bool,
}

impl Earlier {
    /// Of the scenarios whose results are below these directories, as `--out` has them. The first that has
    /// a run counts.
    ///
    /// # Errors
    /// One has none, or can't be read.
    pub fn read(directories: &[PathBuf]) -> Result<Self> {
        let mut runs = Vec::new();
        for directory in directories {
            let before = runs.len();
            read_into(&mut runs, directory)?;
            if runs.len() == before {
                bail!("{}: no results of scenarios with runs that count", directory.display());
            }
        }
        Ok(Self { runs })
    }

    /// Whether there is a run of exactly these settings, by any driver.
    #[must_use]
    pub fn has(&self, scenario: &Scenario) -> bool {
        settings(scenario).is_ok_and(|own| self.runs.iter().any(|run| run.file.settings == own))
    }

    /// The run that would come out, but for what the programs and the machine have become since.
    pub(super) fn find(&self, wanted: Wanted<'_>) -> Result<Option<&Run>> {
        let own = settings(wanted.scenario)?;
        Ok(self.runs.iter().find(|Run { file, .. }| {
            let series = file.series || !wanted.with_series;
            file.driver == wanted.driver
                && file.seed == wanted.seed
                && series
                && file.settings == own
        }))
    }
}

/// As they are after having been written and read, so that numbers are the same if their texts are.
fn settings(scenario: &Scenario) -> Result<Value> {
    Ok(serde_json::from_str(&serde_json::to_string(scenario)?)?)
}

/// Between the name of a run and the number of an attempt at it that does not count.
pub(super) const LEFT_OUT: &str = "-left-out-";

impl Run {
    pub(super) fn commit(&self) -> String {
        self.file.stamp.commit.clone().unwrap_or_else(|| "unknown".to_owned())
    }

    /// Copies it to `target`, an empty directory, as run `repeat` of `cell`; with it the attempts that were
    /// left out. Its figures, and how many those were.
    pub(super) fn take(
        &self,
        target: &Path,
        cell: usize,
        repeat: u64,
    ) -> Result<(RunFigures, usize)> {
        copy(&self.path, target)?;
        let text = target.join("run.json");
        let mut file: Value = read_json(&text)?;
        file["cell"] = cell.into();
        file["repeat"] = repeat.into();
        write_json(&text, &file)?;
        let text = target.join("flows.json");
        let figures = RunFigures::from_json(&read_json(&text)?)
            .with_context(|| format!("{}: written by another version?", text.display()))?;
        let mut left_out = 0;
        for number in 1.. {
            let beside = |path: &Path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                path.with_file_name(format!("{name}{LEFT_OUT}{number}"))
            };
            if !beside(&self.path).is_dir() {
                break;
            }
            copy(&beside(&self.path), &beside(target))?;
            left_out = number;
        }
        Ok((figures, left_out))
    }
}

fn read_into(runs: &mut Vec<Run>, directory: &Path) -> Result<()> {
    for scenario in entries(directory)? {
        if !scenario.join("summary.json").is_file() {
            continue;
        }
        for path in entries(&scenario.join("runs"))? {
            // Attempts that were left out lie beside the run that took their place.
            let text = path.join("run.json");
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if name.contains(LEFT_OUT) || !text.is_file() {
                continue;
            }
            let file: RunFile = read_json(&text)?;
            if file.valid {
                runs.push(Run { path, file });
            }
        }
    }
    Ok(())
}

/// A directory of a run: files, and directories of its players. Links are not followed; there are none.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let context = || from.display().to_string();
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(context)? {
        let entry = entry.with_context(context)?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type().with_context(context)?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target).with_context(|| target.display().to_string())?;
        }
    }
    Ok(())
}
