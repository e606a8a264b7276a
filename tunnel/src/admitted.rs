//! A flow's admission.

use std::time::Instant;

use crate::datagrams::UnansweredPlace;
use crate::flow_trace::{FlowTrace, SetupStep};
use crate::shared::Admission;

/// What a flow was admitted as.
#[derive(Debug)]
pub enum Admitted {
    /// A flow that counts as one.
    Flow(Admission),
    /// A UDP flow without a reply so far.
    Unanswered {
        /// Its place among the flows of this kind.
        place: UnansweredPlace,
        /// The trace of its set-up, if it is sampled and not over yet.
        trace: Option<Box<FlowTrace>>,
    },
}

impl Admitted {
    /// Whether no reply has come yet.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unanswered { .. })
    }

    /// The trace of the flow's set-up, if it is sampled and not over yet.
    pub fn trace(&mut self) -> &mut Option<Box<FlowTrace>> {
        match self {
            Self::Flow(admission) => &mut admission.trace,
            Self::Unanswered { trace, .. } => trace,
        }
    }

    /// The next step of the flow's set-up begins.
    pub fn begin_step(&mut self, step: SetupStep, now: Instant) {
        if let Some(trace) = self.trace() {
            trace.begin(step, now);
        }
    }

    /// The flow's set-up is over, with its first byte or with a failure.
    pub fn end_set_up(&mut self, failure: Option<&'static str>, now: Instant) {
        if let Some(mut trace) = self.trace().take() {
            trace.finish(failure, now);
        }
    }
}
