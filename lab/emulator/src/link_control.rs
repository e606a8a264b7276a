//! Commands to the forwarding thread, and its result.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::link_trace::LinkTrace;
use super::stats::EmulatorReport;

/// The report of the link and, of a run that has ended, its trace.
pub type LinkResult = (EmulatorReport, Option<LinkTrace>);

/// Commands to the forwarding thread.
#[derive(Debug)]
pub(super) struct LinkControl {
    stop: AtomicBool,
    /// When the run is to begin, on the monotonic clock; zero before [`Self::begin`].
    begin_ns: AtomicU64,
    wake: EventFd,
}

impl LinkControl {
    pub(super) fn new() -> Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { stop: AtomicBool::new(false), begin_ns: AtomicU64::new(0), wake })
    }

    /// Begins the run at `now_ns` of the monotonic clock.
    pub(super) fn begin(&self, now_ns: u64) {
        self.begin_ns.store(now_ns, Ordering::Release);
        self.wake();
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// When the run is to begin; `None` before [`Self::begin`].
    pub(super) fn begin_ns(&self) -> Option<u64> {
        Some(self.begin_ns.load(Ordering::Acquire)).filter(|at_ns| *at_ns > 0)
    }

    /// Reads what [`Self::wake`] wrote.
    pub(super) fn woken(&self) {
        // Fails only when there was nothing to read.
        self.wake.read().ok();
    }

    fn wake(&self) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        self.wake.write(1).ok();
    }
}

impl AsFd for LinkControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
