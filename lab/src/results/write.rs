//! The directory of a scenario's results, which appears complete or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::figures::RunFigures;
use super::stamp::RunStamp;
use crate::scenario::{At, Scenario};

/// `run.json`.
#[derive(Debug, Serialize)]
pub struct RunFile<'a> {
    /// 1.
    pub format: u32,
    /// Name of the scenario.
    pub scenario: &'a str,
    /// Which combination of the swept values.
    pub cell: usize,
    /// Which repeat.
    pub repeat: u64,
    /// Its seed.
    pub seed: u64,
    /// The swept values.
    pub at: &'a At,
    /// The driver that ran it.
    pub driver: &'static str,
    /// Whether it is done.
    #[serde(flatten)]
    pub status: RunStatus<'a>,
    /// Whether it is valid.
    pub valid: bool,
    /// Why it is invalid; empty for a valid run.
    pub invalid_because: &'a [String],
    /// Whether there is a series.
    pub series: bool,
    /// What ran, with every default filled in.
    pub settings: &'a Scenario,
    /// The round trip of this run, by `settings.spread`.
    pub rtt_ms: f64,
    /// The driver's own report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<&'a Value>,
    /// Program, machine and time.
    pub stamp: RunStamp,
}

/// Whether a run is done.
#[derive(Debug, Serialize)]
pub struct RunStatus<'a> {
    /// `done`, `skipped` or `failed`.
    pub status: &'static str,
    /// Why it isn't done.
    pub reason: Option<&'a str>,
}

/// Results in progress. Dropped before [`Self::keep`], nothing of them stays.
#[derive(Debug)]
pub struct ResultsDirectory {
    partial: PathBuf,
    target: PathBuf,
    kept: bool,
}

impl ResultsDirectory {
    /// Begins the results of a scenario below `out`. What was there before stays until
    /// [`Self::keep`].
    ///
    /// # Errors
    /// When directories can't be made.
    pub fn begin(out: &Path, scenario: &str) -> Result<Self> {
        let partial = out.join(format!(".{scenario}.partial"));
        remove(&partial)?;
        fs::create_dir_all(partial.join("runs")).with_context(|| partial.display().to_string())?;
        Ok(Self { partial, target: out.join(scenario), kept: false })
    }

    /// Makes the directory of a run.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn run(&self, name: &str) -> Result<PathBuf> {
        let path = self.partial.join("runs").join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Writes `summary.json` and puts the results in their place.
    ///
    /// # Errors
    /// When it can't be written, or what was there can't be removed.
    pub fn keep(mut self, summary: &impl Serialize) -> Result<PathBuf> {
        write_json(&self.partial.join("summary.json"), summary)?;
        remove(&self.target)?;
        fs::rename(&self.partial, &self.target)
            .with_context(|| self.target.display().to_string())?;
        self.kept = true;
        Ok(self.target.clone())
    }
}

impl Drop for ResultsDirectory {
    fn drop(&mut self) {
        if !self.kept {
            remove(&self.partial).ok();
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Writes a run's files but for its series.
///
/// # Errors
/// When they can't be written.
pub fn write_run(path: &Path, file: &RunFile<'_>, figures: Option<&RunFigures>) -> Result<()> {
    write_json(&path.join("run.json"), file)?;
    figures.map_or(Ok(()), |figures| write_json(&path.join("flows.json"), figures))
}

/// Writes indented JSON.
///
/// # Errors
/// When it can't be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

/// Reads what [`write_json`] wrote.
///
/// # Errors
/// When it can't be read, or is something else.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// What is in a directory, by name.
///
/// # Errors
/// When it can't be read.
pub fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).and_then(|entries| {
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()
    });
    let mut all = entries.with_context(|| directory.display().to_string())?;
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_appear_whole_or_not_at_all() {
        let out = tempfile::tempdir().unwrap();
        let first = ResultsDirectory::begin(out.path(), "a").unwrap();
        fs::write(first.run("0000-r00").unwrap().join("x"), "old").unwrap();
        first.keep(&1).unwrap();
        let broken_off = ResultsDirectory::begin(out.path(), "a").unwrap();
        broken_off.run("0001-r00").unwrap();
        drop(broken_off);
        assert!(out.path().join("a/runs/0000-r00/x").exists(), "the old ones are still there");
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "nothing else is");

        let second = ResultsDirectory::begin(out.path(), "a").unwrap();
        second.run("0002-r00").unwrap();
        second.keep(&2).unwrap();
        assert!(!out.path().join("a/runs/0000-r00").exists());
        assert_eq!(fs::read_to_string(out.path().join("a/summary.json")).unwrap(), "2\n");
    }
}
