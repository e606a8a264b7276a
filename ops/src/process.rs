//! The life of a process: workers, signals, and an orderly end.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use millrace_config::Admin;
use millrace_mcc::Explained;
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;

use crate::admin;
use crate::admin::{AdminServer, Checks, FlowSource, Health, HealthSource, ProgramInfo};
use crate::selection::Explainer;
use crate::watchdog;
use millrace_tunnel::cc_override::{CcOverride, CcOverrideError, CcOverrideResult};
use millrace_tunnel::ended_flows::{EndedFlow, EndedFlows};
use millrace_tunnel::event_loop::Role;
use millrace_tunnel::event_loop::{Worker, WorkerHandle};
use millrace_tunnel::flow_info::FlowInfo;
use millrace_tunnel::heartbeat::{Heartbeat, stopped_worker, unhealthy_worker};
use millrace_tunnel::metrics::{Metrics, ReloadResult};
use millrace_tunnel::qlog::{QlogError, QlogSink, TraceInfo};

/// How long a worker may take to answer a request of the admin API.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// How much longer than the drain time-out a worker may take to end.
const END_GRACE: Duration = Duration::from_secs(2);

enum ProcessEvent {
    Signal(Signal),
    Ended(io::Result<()>),
}

/// Reads the configuration again and passes it to the workers; after an error nothing changes.
/// Returns the new drain time-out.
pub type Reload<'a> = dyn FnMut(&[WorkerHandle]) -> anyhow::Result<Duration> + 'a;

/// The workers of a process.
pub struct Process {
    events: Receiver<ProcessEvent>,
    sender: Sender<ProcessEvent>,
    handles: Vec<WorkerHandle>,
    metrics: Arc<Metrics>,
}

impl Process {
    /// Takes the signals that end a process or reload its configuration out of the default handling.
    /// To be called before any other thread is started: they inherit it.
    ///
    /// # Errors
    /// When the system refuses a signal mask or a thread.
    pub fn new(metrics: Arc<Metrics>) -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGHUP);
        signals.thread_block()?;
        let (sender, events) = channel();
        let signal_sender = sender.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while let Ok(signal) = signals.wait() {
                if signal_sender.send(ProcessEvent::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { events, sender, handles: Vec::new(), metrics })
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
        let (sender, metrics) = (self.sender.clone(), self.metrics.clone());
        let name = format!("worker-{}", self.handles.len());
        self.handles.push(handle);
        thread::Builder::new().name(name).spawn(move || {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run()))
                .unwrap_or_else(|_| {
                    metrics.panics.inc();
                    Err(io::Error::other("worker panicked"))
                });
            // A failure means that the process is about to end anyway.
            let _ = sender.send(ProcessEvent::Ended(ended));
        })?;
        Ok(())
    }

    /// Starts the admin listener that is `bound`, if there is one, with the flows of the workers that
    /// run now and the Selectors beside them.
    ///
    /// # Errors
    /// Its thread can't be started.
    pub fn serve_admin(
        &self,
        bound: Option<admin::BoundListener>,
        config: &Admin,
        program: ProgramInfo,
        ended: Arc<EndedFlows>,
        health: HealthSource,
        explainer: Explainer,
    ) -> io::Result<Option<AdminServer>> {
        let (workers, alive) = (self.heartbeats(), self.heartbeats());
        let checks = Checks {
            health: Box::new(move || match unhealthy_worker(&workers, Instant::now()) {
                Some(reason) => Health::Unhealthy(reason),
                None => health(),
            }),
            liveness: Box::new(move || {
                stopped_worker(&alive, Instant::now()).map_or(Health::Healthy, Health::Unhealthy)
            }),
        };
        let Some(bound) = bound else { return Ok(None) };
        let dir = config.qlog_dir.as_deref();
        let qlog = dir.map(|dir| QlogSink::new(dir, config.qlog_max_bytes));
        let flows = Box::new(WorkerFlows { workers: self.handles.clone(), ended, qlog, explainer });
        let admin = AdminServer::start(bound, program, self.metrics.clone(), flows, checks)?;
        tracing::info!(address = %admin.address(), what = "admin", "listening");
        Ok(Some(admin))
    }

    /// Requests a reload of the configuration, as SIGHUP does, from any thread and any number of times.
    pub fn reload_trigger(&self) -> impl Fn() + Send + use<> {
        let sender = self.sender.clone();
        move || {
            // A failure means that the process is about to end anyway.
            let _ = sender.send(ProcessEvent::Signal(Signal::SIGHUP));
        }
    }

    fn heartbeats(&self) -> Vec<Arc<Heartbeat>> {
        self.handles.iter().map(WorkerHandle::heartbeat).collect()
    }

    /// Reloads at each SIGHUP. Waits for SIGTERM or SIGINT, then for the flows to end, at most
    /// `drain_timeout`; a second signal ends the wait. The exit code says whether all went in order.
    pub fn run(self, mut drain_timeout: Duration, reload: &mut Reload<'_>) -> ExitCode {
        watchdog::notify(&[NotifyState::Ready]);
        watchdog::start(self.heartbeats());
        let mut running = self.handles.len();
        let mut deadline: Option<Instant> = None;
        while running > 0 {
            let event = match deadline {
                None => self.events.recv().ok(),
                Some(at) => {
                    let timeout = at.saturating_duration_since(Instant::now()) + END_GRACE;
                    self.events.recv_timeout(timeout).ok()
                }
            };
            match event {
                Some(ProcessEvent::Signal(Signal::SIGHUP)) if deadline.is_none() => {
                    if let Some(timeout) = self.reload(reload) {
                        drain_timeout = timeout;
                    }
                }
                Some(ProcessEvent::Signal(Signal::SIGHUP)) => {
                    tracing::warn!("not reloaded: the process is draining");
                }
                Some(ProcessEvent::Signal(signal)) => {
                    let again = deadline.is_some();
                    let at = Instant::now() + if again { Duration::ZERO } else { drain_timeout };
                    tracing::info!(signal = signal.as_str(), again, "draining");
                    watchdog::notify(&[NotifyState::Stopping]);
                    if again {
                        return ExitCode::FAILURE;
                    }
                    deadline = Some(at);
                    for handle in &self.handles {
                        handle.drain(at);
                    }
                }
                Some(ProcessEvent::Ended(Ok(()))) => running -= 1,
                Some(ProcessEvent::Ended(Err(error))) => {
                    tracing::error!(%error, "worker failed");
                    return ExitCode::FAILURE;
                }
                None => {
                    tracing::error!("worker did not end in time");
                    return ExitCode::FAILURE;
                }
            }
        }
        tracing::info!("drained");
        ExitCode::SUCCESS
    }

    fn reload(&self, reload: &mut Reload<'_>) -> Option<Duration> {
        watchdog::notify_reloading();
        let outcome = reload(&self.handles);
        watchdog::notify(&[NotifyState::Ready]);
        let result = if outcome.is_ok() { ReloadResult::Done } else { ReloadResult::Refused };
        self.metrics.reloads.of(result).inc();
        match outcome {
            Ok(drain_timeout) => {
                tracing::info!("configuration reloaded");
                Some(drain_timeout)
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "not reloaded; the previous configuration stays in force");
                None
            }
        }
    }
}

