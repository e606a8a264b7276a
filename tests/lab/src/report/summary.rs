//! `summary.json` of a scenario's results; `docs/results.md` describes it.

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
pub(super) struct Summary {
    /// Where it was found.
    #[serde(skip)]
    pub(super) directory: PathBuf,
    format: u64,
    pub(super) scenario: Scenario,
    #[serde(default)]
    pub(super) quick: Option<Value>,
    #[serde(default)]
    pub(super) keys: Vec<String>,
    #[serde(default)]
    pub(super) cells: Vec<Cell>,
    #[serde(default)]
    pub(super) claims: Vec<Claim>,
    #[serde(default)]
    pub(super) plots: Vec<Plot>,
    #[serde(default)]
    pub(super) counts: Counts,
    #[serde(default)]
    pub(super) problems: Vec<Value>,
    #[serde(default)]
    pub(super) stamp: Stamp,
}

#[derive(Debug, Deserialize)]
pub(super) struct Scenario {
    pub(super) name: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) figure: Option<String>,
    #[serde(default)]
    pub(super) about: Option<String>,
    #[serde(default)]
    pub(super) duration_s: Option<f64>,
    #[serde(default)]
    pub(super) repeat: Option<u64>,
}

/// One combination of the swept values.
#[derive(Debug, Deserialize)]
pub(super) struct Cell {
    /// Where its runs are found.
    #[serde(skip)]
    pub(super) directory: PathBuf,
    pub(super) at: Map<String, Value>,
    /// Directories of the valid runs.
    #[serde(default)]
    pub(super) runs: Vec<Value>,
    #[serde(default)]
    pub(super) link: Figures,
    #[serde(default)]
    pub(super) groups: Vec<Part>,
    #[serde(default)]
    pub(super) flows: Vec<Part>,
}

/// A group of flows, or one flow.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    #[serde(default)]
    pub(super) flow: Option<i64>,
    pub(super) group: i64,
    pub(super) cc: String,
    pub(super) label: String,
    #[serde(default)]
    pub(super) count: Option<u64>,
    #[serde(default)]
    pub(super) figures: Figures,
}

pub(super) type Figures = BTreeMap<String, Statistic>;

/// A figure over the repeats. A time that never came counts as infinitely long.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct Statistic {
    #[serde(default)]
    pub(super) median: Option<f64>,
    #[serde(default)]
    pub(super) stddev: Option<f64>,
    #[serde(default)]
    pub(super) min: Option<f64>,
    #[serde(default)]
    pub(super) max: Option<f64>,
    #[serde(default)]
    pub(super) values: Vec<Option<f64>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Claim {
    pub(super) text: String,
    #[serde(default)]
    pub(super) source: Option<String>,
    pub(super) metric: String,
    pub(super) bound: String,
    pub(super) verdict: String,
    #[serde(default)]
    pub(super) measured: Option<f64>,
    #[serde(default)]
    pub(super) at: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) points: Vec<Point>,
}

/// One comparison of a claim.
#[derive(Debug, Deserialize)]
pub(super) struct Point {
    #[serde(default)]
    pub(super) at: Map<String, Value>,
    #[serde(default)]
    pub(super) cc: Option<String>,
    #[serde(default)]
    pub(super) value: Option<f64>,
    #[serde(default)]
    pub(super) reference: Option<f64>,
    #[serde(default)]
    pub(super) measured: Option<f64>,
    #[serde(default)]
    pub(super) holds: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Counts {
    #[serde(default)]
    pub(super) runs: u64,
    #[serde(default)]
    pub(super) skipped: u64,
    #[serde(default)]
    pub(super) failed: u64,
    #[serde(default)]
    pub(super) invalid: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Stamp {
    #[serde(default)]
    pub(super) commit: Option<String>,
    #[serde(default)]
    pub(super) command: Option<Value>,
    #[serde(default)]
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) kernel: Option<String>,
    #[serde(default)]
    pub(super) architecture: Option<String>,
    #[serde(default)]
    pub(super) cpus: Option<u64>,
    #[serde(default)]
    pub(super) finished_unix_s: Option<f64>,
}

/// Every summary below a directory, by name.
///
/// # Errors
/// There is none, or one can't be read.
pub(super) fn read_all(directory: &Path) -> Result<Vec<Summary>> {
    let mut files = Vec::new();
    find(directory, MAX_DEPTH, &mut files)
        .with_context(|| format!("read {}", directory.display()))?;
    if files.is_empty() {
        bail!("{}: no summary.json below it; `millrace-lab sim` writes one", directory.display());
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

fn read(file: &Path) -> Result<Summary> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut summary: Summary =
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
