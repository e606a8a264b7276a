//! The link as its owner sees it: a thread that runs until it is stopped.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::clock::monotonic_ns;
use super::course::Course;
use super::forward::Forwarder;
use super::plan::Plan;
use super::port::Port;
use super::stats::Report;

/// What the link did and, of a run that came to its end, what there was to see of it.
pub type Finished = (Report, Option<Course>);

/// A running link. Dropping it stops it.
#[derive(Debug)]
pub struct Emulator {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<Result<Finished>>>,
}

/// What the thread is asked.
#[derive(Debug)]
pub(super) struct Orders {
    stop: AtomicBool,
    /// When the run is to begin, on the monotonic clock; zero while nobody has asked.
    begin_ns: AtomicU64,
    wake: EventFd,
}

impl Orders {
    pub(super) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// When the run is to begin, if that has been asked for.
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

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Emulator {
    /// Forwards every frame between `ports`, towards the client and towards the server, until
    /// stopped. The link is as `plan` has it at first until [`Self::begin`].
    ///
    /// # Errors
    /// An invalid `plan`, or no descriptor left.
    pub fn start(ports: [Port; 2], plan: impl Into<Plan>) -> Result<Self> {
        let plan = plan.into();
        plan.validate()?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let orders =
            Arc::new(Orders { stop: AtomicBool::new(false), begin_ns: AtomicU64::new(0), wake });
        let forwarder = Forwarder::new(ports, plan, orders.clone())?;
        let thread = std::thread::Builder::new().name("link".into()).spawn(|| forwarder.run())?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Begins the run: from now on the plan's times count, its changes happen, and what crosses is
    /// accounted for. Answers when that is, in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    /// When the clock can't be read.
    pub fn begin(&self) -> Result<u64> {
        let now_ns = monotonic_ns()?;
        self.orders.begin_ns.store(now_ns, Ordering::Release);
        self.orders.wake();
        Ok(now_ns)
    }

    /// Stops the link and answers what it did.
    ///
    /// # Errors
    /// When the link failed while it ran.
    pub fn finish(self) -> Result<Report> {
        self.finish_run().map(|(report, _)| report)
    }

    /// Stops the link and answers what it did and, if a run was begun and has come to its end, what
    /// there was to see of it.
    ///
    /// # Errors
    /// When the link failed while it ran.
    pub fn finish_run(mut self) -> Result<Finished> {
        self.ask_to_stop();
        let thread = self.thread.take().expect("finish consumes the emulator; drop has not run");
        thread.join().map_err(|_| anyhow!("the link's thread panicked"))?
    }

    fn ask_to_stop(&self) {
        self.orders.stop.store(true, Ordering::Release);
        self.orders.wake();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