struct WorkerFlows {
    workers: Vec<WorkerHandle>,
    ended: Arc<EndedFlows>,
    qlog: Option<Arc<QlogSink>>,
    explainer: Explainer,
}

impl FlowSource for WorkerFlows {
    fn flows(&self) -> Vec<FlowInfo> {
        self.workers.iter().flat_map(|worker| worker.flows(ANSWER_TIMEOUT)).collect()
    }

    fn ended_flows(&self) -> Vec<EndedFlow> {
        self.ended.list(Instant::now())
    }

    fn traces(&self) -> Result<Vec<TraceInfo>, QlogError> {
        Ok(self.qlog.as_ref().ok_or(QlogError::NotConfigured)?.traces())
    }

    fn trace(&self, connection: &str, on: bool) -> Result<PathBuf, QlogError> {
        let sink = self.qlog.as_ref().ok_or(QlogError::NotConfigured)?;
        let sink = on.then(|| sink.clone());
        let ask = |worker: &WorkerHandle| worker.trace(connection, sink.clone(), ANSWER_TIMEOUT);
        self.workers.iter().find_map(ask).unwrap_or(Err(QlogError::NoConnection))
    }

    fn override_cc(
        &self,
        connection: &str,
        change: &CcOverride,
    ) -> Result<CcOverrideResult, CcOverrideError> {
        let ask = |worker: &WorkerHandle| worker.override_cc(connection, change, ANSWER_TIMEOUT);
        self.workers.iter().find_map(ask).unwrap_or(Err(CcOverrideError::NoConnection))
    }

    fn explain(&self, connection: &str) -> Option<Explained> {
        let is_it = |flow: &FlowInfo| flow.connection.as_deref() == Some(connection);
        let flow = self.flows().into_iter().find(is_it)?;
        self.explainer.explain(flow.connection_number())
    }
}
