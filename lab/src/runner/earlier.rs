//! Runs of earlier results, which `--reuse` takes.

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
struct EarlierRunFile {
    driver: String,
    seed: u64,
    valid: bool,
    series: bool,
    settings: Value,
    stamp: EarlierStamp,
}

#[derive(Debug, Deserialize)]
struct EarlierStamp {
    commit: Option<String>,
}

/// All valid runs of earlier results.
#[derive(Debug)]
pub struct Earlier {
    runs: Vec<ReusableRun>,
}

/// A valid run of earlier results.
#[derive(Debug)]
pub(super) struct ReusableRun {
    path: PathBuf,
    file: EarlierRunFile,
}

/// What identifies a run; earlier runs are compared with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunKey<'a> {
    pub(super) driver: &'a str,
    pub(super) scenario: &'a Scenario,
    pub(super) seed: u64,
    pub(super) with_series: bool,
}

impl Earlier {
    /// Reads the results below these directories, as `--out` has them. The first directory with a run wins.
    ///
    /// # Errors
    /// When a directory has no valid run, or can't be read.
    pub fn read(directories: &[PathBuf]) -> Result<Self> {
        let mut runs = Vec::new();
        for directory in directories {
            let before = runs.len();
            read_into(&mut runs, directory)?;
            if runs.len() == before {
                bail!("{}: no results of scenarios with valid runs", directory.display());
            }
        }
        Ok(Self { runs })
    }

    /// Whether there is a run of exactly these settings, by any driver.
    #[must_use]
    pub fn has(&self, scenario: &Scenario) -> bool {
        settings(scenario).is_ok_and(|own| self.runs.iter().any(|run| run.file.settings == own))
    }

    /// The earlier run with this key; the programs and the machine may have changed since.
    pub(super) fn find(&self, wanted: RunKey<'_>) -> Result<Option<&ReusableRun>> {
        let own = settings(wanted.scenario)?;
        Ok(self.runs.iter().find(|ReusableRun { file, .. }| {
            let series = file.series || !wanted.with_series;
            file.driver == wanted.driver
                && file.seed == wanted.seed
                && series
                && file.settings == own
        }))
    }
}

/// Written and read, so that numbers are equal if their texts are.
fn settings(scenario: &Scenario) -> Result<Value> {
    Ok(serde_json::from_str(&serde_json::to_string(scenario)?)?)
}

/// Between the name of a run and the number of a discarded attempt at it.
pub(super) const DISCARDED: &str = "-discarded-";

impl ReusableRun {
    pub(super) fn commit(&self) -> String {
        self.file.stamp.commit.clone().unwrap_or_else(|| "unknown".to_owned())
    }

    /// Copies it to `target`, an empty directory, as run `repeat` of `cell`, with its discarded attempts. Answers
    /// its figures and the number of those attempts.
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
        let mut discarded = 0;
        for number in 1.. {
            let beside = |path: &Path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                path.with_file_name(format!("{name}{DISCARDED}{number}"))
            };
            if !beside(&self.path).is_dir() {
                break;
            }
            copy(&beside(&self.path), &beside(target))?;
            discarded = number;
        }
        Ok((figures, discarded))
    }
}

fn read_into(runs: &mut Vec<ReusableRun>, directory: &Path) -> Result<()> {
    for scenario in entries(directory)? {
        if !scenario.join("summary.json").is_file() {
            continue;
        }
        for path in entries(&scenario.join("runs"))? {
            // Discarded attempts are beside the run that replaced them.
            let text = path.join("run.json");
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if name.contains(DISCARDED) || !text.is_file() {
                continue;
            }
            let file: EarlierRunFile = read_json(&text)?;
            if file.valid {
                runs.push(ReusableRun { path, file });
            }
        }
    }
    Ok(())
}

/// Copies the directory of a run: files, and directories of its players. Symbolic links are skipped.
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
