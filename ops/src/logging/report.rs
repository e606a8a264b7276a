//! Says in the log what the log does not say: dropped lines, and messages that were repeated.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::counters::LogCounters;
use super::limit::{REPORT_TARGET, RateLimit};

/// How often dropped lines are looked for.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often repeated messages are summed up.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(60);
/// Repeated messages that are told one by one each time; the rest is told as a sum.
const MAX_SUMMARIES: usize = 10;

/// A thread that reports. It ends, with a last report, when this is dropped.
#[derive(Debug)]
pub(super) struct Reporter {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    pub(super) fn start(limit: RateLimit, counters: LogCounters) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new()
            .name("log-report".to_owned())
            .spawn(move || report(&limit, &counters, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It never blocks; a panic there has been logged.
            let _ = thread.join();
        }
    }
}

fn report(limit: &RateLimit, counters: &LogCounters, stopped: &Receiver<()>) {
    let mut told_drops = 0;
    let mut due = Instant::now() + SUMMARY_INTERVAL;
    loop {
        let is_over = stopped.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Disconnected);
        told_drops = report_drops(counters, told_drops);
        if is_over || Instant::now() >= due {
            due = Instant::now() + SUMMARY_INTERVAL;
            report_repeated(limit);
        }
        if is_over {
            return;
        }
    }
}

/// Says how many lines were dropped since `told`, where there is room to say it; the new `told`.
fn report_drops(counters: &LogCounters, told: u64) -> u64 {
    let dropped = counters.dropped();
    if dropped == told {
        return told;
    }
    let lines = dropped - told;
    tracing::warn!(
        target: REPORT_TARGET,
        lines,
        "log lines dropped: standard error was not read in time"
    );
    // While the queue is full, this line is dropped too, and said again later.
    if counters.dropped() == dropped { dropped } else { told }
}

fn report_repeated(limit: &RateLimit) {
    let repeated = limit.take_repeated();
    let (told, rest) = repeated.split_at(repeated.len().min(MAX_SUMMARIES));
    for it in told {
        tracing::warn!(
            target: REPORT_TARGET,
            repeated = it.message,
            reason = it.reason,
            "message repeated {} times",
            it.times
        );
    }
    let times: u64 = rest.iter().map(|it| it.times).sum();
    if times > 0 {
        tracing::warn!(target: REPORT_TARGET, "other messages repeated {times} times");
    }
}
