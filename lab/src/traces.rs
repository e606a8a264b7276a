//! Recorded links, each read once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_sim::RateTrace;

use crate::runner::NotDone;
use crate::scenario::TraceFormat;

/// Where traces are looked for unless the command line or [`VARIABLE`] says otherwise.
pub const DEFAULT_DIRECTORY: &str = "../shared/traces";
/// Names the directory of traces.
pub const VARIABLE: &str = "MILLRACE_TRACES";

/// The traces of a directory.
#[derive(Debug)]
pub struct Traces {
    directory: PathBuf,
    read: Mutex<HashMap<String, Arc<RateTrace>>>,
}

impl Traces {
    /// Those of `given`, else of [`VARIABLE`], else of [`DEFAULT_DIRECTORY`].
    #[must_use]
    pub fn find(given: Option<&Path>) -> Self {
        let named = || std::env::var_os(VARIABLE).map(PathBuf::from);
        let directory = given.map(Path::to_owned).or_else(named);
        let directory = directory.unwrap_or_else(|| PathBuf::from(DEFAULT_DIRECTORY));
        Self { directory, read: Mutex::default() }
    }

    /// A trace by its path below the directory.
    ///
    /// # Errors
    /// [`NotDone::Skipped`] when there is no such file; [`NotDone::Failed`] when it is malformed.
    pub fn get(&self, name: &str, format: TraceFormat) -> Result<Arc<RateTrace>, NotDone> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trace) = read.get(name) {
            return Ok(trace.clone());
        }
        let path = self.directory.join(name);
        if !path.exists() {
            return Err(NotDone::Skipped(format!(
                "no trace {}: give its directory with --traces or {VARIABLE}",
                path.display()
            )));
        }
        let trace = match format {
            TraceFormat::Mahimahi => RateTrace::mahimahi_file(&path),
            TraceFormat::Throughput => RateTrace::throughput_file(&path),
        };
        let trace = Arc::new(trace.map_err(|error| NotDone::Failed(error.to_string()))?);
        read.insert(name.to_owned(), trace.clone());
        Ok(trace)
    }
}
