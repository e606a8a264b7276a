//! What `doctor` found.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::output;
use crate::terminal_text::printable;

/// Arguments of the command `doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Configuration file
    #[arg(long)]
    pub config: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could.
    Warning,
    /// It does not work.
    Failed,
    /// The check could not be made.
    Skipped,
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: String,
    /// How it was found.
    pub verdict: CheckVerdict,
    /// What was found.
    pub found: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order of the checks: those that others depend on come first.
    pub findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, check: &str, verdict: CheckVerdict, found: String, remedy: Option<String>) {
        self.findings.push(Finding { check: check.to_owned(), verdict, found, remedy });
    }

    /// Adds a check that passed.
    pub fn ok(&mut self, check: &str, found: impl Into<String>) {
        self.add(check, CheckVerdict::Ok, found.into(), None);
    }

    /// Adds a check that passed with a warning.
    pub fn warn(&mut self, check: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, CheckVerdict::Warning, found.into(), Some(remedy.into()));
    }

    /// Adds a check that failed.
    pub fn fail(&mut self, check: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, CheckVerdict::Failed, found.into(), Some(remedy.into()));
    }

    /// Adds a check that could not be made; `remedy` says how to make it possible.
    pub fn skip(&mut self, check: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, CheckVerdict::Skipped, found.into(), Some(remedy.into()));
    }

    fn count(&self, verdict: CheckVerdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for Finding { check, verdict, found, remedy } in &self.findings {
            let mark = match verdict {
                CheckVerdict::Ok => "ok     ",
                CheckVerdict::Warning => "warning",
                CheckVerdict::Failed => "FAILED ",
                CheckVerdict::Skipped => "skipped",
            };
            text.push_str(&format!("{mark}  {}: {}\n", printable(check), printable(found)));
            if let Some(remedy) = remedy {
                text.push_str(&format!("         -> {}\n", printable(remedy)));
            }
        }
        let [failed, warnings] =
            [CheckVerdict::Failed, CheckVerdict::Warning].map(|it| self.count(it));
        text.push_str(&format!("{failed} failed, {warnings} warnings\n"));
        text
    }

    /// Prints the report. The exit code is 1 when a check failed, otherwise 0.
    ///
    /// # Errors
    /// The report can't be written as JSON.
    pub fn print(&self, json: bool) -> anyhow::Result<ExitCode> {
        match json {
            true => output::line(serde_json::to_string_pretty(self)?)?,
            false => output::bytes(self.text().as_bytes())?,
        }
        Ok(if self.count(CheckVerdict::Failed) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_other_processes_does_not_control_the_terminal() {
        let mut report = Report::default();
        report.fail("port", "\u{1b}[2Jowner\nok", "end \u{7}it");
        let text = report.text();
        assert!(text.starts_with("FAILED   port: ?[2Jowner?ok\n         -> end ?it\n"), "{text}");
    }

    #[test]
    fn each_check_is_one_line_with_its_remedy_below() {
        let mut report = Report::default();
        report.ok("kernel", "6.1");
        report.fail("mark", "not permitted", "start it as root");
        assert_eq!(
            report.text(),
            "ok       kernel: 6.1\nFAILED   mark: not permitted\n         -> start it as root\n\
             1 failed, 0 warnings\n"
        );
    }
}
