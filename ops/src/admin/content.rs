//! What the admin listener shows.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_mcc::Explained;
use millrace_tunnel::cc_override::{CcOverride, CcOverrideError, CcOverrideResult};
use millrace_tunnel::ended_flows::EndedFlow;
use millrace_tunnel::flow_info::FlowInfo;
use millrace_tunnel::metrics::Metrics;
use millrace_tunnel::qlog::{QlogError, TraceInfo};

use super::access::Access;
use super::program::StartedProgram;

/// The source of flows and traces.
pub trait FlowSource: Send + Sync {
    /// The flows now, in any order. It may block, on a thread of the admin listener, but must come
    /// back within a second or so by itself.
    fn flows(&self) -> Vec<FlowInfo>;

    /// The flows that ended last, the latest first. It must not block.
    fn ended_flows(&self) -> Vec<EndedFlow> {
        Vec::new()
    }

    /// The traces that run.
    ///
    /// # Errors
    /// There can be none.
    fn traces(&self) -> Result<Vec<TraceInfo>, QlogError> {
        Err(QlogError::NotConfigured)
    }

    /// Begins or ends the trace of a connection; its file.
    ///
    /// # Errors
    /// The trace cannot be started or stopped ([`QlogError`]).
    fn trace(&self, _connection: &str, _on: bool) -> Result<PathBuf, QlogError> {
        Err(QlogError::NotConfigured)
    }

    /// Changes a connection's congestion control.
    ///
    /// # Errors
    /// The algorithm was not changed ([`CcOverrideError`]).
    fn override_cc(
        &self,
        _connection: &str,
        _steering: &CcOverride,
    ) -> Result<CcOverrideResult, CcOverrideError> {
        Err(CcOverrideError::NoConnection)
    }

    /// The input and the choice of the rules for a connection; `None` when they don't select its
    /// algorithm.
    fn explain(&self, _connection: &str) -> Option<Explained> {
        None
    }
}

/// The answer to `/healthz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// 200: flows are carried.
    Healthy,
    /// 503, with the reason in one line.
    Unhealthy(String),
}

/// Says whether this process carries flows; it must not block.
pub type HealthSource = Box<dyn Fn() -> Health + Send + Sync>;

/// The answers to `/healthz` and `/livez`.
pub struct Checks {
    /// Whether flows are carried, and move.
    pub health: HealthSource,
    /// Whether the process works, whatever its peers and paths do: otherwise it has to be restarted.
    pub liveness: HealthSource,
}

/// What the admin listener shows.
pub(super) struct AdminContent {
    pub(super) program: StartedProgram,
    pub(super) metrics: Arc<Metrics>,
    pub(super) flows: Box<dyn FlowSource>,
    pub(super) checks: Checks,
    pub(super) access: Access,
}
