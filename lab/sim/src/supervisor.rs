use std::sync::Arc;
use std::time::Duration;

use millrace_cc::{ControllerConfig, PathModel, Time};

/// Watches flows and replaces their controllers: the selecting part of MCC, in virtual time.
pub trait Supervisor {
    /// Whether this flow is watched; called once, before the run.
    fn watches(&self, _flow: usize) -> bool {
        false
    }

    /// A watched flow starts.
    fn started(&mut self, _flow: usize, _now: Time) {}

    /// Packets of a watched flow were acknowledged or declared lost; `path` is the state after that.
    fn ingest(&mut self, _flow: usize, _now: Time, _path: &PathModel) {}

    /// Returns the flows to switch now, with their new algorithms.
    fn evaluate(&mut self, _now: Time) -> Vec<(usize, Arc<dyn ControllerConfig>)> {
        Vec::new()
    }

    /// Time until the next evaluation.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// A supervisor that watches no flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsupervised;

impl Supervisor for Unsupervised {}
