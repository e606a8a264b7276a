//! What runs scenarios.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use thiserror::Error;

use crate::results::{RunFigures, series};
use crate::scenario::Scenario;

/// What can run a scenario.
pub trait ScenarioDriver: Sync {
    /// Its name in results.
    const NAME: &'static str;

    /// One run.
    ///
    /// # Errors
    /// What ends all runs: Ctrl-C, or results that can't be written. What concerns this run alone is
    /// [`NotDone`].
    fn run(&self, request: &RunRequest<'_>) -> Result<Result<RunResult, NotDone>>;

    /// Called before another attempt at an invalid run.
    ///
    /// # Errors
    /// What ends all runs.
    fn before_another_attempt(&self) -> Result<()> {
        Ok(())
    }

    /// Cost of a run, in a unit of the driver's own.
    fn weight(&self, scenario: &Scenario) -> u64;
}

/// A request to a [`ScenarioDriver`] for one run.
#[derive(Debug, Clone, Copy)]
pub struct RunRequest<'a> {
    /// The scenario, with the round trip and starts of this run.
    pub scenario: &'a Scenario,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether the series are wanted.
    pub with_series: bool,
    /// Directory for logs.
    pub directory: &'a Path,
}

/// The result of a run that has ended.
#[derive(Debug, Default)]
pub struct RunResult {
    /// Its figures.
    pub figures: RunFigures,
    /// Its series, if they were wanted.
    pub rows: Option<Vec<series::SeriesRow>>,
    /// The algorithms that each flow had; empty where they are the scenario's.
    pub in_use: Vec<series::InUse>,
    /// Why it is invalid; empty for a valid run.
    pub invalid_because: Vec<String>,
    /// The driver's own report.
    pub account: Option<Value>,
}

/// Why a run was not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotDone {
    /// Something that it needs is missing.
    #[error("{0}")]
    Skipped(String),
    /// Something is wrong.
    #[error("{0}")]
    Failed(String),
}
