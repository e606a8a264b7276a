//! `[mcc]`.

use millrace_config::{Mcc, Source};

use super::report::Report;
use crate::selection::Selection;

/// Loads what `[mcc]` selects with. If it can't be used, the report says why.
pub fn selection(report: &mut Report, config: Option<&Mcc>, source: &Source) -> Option<Selection> {
    let made = Selection::new(config?, source);
    match &made {
        Ok(_) => report.ok("mcc", "settings and rules can be used"),
        Err(error) => {
            let remedy = "correct it; `millrace-server rules check FILE` looks at rules alone";
            report.fail("mcc", error.to_string(), remedy);
        }
    }
    made.ok()
}
