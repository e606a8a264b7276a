//! How far it is and how long it will take: a bar on a terminal, a line now and then in a log.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// Time between two lines in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(30);
/// Running jobs that a line names.
const MAX_NAMED: usize = 2;

pub(crate) struct RunProgress {
    what: &'static str,
    bar: Option<ProgressBar>,
    begin: Instant,
    counts: Mutex<ProgressCounts>,
}

/// Jobs and their weights, which are about proportional to their times.
struct ProgressCounts {
    runs: usize,
    done: usize,
    weight: u64,
    done_weight: u64,
    /// What runs, by number, and since when.
    running: BTreeMap<usize, (String, Duration)>,
    /// Time of the next line.
    next_line: Duration,
}

impl RunProgress {
    /// `weights`: of all runs.
    pub(crate) fn new(
        what: &'static str,
        weights: impl ExactSizeIterator<Item = u64>,
    ) -> Result<Self> {
        let runs = weights.len();
        let weight = weights.sum();
        let bar = match stderr().is_terminal() {
            true => {
                let template = format!("{what} [{{wide_bar}}] {{percent:>3}} %, {{eta}} left");
                let style = ProgressStyle::with_template(&template)?.progress_chars("=> ");
                let bar = ProgressBar::new(weight).with_style(style);
                bar.enable_steady_tick(Duration::from_millis(500));
                Some(bar)
            }
            false => None,
        };
        let counts = Mutex::new(ProgressCounts::new(runs, weight));
        let progress = Self { what, bar, begin: Instant::now(), counts };
        progress.write(&format!("{what}: {}", runs_of(runs)));
        Ok(progress)
    }

    /// Job `number` begins.
    pub(crate) fn begin(&self, number: usize, what: String) {
        let now = self.begin.elapsed();
        self.with_counts(|counts| _ = counts.running.insert(number, (what, now)));
    }

    /// Job `number` has ended.
    pub(crate) fn end(&self, number: usize, weight: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(weight);
        }
        self.with_counts(|counts| {
            counts.running.remove(&number);
            counts.done += 1;
            counts.done_weight += weight;
        });
    }

    /// Waits for the next job that has ended, and writes lines meanwhile; `None` after the last one.
    pub(crate) fn next<T>(&self, finished: &mpsc::Receiver<T>) -> Option<T> {
        loop {
            match finished.recv_timeout(self.write_when_due()) {
                Ok(finished) => return Some(finished),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Writes a line if it is time, and answers the time until the next one.
    pub(crate) fn write_when_due(&self) -> Duration {
        let now = self.begin.elapsed();
        let (line, next) = self.with_counts(|counts| (counts.line_when_due(now), counts.next_line));
        if let Some(line) = line {
            self.write(&format!("{}: {line}", self.what));
        }
        next.saturating_sub(now)
    }

    /// Does something that writes to the terminal.
    pub(crate) fn suspend<T>(&self, what: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(what),
            None => what(),
        }
    }

    fn write(&self, line: &str) {
        if self.bar.is_none() {
            writeln!(stderr(), "{line}").ok();
        }
    }

    fn with_counts<T>(&self, action: impl FnOnce(&mut ProgressCounts) -> T) -> T {
        action(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl ProgressCounts {
    fn new(runs: usize, weight: u64) -> Self {
        let running = BTreeMap::new();
        Self { runs, done: 0, weight, done_weight: 0, running, next_line: LINE_INTERVAL }
    }

    fn line_when_due(&mut self, now: Duration) -> Option<String> {
        if now < self.next_line {
            return None;
        }
        self.next_line = now + LINE_INTERVAL;
        let mut line = format!("{} of {} done after {}", self.done, runs_of(self.runs), words(now));
        if self.done_weight > 0 {
            let left =
                self.weight.saturating_sub(self.done_weight) as f64 / self.done_weight as f64;
            line.push_str(&format!(", about {} left", words(now.mul_f64(left))));
        }
        let named = self.running.values().take(MAX_NAMED);
        let named =
            named.map(|(what, since)| format!("{what} for {}", words(now.saturating_sub(*since))));
        let named: Vec<_> = named.collect();
        if !named.is_empty() {
            line.push_str(&format!("; running: {}", named.join(", ")));
        }
        if self.running.len() > MAX_NAMED {
            line.push_str(&format!(" and {} more", self.running.len() - MAX_NAMED));
        }
        Some(line)
    }
}

fn runs_of(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

/// `45 s`, `3 min 20 s`, `2 h 5 min`.
fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn lines_say_what_runs_for_how_long_and_how_much_is_left() {
        let mut counts = ProgressCounts::new(5, 50);
        counts.running.insert(0, ("a 0000-r00".to_owned(), S(0)));
        assert_eq!(counts.line_when_due(S(29)), None);
        assert_eq!(
            counts.line_when_due(S(30)).unwrap(),
            "0 of 5 runs done after 30 s; running: a 0000-r00 for 30 s"
        );
        assert_eq!(counts.line_when_due(S(59)), None, "the next one is due at 60 s");
        counts.running.remove(&0);
        (counts.done, counts.done_weight) = (1, 20);
        for number in 1..4 {
            counts.running.insert(number, (format!("b {number}"), S(100)));
        }
        assert_eq!(
            counts.line_when_due(S(140)).unwrap(),
            "1 of 5 runs done after 2 min 20 s, about 3 min 30 s left; running: b 1 for 40 s, b 2 for 40 s and 1 more"
        );
    }

    #[test]
    fn times_are_in_hours_minutes_and_seconds() {
        assert_eq!(
            [words(S(59)), words(S(61)), words(S(7_500))],
            ["59 s", "1 min 1 s", "2 h 5 min"]
        );
    }
}
