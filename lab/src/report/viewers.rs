//! The viewers of a scenario with frames in the report: one for each algorithm and cell.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::samples::CellSample;
use super::summary::{StoredCell, StoredPart, StoredSummary};

/// Written by `player/src/cli/pictures.ts` beside `session.json`.
pub(crate) const FILE: &str = "pictures.json";
/// The version that is read.
const VERSION: u64 = 1;

/// A player of a cell's first valid run.
#[derive(Debug, Clone)]
pub(crate) struct ReportedPlayer<'a> {
    pub(crate) cell: &'a StoredCell,
    /// Its flow, the first of its group.
    pub(crate) part: &'a StoredPart,
    /// Where its session is.
    pub(crate) directory: PathBuf,
}

impl<'a> ReportedPlayer<'a> {
    pub(super) fn sample(&self) -> CellSample<'a> {
        CellSample::flow(self.cell, self.part)
    }
}

/// All of them, in the order of the cells.
pub(crate) fn viewers(summary: &StoredSummary) -> Vec<ReportedPlayer<'_>> {
    let mut all = Vec::new();
    for cell in &summary.cells {
        let Some(run) = cell.run_directories().next() else { continue };
        let mut groups = Vec::new();
        for part in &cell.flows {
            let Some(flow) = part.flow.filter(|_| !groups.contains(&part.group)) else { continue };
            let directory = run.join(format!("player-{flow}"));
            // Archived results have the frames without the session.
            if ["session.json", FILE].iter().any(|file| directory.join(file).is_file()) {
                groups.push(part.group);
                all.push(ReportedPlayer { cell, part, directory });
            }
        }
    }
    all
}

/// What was on the screen at an instant of a session.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Picture {
    pub(super) t: f64,
    pub(super) rung_kbps: Option<f64>,
    pub(super) media_s: Option<f64>,
    pub(super) frozen_s: f64,
    pub(super) psnr_db: Option<f64>,
    pub(super) buffer_s: Option<f64>,
    /// None before the first frame.
    pub(super) files: Option<Files>,
}

/// Beside the file that names them.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Files {
    pub(super) whole: String,
    pub(super) part: String,
    pub(super) source: String,
    pub(super) source_part: String,
}

/// `pictures.json`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pictures {
    version: u64,
    pub(super) credit: Option<String>,
    pub(super) pictures: Vec<Picture>,
}

/// # Errors
/// When the file can't be read, or is of another version. `None` where no frames were drawn.
pub(super) fn pictures(directory: &Path) -> Result<Option<Pictures>> {
    let file = directory.join(FILE);
    let Some(text) =
        present(fs::read_to_string(&file)).with_context(|| file.display().to_string())?
    else {
        return Ok(None);
    };
    let all: Pictures = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    if all.version != VERSION {
        bail!("{}: version {}, this program reads {VERSION}", file.display(), all.version);
    }
    Ok(Some(all))
}

/// `None` for a missing file.
fn present<T>(read: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
