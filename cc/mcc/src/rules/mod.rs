//! What decides: rules, and how they are written.

mod lua;

pub use lua::{LuaRules, RulesError};

use serde::Serialize;

use crate::Facts;

/// What rules chose, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Name of an algorithm.
    pub algorithm: String,
    /// In the rules' own words.
    pub reason: Option<String>,
}

/// Say which algorithm suits a connection.
pub trait Rules {
    /// The choice; `None` leaves the connection as it is.
    ///
    /// # Errors
    /// What went wrong, in one line. The connection stays as it is.
    fn select(&mut self, facts: &Facts) -> Result<Option<Choice>, String>;
}
