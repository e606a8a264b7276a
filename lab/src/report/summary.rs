//! `summary.json` of a scenario's results; `docs/research/results.md` describes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::plot::Plot;

/// The format that is read.
const FORMAT: u64 = 1;

/// How deep below the directory asked for summaries are looked for.
const MAX_DEPTH: u32 = 4;

#[derive(Debug, Deserialize)]
pub(crate) struct StoredSummary {
    /// Where it was found.
    #[serde(skip)]
    pub(crate) directory: PathBuf,
    format: u64,
    pub(crate) scenario: StoredScenario,
    #[serde(default)]
    pub(crate) quick: Option<Value>,
    #[serde(default)]
    pub(crate) keys: Vec<String>,
    #[serde(default)]
    pub(crate) cells: Vec<StoredCell>,
    #[serde(default)]
    pub(crate) invalid_runs: Vec<StoredInvalidRun>,
    #[serde(default)]
    pub(crate) claims: Vec<StoredClaim>,
    #[serde(default)]
    pub(crate) plots: Vec<Plot>,
    #[serde(default)]
    pub(crate) counts: StoredCounts,
    #[serde(default)]
    pub(crate) reused: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) problems: Vec<Value>,
    #[serde(default)]
    pub(crate) stamp: StoredStamp,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StoredScenario {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) figure: Option<String>,
    #[serde(default)]
    pub(crate) about: Option<String>,
    #[serde(default)]
    pub(crate) duration_s: Option<f64>,
    #[serde(default)]
    pub(crate) repeat: Option<u64>,
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    #[serde(default)]
    pub(crate) variant: StoredVariant,
    #[serde(default)]
    pub(crate) pictures_s: Vec<f64>,
}

/// Settings that the algorithms had instead of the file's.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct StoredVariant {
    #[serde(default)]
    pub(crate) preset: Option<String>,
    #[serde(default)]
    pub(crate) baselines: Option<String>,
}

impl StoredVariant {
    /// Whether they had the file's.
    pub(crate) fn is_none(&self) -> bool {
        self.preset.is_none() && self.baselines.is_none()
    }
}

/// One combination of the swept values.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredCell {
    /// Where its runs are found.
    #[serde(skip)]
    pub(crate) directory: PathBuf,
    pub(crate) at: Map<String, Value>,
    /// Directories of the valid runs.
    #[serde(default)]
    pub(crate) runs: Vec<Value>,
    #[serde(default)]
    pub(crate) link: StoredStatistics,
    #[serde(default)]
    pub(crate) groups: Vec<StoredPart>,
    #[serde(default)]
    pub(crate) flows: Vec<StoredPart>,
}

impl StoredCell {
    /// Directories of the valid runs, in the order of the repeats.
    pub(crate) fn run_directories(&self) -> impl Iterator<Item = PathBuf> {
        let names = self.runs.iter().filter_map(|run| run.as_str());
        names.map(|run| {
            let below = self.directory.join(run);
            if below.is_dir() { below } else { self.directory.join("runs").join(run) }
        })
    }
}

/// An invalid run, as a cell with this run alone.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredInvalidRun {
    #[serde(flatten)]
    pub(crate) cell: StoredCell,
    pub(crate) because: Vec<String>,
}

/// A group of flows, or one flow.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredPart {
    #[serde(default)]
    pub(crate) flow: Option<i64>,
    pub(crate) group: i64,
    pub(crate) cc: String,
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) count: Option<u64>,
    #[serde(default)]
    pub(crate) figures: StoredStatistics,
}

pub(crate) type StoredStatistics = BTreeMap<String, StoredStatistic>;

/// A figure over the repeats. A time that never came counts as infinitely long.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct StoredStatistic {
    #[serde(default)]
    pub(crate) median: Option<f64>,
    #[serde(default)]
    pub(crate) median_95: Option<[Option<f64>; 2]>,
    #[serde(default)]
    pub(crate) stddev: Option<f64>,
    #[serde(default)]
    pub(crate) min: Option<f64>,
    #[serde(default)]
    pub(crate) max: Option<f64>,
    #[serde(default)]
    pub(crate) values: Vec<Option<f64>>,
}

impl StoredStatistic {
    /// The 95 % interval of the median; `None` where an end never came, and in results of earlier versions.
    pub(crate) fn finite_interval_95(&self) -> Option<[f64; 2]> {
        let [low, high] = self.median_95?;
        Some([low?, high?])
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct StoredClaim {
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) source: Option<String>,
    pub(crate) metric: String,
    pub(crate) bound: String,
    pub(crate) verdict: String,
    #[serde(default)]
    pub(crate) measured: Option<f64>,
    #[serde(default)]
    pub(crate) interval_95: Option<[Option<f64>; 2]>,
    #[serde(default)]
    pub(crate) at: Option<Map<String, Value>>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) points: Vec<StoredPoint>,
}

/// One comparison of a claim.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct StoredPoint {
    #[serde(default)]
    pub(crate) at: Map<String, Value>,
    #[serde(default)]
    pub(crate) cc: Option<String>,
    #[serde(default)]
    pub(crate) value: Option<f64>,
    #[serde(default)]
    pub(crate) reference: Option<f64>,
    #[serde(default)]
    pub(crate) measured: Option<f64>,
    #[serde(default)]
    pub(crate) interval_95: Option<[Option<f64>; 2]>,
    #[serde(default)]
    pub(crate) holds: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct StoredCounts {
    #[serde(default)]
    pub(crate) runs: u64,
    #[serde(default)]
    pub(crate) skipped: u64,
    #[serde(default)]
    pub(crate) failed: u64,
    #[serde(default)]
    pub(crate) invalid: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct StoredStamp {
    #[serde(default)]
    pub(crate) commit: Option<String>,
    #[serde(default)]
    pub(crate) command: Option<Value>,
    #[serde(default)]
    pub(crate) version: Option<String>,
    #[serde(default)]
    pub(crate) kernel: Option<String>,
    #[serde(default)]
    pub(crate) architecture: Option<String>,
    #[serde(default)]
    pub(crate) cpus: Option<u64>,
    #[serde(default)]
    pub(crate) finished_unix_s: Option<f64>,
}

/// Every summary below a directory, by name.
///
/// # Errors
/// When there is no summary, or one can't be read.
pub(crate) fn read_all(directory: &Path) -> Result<Vec<StoredSummary>> {
    let mut files = Vec::new();
    find(directory, MAX_DEPTH, &mut files)
        .with_context(|| format!("read {}", directory.display()))?;
    if files.is_empty() {
        bail!("{}: no summary.json below it; `millrace-lab run` writes one", directory.display());
    }
    let mut all = files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    all.sort_by(|a, b| a.scenario.name.cmp(&b.scenario.name));
    for pair in all.windows(2) {
        if pair[0].scenario.name == pair[1].scenario.name {
            let (a, b) = (pair[0].directory.display(), pair[1].directory.display());
            bail!("{a} and {b} are both results of {}", pair[0].scenario.name);
        }
    }
    Ok(all)
}

fn find(directory: &Path, depth: u32, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let file = directory.join("summary.json");
    if file.is_file() {
        // Below it there are only its runs.
        files.push(file);
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), depth - 1, files)?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<StoredSummary> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut summary: StoredSummary =
        serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    if summary.format != FORMAT {
        bail!("{}: format {}, this program reads {FORMAT}", file.display(), summary.format);
    }
    summary.directory = file.parent().unwrap_or(Path::new(".")).to_owned();
    for cell in &mut summary.cells {
        cell.directory.clone_from(&summary.directory);
    }
    Ok(summary)
}
