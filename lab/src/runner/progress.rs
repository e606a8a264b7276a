//! How far it is and how long it will take: a bar on a terminal, nothing in a log.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

pub(super) struct RunProgress {
    bar: ProgressBar,
}

impl RunProgress {
    pub(super) fn new(what: &str, total: u64) -> Result<Self> {
        if !stderr().is_terminal() {
            return Ok(Self { bar: ProgressBar::hidden() });
        }
        let template = format!("{what} [{{wide_bar}}] {{percent:>3}} %, {{eta}} left");
        let style = ProgressStyle::with_template(&template)?.progress_chars("=> ");
        let bar = ProgressBar::new(total).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Ok(Self { bar })
    }

    pub(super) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// Does something that writes to the terminal.
    pub(super) fn suspend<T>(&self, what: impl FnOnce() -> T) -> T {
        self.bar.suspend(what)
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
