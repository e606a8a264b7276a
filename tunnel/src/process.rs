//! The life of a process: workers, signals, and an orderly end.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};

use crate::admin::{FlowInfo, FlowSource};
use crate::role::Role;
use crate::worker::{Worker, WorkerHandle};

/// How long a worker may take to list its flows.
const LIST_PATIENCE: Duration = Duration::from_millis(500);
/// How much longer than the drain time-out a worker may take to end.
const END_PATIENCE: Duration = Duration::from_secs(2);

enum Event {
    Signal(Signal),
    Ended(io::Result<()>),
}

/// The workers of a process.
pub struct Process {
    events: Receiver<Event>,
    sender: Sender<Event>,
    handles: Vec<WorkerHandle>,
}

impl Process {
    /// Takes the signals that end a process out of the default handling. To be called before any
    /// other thread is started: they inherit it.
    ///
    /// # Errors
    /// When the system refuses a signal mask or a thread.
    pub fn new() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        signals.thread_block()?;
        let (sender, events) = channel();
        let signal_sender = sender.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while let Ok(signal) = signals.wait() {
                if signal_sender.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { events, sender, handles: Vec::new() })
    }

    /// Runs a worker on a thread of its own.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn spawn<R: Role + Send + 'static>(
        &mut self,
        worker: Worker<R>,
        handle: WorkerHandle,
    ) -> io::Result<()> {
        let sender = self.sender.clone();
        let name = format!("worker-{}", self.handles.len());
        self.handles.push(handle);
        thread::Builder::new().name(name).spawn(move || {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run()))
                .unwrap_or_else(|_| Err(io::Error::other("worker panicked")));
            // A failure means that the process is about to end anyway.
            let _ = sender.send(Event::Ended(ended));
        })?;
        Ok(())
    }

    /// The flows of all workers, for the admin listener.
    pub fn flow_source(&self) -> Box<dyn FlowSource> {
        Box::new(Flows(self.handles.clone()))
    }

    /// Waits for SIGTERM or SIGINT, then for the flows to end, at most `drain_timeout`; a second
    /// signal ends the wait. The exit code says whether all went in order.
    pub fn run(self, drain_timeout: Duration) -> ExitCode {
        let mut running = self.handles.len();
        let mut deadline: Option<Instant> = None;
        while running > 0 {
            let event = match deadline {
                None => self.events.recv().ok(),
                Some(at) => {
                    let patience = at.saturating_duration_since(Instant::now()) + END_PATIENCE;
                    self.events.recv_timeout(patience).ok()
                }
            };
            match event {
                Some(Event::Signal(signal)) => {
                    let again = deadline.is_some();
                    let at = Instant::now() + if again { Duration::ZERO } else { drain_timeout };
                    tracing::info!(signal = signal.as_str(), again, "draining");
                    if again {
                        return ExitCode::FAILURE;
                    }
                    deadline = Some(at);
                    for handle in &self.handles {
                        handle.drain(at);
                    }
                }
                Some(Event::Ended(Ok(()))) => running -= 1,
                Some(Event::Ended(Err(error))) => {
                    tracing::error!(%error, "a worker failed");
                    return ExitCode::FAILURE;
                }
                None => {
                    tracing::error!("a worker did not end in time");
                    return ExitCode::FAILURE;
                }
            }
        }
        tracing::info!("drained");
        ExitCode::SUCCESS
    }
}

struct Flows(Vec<WorkerHandle>);

impl FlowSource for Flows {
    fn flows(&self) -> Vec<FlowInfo> {
        self.0.iter().flat_map(|worker| worker.flows(LIST_PATIENCE)).collect()
    }
}
