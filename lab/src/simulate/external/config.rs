//! The settings of external controllers.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};

/// The first failure of the external controllers of a run. It ends the run.
pub type ExternalFailure = Arc<OnceLock<String>>;

/// Settings of the external controllers of a group of flows.
#[derive(Debug)]
pub(super) struct ExternalConfig {
    /// As the scenario names it.
    pub(super) name: String,
    pub(super) command: Vec<String>,
    pub(super) parameters: Map<String, Value>,
    pub(super) timeout: Duration,
    pub(super) program_directory: PathBuf,
    pub(super) log_directory: PathBuf,
    /// How many have been started.
    pub(super) started: AtomicUsize,
    pub(super) failure: ExternalFailure,
}
