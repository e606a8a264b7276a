//! The sink of a sweep: flows with a thread that reads them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use anyhow::{Result, bail};
use millrace_lab::netns::Namespace;

use super::segments::SegmentTime;
use super::viewer_settings::ViewerSettings;
use super::viewer_thread::{ViewerState, ViewerThread};

/// Running flows; closed when dropped.
#[derive(Debug)]
pub struct Viewers {
    state: Arc<ViewerState>,
    thread: Option<JoinHandle<Result<Vec<SegmentTime>>>>,
}

impl Viewers {
    /// Begins to open flows from `host`.
    ///
    /// # Errors
    /// When the namespace is gone, or the thread can't be started.
    pub fn start(host: &Namespace, settings: ViewerSettings) -> Result<Self> {
        let state = Arc::new(ViewerState::of(settings.count));
        let (handle, shared) = (host.handle()?, Arc::clone(&state));
        // The name is that of the other benches' sink.
        let thread = std::thread::Builder::new()
            .name("sink".to_owned())
            .spawn(move || ViewerThread::new(&handle, settings, shared)?.run())?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Whether all flows have come up or failed.
    ///
    /// # Errors
    /// When the thread has ended, with its reason.
    pub fn is_open(&mut self) -> Result<bool> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            self.join()?;
            bail!("the sink's thread has ended");
        }
        Ok(self.state.is_open.load(Ordering::Relaxed))
    }

    /// Starts the load.
    pub fn begin(&self) {
        self.state.begin.store(true, Ordering::Relaxed);
    }

    /// Flows through which a byte has come.
    pub fn up(&self) -> usize {
        self.state.up.load(Ordering::Relaxed)
    }

    /// Those of them that have ended.
    pub fn ended(&self) -> usize {
        self.state.ended.load(Ordering::Relaxed)
    }

    /// Bytes received so far, by flow.
    pub fn received(&self) -> Vec<u64> {
        self.state.received.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Closes the flows and answers the times of their segments.
    ///
    /// # Errors
    /// The thread's.
    pub fn finish(mut self) -> Result<Vec<SegmentTime>> {
        self.state.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    fn join(&mut self) -> Result<Vec<SegmentTime>> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => bail!("the sink's thread panicked"),
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        self.join().ok();
    }
}
