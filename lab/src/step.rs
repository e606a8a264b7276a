//! Progress on a terminal as bars; in a log as a line for each step.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// A step of a long task, shown until it is dropped.
#[derive(Debug)]
pub struct ProgressStep {
    bar: ProgressBar,
}

impl ProgressStep {
    /// Begins a step. With `expected`, its bar fills over that time.
    ///
    /// # Errors
    /// Never in practice: the templates are constant.
    pub fn begin(what: &str, expected: Option<Duration>) -> Result<Self> {
        if !stderr().is_terminal() {
            writeln!(stderr(), "{what}").ok();
            return Ok(Self { bar: ProgressBar::hidden() });
        }
        let bar = match expected {
            Some(expected) => ProgressBar::new(expected.as_secs()).with_style(
                ProgressStyle::with_template("{msg:44} [{wide_bar}] {pos:>4}/{len} s")?
                    .progress_chars("=> "),
            ),
            None => ProgressBar::new_spinner()
                .with_style(ProgressStyle::with_template("{msg:44} {spinner} {elapsed}")?),
        };
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Ok(Self { bar })
    }

    /// Shows how far it is.
    pub fn at(&self, elapsed: Duration) {
        let most = self.bar.length().unwrap_or(u64::MAX);
        self.bar.set_position(elapsed.as_secs().min(most));
    }
}

impl Drop for ProgressStep {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
