//! The directories of a run.

use std::path::Path;

use super::hosts::Hosts;

/// The directories of a run, and its origins.
#[derive(Debug, Clone, Copy)]
pub struct RunPaths<'a> {
    /// Files that are removed with the run.
    pub scratch: &'a Path,
    /// Files that stay.
    pub directory: &'a Path,
    /// Logs, removed after a valid run.
    pub logs: &'a Path,
    /// Origins in namespaces of their own.
    pub hosts: &'a Hosts,
}
