//! Log lines that were not written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_appender::non_blocking::ErrorCounter;

/// Lines that were not written.
#[derive(Clone, Debug)]
pub struct LogCounters {
    pub(super) queue_full: ErrorCounter,
    pub(super) suppressed: Arc<AtomicU64>,
}

impl LogCounters {
    /// Lines that found the queue full, because standard error was not read.
    pub fn dropped(&self) -> u64 {
        self.queue_full.dropped_lines() as u64
    }

    /// Lines that the rate limit left out.
    pub fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }
}
