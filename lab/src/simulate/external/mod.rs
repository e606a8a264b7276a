//! Controllers that are programs of their own: a process for each flow, which answers a line to each line.
//!
//! `docs/research/external-controllers.md` describes the protocol.

mod config;
mod controller;
mod exchange;
mod protocol;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use millrace_cc::ControllerConfig;

use crate::runner::NotDone;
use crate::scenario::{FlowGroup, Scenario};
use config::ExternalConfig;

pub use config::ExternalFailure;

/// The external controllers of a run.
#[derive(Debug)]
pub struct ExternalControllers<'a> {
    scenario: &'a Scenario,
    /// Of the run.
    directory: &'a Path,
    failure: ExternalFailure,
}

impl<'a> ExternalControllers<'a> {
    /// Those of `scenario`, with their logs in `logs` below `directory`.
    #[must_use]
    pub fn new(scenario: &'a Scenario, directory: &'a Path) -> Self {
        Self { scenario, directory, failure: ExternalFailure::default() }
    }

    /// The first failure, which is set while the run lasts.
    #[must_use]
    pub fn failure(&self) -> ExternalFailure {
        Arc::clone(&self.failure)
    }

    /// The settings of a group's controllers.
    ///
    /// # Errors
    /// The group names no external controller of the scenario.
    pub fn settings(&self, group: &FlowGroup) -> Result<Arc<dyn ControllerConfig>, NotDone> {
        let program = group.external().and_then(|name| self.scenario.externals.get(name));
        let problem = || NotDone::Failed(format!("{}: no such external controller", group.cc));
        let program = program.ok_or_else(problem)?;
        Ok(Arc::new(ExternalConfig {
            name: group.cc.clone(),
            command: program.command.clone(),
            parameters: group.parameters.clone(),
            timeout: Duration::from_secs_f64(program.timeout_s),
            program_directory: program.directory.clone(),
            log_directory: self.directory.join("logs"),
            started: AtomicUsize::new(0),
            failure: self.failure(),
        }))
    }
}
