//! A flow's admission.

use crate::datagrams::UnansweredPlace;
use crate::shared::Admission;

/// What a flow was admitted as.
#[derive(Debug)]
pub enum Admitted {
    /// A flow that counts as one.
    Flow(Admission),
    /// A UDP flow without a reply so far.
    Unanswered(UnansweredPlace),
}

impl Admitted {
    /// Whether no reply has come yet.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }
}
