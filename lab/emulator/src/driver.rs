//! The emulated link: a thread that runs until it is stopped.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};

use super::clock::monotonic_ns;
use super::forward::Forwarder;
use super::link_control::{LinkControl, LinkResult};
use super::plan::LinkPlan;
use super::port::Port;
use super::stats::EmulatorReport;

/// A running link. Dropping it stops it.
#[derive(Debug)]
pub struct Emulator {
    control: Arc<LinkControl>,
    thread: Option<JoinHandle<Result<LinkResult>>>,
}

impl Emulator {
    /// Forwards every frame between `ports`, towards the client and towards the server, until
    /// stopped. The link is as `plan` has it at first until [`Self::begin`].
    ///
    /// # Errors
    /// An invalid `plan`, or no descriptor left.
    pub fn start(ports: [Port; 2], plan: impl Into<LinkPlan>) -> Result<Self> {
        let plan = plan.into();
        plan.validate()?;
        let control = Arc::new(LinkControl::new()?);
        let forwarder = Forwarder::new(ports, plan, control.clone())?;
        let thread = std::thread::Builder::new().name("link".into()).spawn(|| forwarder.run())?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// Begins the run: from now on the plan's times count, its changes happen, and what crosses is
    /// accounted for. Answers when that is, in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    /// When the clock can't be read.
    pub fn begin(&self) -> Result<u64> {
        let now_ns = monotonic_ns()?;
        self.control.begin(now_ns);
        Ok(now_ns)
    }

    /// Stops the link and answers its report.
    ///
    /// # Errors
    /// When the link failed while it ran.
    pub fn finish(self) -> Result<EmulatorReport> {
        self.finish_run().map(|(report, _)| report)
    }

    /// Stops the link and answers its report and, if a run was begun and has ended, its trace.
    ///
    /// # Errors
    /// When the link failed while it ran.
    pub fn finish_run(mut self) -> Result<LinkResult> {
        self.ask_to_stop();
        let thread = self.thread.take().expect("finish consumes the emulator; drop has not run");
        thread.join().map_err(|_| anyhow!("the link's thread panicked"))?
    }

    fn ask_to_stop(&self) {
        self.control.stop();
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
