//! What keeps a configuration from working on this machine, and what to do about it: the
//! sub-command `doctor` of both programs. It changes nothing and binds no port that is configured.

mod certificates;
mod handshake;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millrace_config::{Mcc, Source};
use serde::Serialize;

pub use crate::credentials::End;
use crate::selection::Selection;
pub use certificates::certificates;
pub use handshake::{Wanted, reach};
pub use system::{account, bind_privilege, kernel, limits, sysctl, udp_ports};

/// Which configuration to look at, and how to say what was found.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Configuration file
    #[arg(long)]
    pub config: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How a point was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could.
    Warning,
    /// It does not work.
    Failed,
    /// It could not be looked at.
    Skipped,
}

/// One point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it was found.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order in which they were looked at: what others hang on comes first.
    pub findings: Vec<Finding>,
}

/// What `[mcc]` selects with, if there is any and it can be used; else the report says why not.
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

impl Report {
    fn add(&mut self, check: &str, verdict: Verdict, found: String, remedy: Option<String>) {
        self.findings.push(Finding { check: check.to_owned(), verdict, found, remedy });
    }

    /// A point that is as it should be.
    pub fn ok(&mut self, check: &str, found: impl Into<String>) {
        self.add(check, Verdict::Ok, found.into(), None);
    }

    /// A point that could be better.
    pub fn warn(&mut self, check: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, Verdict::Warning, found.into(), Some(remedy.into()));
    }

    /// A point that keeps it from working.
    pub fn fail(&mut self, check: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, Verdict::Failed, found.into(), Some(remedy.into()));
    }

    /// A point that could not be looked at; `remedy` is how it could.
    pub fn skip(&mut self, check: &str, found: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, Verdict::Skipped, found.into(), Some(remedy.into()));
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for Finding { check, verdict, found, remedy } in &self.findings {
            let mark = match verdict {
                Verdict::Ok => "ok     ",
                Verdict::Warning => "warning",
                Verdict::Failed => "FAILED ",
                Verdict::Skipped => "skipped",
            };
            text.push_str(&format!("{mark}  {check}: {found}\n"));
            if let Some(remedy) = remedy {
                text.push_str(&format!("         -> {remedy}\n"));
            }
        }
        let [failed, warnings] = [Verdict::Failed, Verdict::Warning].map(|it| self.count(it));
        text.push_str(&format!("{failed} failed, {warnings} warnings\n"));
        text
    }

    /// Prints it. The exit code is 1 when a point failed, else 0.
    ///
    /// # Errors
    /// JSON can't be made of it.
    pub fn print(&self, json: bool) -> anyhow::Result<ExitCode> {
        match json {
            true => println!("{}", serde_json::to_string_pretty(self)?),
            false => print!("{}", self.text()),
        }
        Ok(if self.count(Verdict::Failed) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_is_one_line_with_what_to_do_below() {
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
