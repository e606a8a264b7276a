//! Scenario files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::claim::{self, Claim};
use super::model::{At, Scenario, ScenarioHead};
use super::reader::TableReader;
use super::tree::{ScenarioError, ScenarioText};
use super::{schema, source, sweep};
use crate::report::Plot;

/// A scenario file.
#[derive(Debug, Clone)]
pub struct ScenarioFile {
    /// As it was named to us.
    pub path: PathBuf,
    /// What it is about.
    pub head: ScenarioHead,
    /// The swept keys with their values, in the order of the file; those of a zip one after the
    /// other.
    pub sweep: Vec<(String, Vec<Value>)>,
    /// Which of them vary together.
    pub zips: Vec<Vec<String>>,
    /// Each combination of the swept values, with the scenario that it makes.
    pub cells: Vec<Cell>,
    /// What is claimed of the results.
    pub claims: Vec<Claim>,
    /// How the results are to be drawn.
    pub plots: Vec<Plot>,
}

/// One combination of the swept values.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The swept values.
    pub at: At,
    /// What is run.
    pub scenario: Scenario,
}

impl ScenarioFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file can't be read, or the first thing found wrong in it.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        Self::parse(&source::read(path)?, path)
    }

    /// Checks a text that errors call `path`.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        Self::read(&ScenarioText { file: path, text, keys: None })
    }

    /// Checks a text, and takes down its keys if the text says where.
    pub(super) fn read(text: &ScenarioText<'_>) -> Result<Self, ScenarioError> {
        let mut root = text.parse()?;
        let sweep = sweep::take(text, &mut root)?;
        let mut reader = TableReader::new(text, "", &root)?;
        let head = schema::head(&mut reader)?;
        let keys: Vec<String> = sweep.iter().flat_map(|axis| axis.keys()).collect();
        let claims = claim::read(&mut reader, &keys)?;
        let plots = schema::plots(&mut reader)?;
        let mut cells = Vec::new();
        for (at, root) in sweep::cells(text, &sweep, &root)? {
            let scenario = schema::scenario(text, &root)?;
            cells.push(Cell { at, scenario });
        }
        let zips = sweep.iter().map(|axis| axis.keys().collect::<Vec<_>>());
        let zips = zips.filter(|keys| keys.len() > 1).collect();
        let sweep = sweep.into_iter().flat_map(sweep::SweepAxis::into_json).collect();
        Ok(Self { path: text.file.to_owned(), head, sweep, zips, cells, claims, plots })
    }
}
