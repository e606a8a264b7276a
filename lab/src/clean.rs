//! Removal of the namespaces, processes and files of crashed runs.

use anyhow::Result;

use crate::{netns, run};

/// Ends the processes of crashed runs and removes their namespaces and scratch directories. Runs
/// that are still alive are left alone. Answers the names of what was removed.
///
/// # Errors
/// Without root, or when the state directory can't be read.
pub fn clean() -> Result<Vec<String>> {
    run::require_root()?;
    let mut removed = Vec::new();
    for crashed in run::crashed()? {
        for name in netns::of_run(&crashed.id) {
            netns::remove(&name);
            removed.push(name);
        }
        removed.push(format!("scratch files of {}{}", run::PREFIX, crashed.id));
        crashed.forget();
    }
    Ok(removed)
}
