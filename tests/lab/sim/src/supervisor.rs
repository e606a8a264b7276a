use std::sync::Arc;
use std::time::Duration;

use millrace_cc::{ControllerConfig, PathModel, Time};

/// Watches flows and replaces their controllers: the selecting part of MCC, in virtual time.
pub trait Supervisor {
    /// Whether it watches this flow; asked once, before the run.
    fn watches(&self, _flow: usize) -> bool {
        false
    }

    /// A flow that it watches starts.
    fn started(&mut self, _flow: usize, _now: Time) {}

    /// Packets of a flow that it watches were acknowledged or declared lost; `path` is what is known
    /// after that.
    fn heard(&mut self, _flow: usize, _now: Time, _path: &PathModel) {}

    /// What is to be done now: flows, and the algorithms that take over.
    fn decide(&mut self, _now: Time) -> Vec<(usize, Arc<dyn ControllerConfig>)> {
        Vec::new()
    }

    /// When to be asked next, counted from now.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsupervised;

impl Supervisor for Unsupervised {}
