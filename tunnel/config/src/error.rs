//! The one error type of this crate.

use std::fmt;
use std::path::PathBuf;

/// What is wrong in a configuration file, and where.
///
/// Displayed as `FILE:LINE:COLUMN: KEY: PROBLEM`. It never shows the source line, which may hold
/// something that was pasted into the wrong place, such as a private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as it was named to us.
    pub file: PathBuf,
    /// Line, from 1; `None` when the file as a whole is meant.
    pub line: Option<usize>,
    /// Column in characters, from 1; `None` when the file as a whole is meant.
    pub column: Option<usize>,
    /// The key, as `tunnel.servers[0]`; `None` when no single key is meant.
    pub key: Option<String>,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ConfigError {
    /// The exit code of both programs for a bad configuration (`EX_USAGE` of `sysexits.h`).
    pub const EXIT_CODE: u8 = 64;
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}
