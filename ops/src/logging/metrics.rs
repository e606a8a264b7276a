//! Log lines that were not written.

use std::sync::Mutex;

use prometheus::IntCounter;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::counters::LogCounters;

/// Shows what logging counts itself.
pub(super) struct LogLines {
    counters: LogCounters,
    dropped: IntCounter,
    suppressed: IntCounter,
    /// Two scrapes at once must not reset each other's sums.
    scrape: Mutex<()>,
}

impl LogLines {
    pub(super) fn new(counters: LogCounters) -> prometheus::Result<Self> {
        Ok(Self {
            counters,
            dropped: IntCounter::new(
                "millrace_log_lines_dropped_total",
                "Log lines dropped because standard error was not read in time",
            )?,
            suppressed: IntCounter::new(
                "millrace_log_lines_suppressed_total",
                "Log lines left out because the same message was repeated too often",
            )?,
            scrape: Mutex::default(),
        })
    }
}

impl Collector for LogLines {
    fn desc(&self) -> Vec<&Desc> {
        [&self.dropped, &self.suppressed].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _one = self.scrape.lock();
        self.dropped.reset();
        self.dropped.inc_by(self.counters.dropped());
        self.suppressed.reset();
        self.suppressed.inc_by(self.counters.suppressed());
        [&self.dropped, &self.suppressed].into_iter().flat_map(Collector::collect).collect()
    }
}
