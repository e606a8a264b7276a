//! The page of the demo's sessions. A Node program of `lab/web/` draws it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::checkout;
use crate::process::{must_succeed, run_logged};

/// The built program.
pub const PROGRAM: &str = "lab/web/dist/report.js";

/// The page without sessions, beside the program.
const PAGE: &str = "sessions.html";

/// Reading all sessions takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Draws sessions side by side.
#[derive(Debug)]
pub struct SessionsReport {
    program: PathBuf,
}

impl SessionsReport {
    /// # Errors
    /// When it has not been built.
    pub fn locate(program: &Path) -> Result<Self> {
        let program = checkout::existing(program);
        for file in [&program, &program.with_file_name(PAGE)] {
            if !file.is_file() {
                bail!("{} is missing: `make pages` in the repository builds it", file.display());
            }
        }
        let program = program.canonicalize().with_context(|| program.display().to_string())?;
        Ok(Self { program })
    }

    /// Draws the report of all sessions in `directory`.
    ///
    /// # Errors
    /// When it can't be drawn, or on Ctrl-C.
    pub fn draw(&self, directory: &Path, out: &Path) -> Result<()> {
        let mut command = Command::new("node");
        command.arg(&self.program).arg("--in").arg(directory).arg("--out").arg(out);
        let log = directory.join("report.log");
        let status = run_logged("the report", &mut command, &log, TIMEOUT, |_| Ok(()))?;
        must_succeed("the report", status, &log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_or_page_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("report.js");
        let error = || SessionsReport::locate(&program).unwrap_err().to_string();
        assert!(error().contains("report.js is missing: `make pages`"), "{}", error());
        std::fs::write(&program, "").unwrap();
        assert!(error().contains("sessions.html is missing: `make pages`"), "{}", error());
        std::fs::write(directory.path().join(PAGE), "").unwrap();
        SessionsReport::locate(&program).unwrap();
    }
}
