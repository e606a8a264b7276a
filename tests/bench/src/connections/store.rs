//! The result file: written after each run, and read again by `--resume`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::csv;
use super::plan::SweepPoint;
use super::record::SweepRun;
use super::summary;
use crate::machine::Machine;

/// What is read of a file.
#[derive(Debug, Deserialize)]
struct StoredSweep {
    settings: Value,
    runs: Vec<SweepRun>,
}

/// The runs so far.
#[derive(Debug)]
pub struct SweepStore {
    path: PathBuf,
    /// What makes runs of two sweeps comparable: options and versions of the programs.
    settings: Value,
    /// Peers that are left out, with the reason.
    missing: BTreeMap<String, String>,
    runs: Vec<SweepRun>,
}

impl SweepStore {
    /// An empty one, or that of the file at `path` if `resume`, which may be absent.
    ///
    /// # Errors
    /// When the file can't be read, or is of other settings.
    pub fn open(
        path: &Path,
        settings: Value,
        missing: BTreeMap<String, String>,
        resume: bool,
    ) -> Result<Self> {
        let mut store = Self { path: path.to_owned(), settings, missing, runs: Vec::new() };
        if resume && path.exists() {
            let name = || path.display().to_string();
            let text = fs::read(path).with_context(name)?;
            let stored: StoredSweep = serde_json::from_slice(&text).with_context(name)?;
            let differing = differing_keys(&stored.settings, &store.settings);
            ensure!(
                differing.is_empty(),
                "{} is of another sweep: {} differ; give the same options, or another --output",
                name(),
                differing.join(", ")
            );
            store.runs = stored.runs;
        }
        Ok(store)
    }

    /// All runs.
    pub fn runs(&self) -> &[SweepRun] {
        &self.runs
    }

    /// Whether `point` has run in this round.
    pub fn has(&self, round: usize, point: &SweepPoint) -> bool {
        self.runs.iter().any(|run| run.round == round && run.point == *point)
    }

    /// Adds a run and writes both files.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn add(&mut self, run: SweepRun) -> Result<()> {
        self.runs.push(run);
        self.write()
    }

    fn write(&self) -> Result<()> {
        let results = json!({
            "machine": Machine::describe(),
            "settings": self.settings,
            "missing_peers": self.missing,
            "summary": summary::rows(&self.runs),
            "runs": self.runs,
        });
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        replace(&self.path, &(serde_json::to_string_pretty(&results)? + "\n"))?;
        replace(&self.path.with_extension("csv"), &csv::lines(&self.runs))
    }
}

/// Replaces the file at once, so that an interrupted sweep leaves a whole one.
fn replace(path: &Path, text: &str) -> Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, text).with_context(|| part.display().to_string())?;
    fs::rename(&part, path).with_context(|| path.display().to_string())
}

fn differing_keys(left: &Value, right: &Value) -> Vec<String> {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else {
        return vec!["settings".to_owned()];
    };
    let mut keys: Vec<String> = left.keys().chain(right.keys()).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    // Other points only add runs.
    keys.retain(|key| !["counts", "edges", "loads", "ways"].contains(&key.as_str()));
    keys.retain(|key| left.get(key) != right.get(key));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::plan::SweepWay;
    use crate::connections::record::samples;

    fn path(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("millrace-bench-{}-{name}", std::process::id()));
        fs::remove_dir_all(&directory).ok();
        directory.join("connections.json")
    }

    fn open(path: &Path, settings: Value, resume: bool) -> Result<SweepStore> {
        SweepStore::open(path, settings, BTreeMap::new(), resume)
    }

    #[test]
    fn resumed_sweep_has_the_runs_of_the_file_and_misses_the_others() {
        let path = path("resumed");
        let settings = json!({ "seconds": 3, "counts": [8] });
        let mut store = open(&path, settings.clone(), true).unwrap();
        let run = samples::run(1, SweepWay::PerFlow, 1.5, 9.0);
        store.add(run.clone()).unwrap();
        let resumed = open(&path, json!({ "seconds": 3, "counts": [8, 50] }), true).unwrap();
        assert_eq!(resumed.runs(), std::slice::from_ref(&run));
        assert!(resumed.has(1, &run.point));
        assert!(!resumed.has(2, &run.point));
        let other = SweepPoint { way: SweepWay::Shared, ..run.point };
        assert!(!resumed.has(1, &other));
        assert!(open(&path, settings, false).unwrap().runs().is_empty());
        assert!(path.with_extension("csv").exists() && !path.with_extension("part").exists());
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn sweep_with_other_settings_is_not_resumed() {
        let path = path("other");
        let mut store = open(&path, json!({ "seconds": 3, "cc": "cubic" }), false).unwrap();
        store.add(samples::run(1, SweepWay::Direct, 40.0, 0.3)).unwrap();
        let error = open(&path, json!({ "seconds": 4, "cc": "cubic" }), true).unwrap_err();
        assert!(error.to_string().contains("seconds differ"), "{error:#}");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn damaged_file_is_an_error_and_is_kept() {
        let path = path("damaged");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "{ \"runs\": [").unwrap();
        assert!(open(&path, json!({}), true).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "{ \"runs\": [");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
