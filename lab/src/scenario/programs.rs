//! Programs that scenarios name.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

/// A third-party pair of programs that carries TCP across the link. In its commands and files, names
/// in braces stand for what a flow has: `docs/research/scenarios.md`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerPrograms {
    /// Program and arguments of the server's side; none if there is no such program.
    pub server: Vec<String>,
    /// Program and arguments of the client's side.
    pub client: Vec<String>,
    /// Texts of files that are written for them, by name.
    pub files: Map<String, Value>,
}

/// A congestion controller that is a program of its own: `docs/research/external-controllers.md`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExternalProgram {
    /// Program and arguments.
    pub command: Vec<String>,
    /// How long it may take for an answer.
    pub timeout_s: f64,
    /// Where it runs: the directory of the scenario file.
    #[serde(skip)]
    pub directory: PathBuf,
}
