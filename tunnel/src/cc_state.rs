//! The state of a connection's congestion control. The flow that begins on it, rules while it runs, or an operator can
//! set it.

use std::time::Instant;

use millrace_cc::registry::Algorithm;

use crate::agent::ReportedState;
use crate::flow_info::FlowInfo;

/// A connection's congestion control.
#[derive(Debug)]
pub(crate) struct CcState {
    pub(crate) algorithm: Algorithm,
    /// How often the connection has switched, and when last.
    pub(crate) switches: u64,
    pub(crate) switched: Instant,
    /// An operator set it; flows and rules do not change it.
    pub(crate) pinned: bool,
    /// What has been reported to the Selector.
    pub(crate) watched: Option<ReportedState>,
}

impl CcState {
    pub(crate) fn new(algorithm: Algorithm, now: Instant) -> Self {
        Self { algorithm, switches: 0, switched: now, pinned: false, watched: None }
    }

    /// Whether rules select its algorithm.
    pub(crate) fn managed(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.managed)
    }

    /// Adds it to what `/flows` shows.
    pub(crate) fn shown_in(&self, info: FlowInfo, now: Instant) -> FlowInfo {
        let since = now.saturating_duration_since(self.switched).as_secs_f64();
        FlowInfo {
            algorithm: Some(self.algorithm.name().to_owned()),
            pinned: self.pinned,
            managed: self.managed(),
            switches: Some(self.switches),
            since_switch_s: (self.switches > 0).then_some(since),
            ..info
        }
    }
}
