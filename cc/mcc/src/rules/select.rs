//! The interface of rules.

use serde::Serialize;

use crate::RuleInput;

/// Result of the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Name of an algorithm.
    pub algorithm: String,
    /// Reason in the words of the rules.
    pub reason: Option<String>,
}

/// Rules that select the algorithm of a connection.
pub trait SelectionRules {
    /// Selects an algorithm; `None` keeps the algorithm in use.
    ///
    /// # Errors
    /// The failure in one line. The connection keeps its algorithm.
    fn select(&mut self, input: &RuleInput) -> Result<Option<Choice>, String>;
}
