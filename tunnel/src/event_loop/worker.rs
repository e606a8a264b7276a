//! One event loop on one thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};

use crate::cc_override::{CcOverride, CcOverrideError, CcOverrideResult};
use crate::conn::Conn;
use crate::event_loop::core::Core;
use crate::event_loop::role::Role;
use crate::event_loop::settings::WorkerSettings;
use crate::event_loop::tokens::{
    KIND_DATAGRAMS, KIND_FLOW, KIND_OWN, KIND_ROLE, KIND_SHIFT, KIND_UDP,
};
use crate::fault::Fault;
use crate::flow_end::FlowEnd;
use crate::flow_info::FlowInfo;
use crate::h3_errors::H3_NO_ERROR;
use crate::heartbeat::Heartbeat;
use crate::qlog::{QlogError, QlogSink};
use crate::shared::Shared;
use crate::thread_load::ThreadLoad;
use crate::timer::Timer;
use crate::transport::TunnelConfig;
use crate::udp::RecvBuffers;

/// Events taken from the kernel at a time.
const MAX_EVENTS_PER_POLL: usize = 1024;
/// Receive batches of one port before the connections have their turn.
const MAX_RECEIVE_BATCHES_PER_TURN: usize = 4;
/// Connections from which a busy worker sends in larger bursts: the fewer there are, the more each sends at a time anyway.
const MIN_BUSY_CONNECTIONS: usize = 16;
/// Interval of progress checks.
const PROGRESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Token of the event with which other threads wake the worker.
const WAKER: Token = Token(KIND_OWN << KIND_SHIFT);
/// Token of the timer.
const TIMER: Token = Token(KIND_OWN << KIND_SHIFT | 1);
/// Lower bits of a token: the number of an event source within its kind.
const INDEX_MASK: usize = (1 << KIND_SHIFT) - 1;

/// What a worker is told from outside.
enum WorkerCommand {
    Flows(SyncSender<Vec<FlowInfo>>),
    Drain { deadline: Instant },
    Reload(Box<Update>),
    Trace { connection: String, sink: Option<Arc<QlogSink>>, answer: SyncSender<Traced> },
    OverrideCc { connection: String, change: CcOverride, answer: SyncSender<Turned> },
}

/// Where the trace is; `None` when the worker does not have the connection.
type Traced = Option<Result<PathBuf, QlogError>>;
/// What drives it now; `None` as above.
type Turned = Option<Result<CcOverrideResult, CcOverrideError>>;

/// What a worker makes new connections with after a reload.
struct Update {
    tunnel: TunnelConfig,
    settings: WorkerSettings,
}

/// The rest of the process's hold on a worker.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    waker: Arc<Waker>,
    commands: Sender<WorkerCommand>,
    heartbeat: Arc<Heartbeat>,
}

impl WorkerHandle {
    /// The worker's signs of life.
    pub fn heartbeat(&self) -> Arc<Heartbeat> {
        self.heartbeat.clone()
    }

    /// Wakes the loop; its role gets [`Role::on_wake`].
    pub fn wake(&self) {
        // A failure means that the worker has ended.
        let _ = self.waker.wake();
    }

    /// Makes new connections so from now on; those that exist stay as they are. The role looks for
    /// what is new to it in [`Role::on_wake`].
    pub fn reload(&self, tunnel: TunnelConfig, settings: WorkerSettings) {
        let _ = self.commands.send(WorkerCommand::Reload(Box::new(Update { tunnel, settings })));
        self.wake();
    }

    /// Takes nothing new, lets flows end, and stops at `deadline` at the latest.
    pub fn drain(&self, deadline: Instant) {
        let _ = self.commands.send(WorkerCommand::Drain { deadline });
        self.wake();
    }

    /// Begins the trace of a connection in `sink`, or ends it; `None` when the worker does not have
    /// the connection.
    ///
    /// # Errors
    /// The trace cannot be started or stopped ([`QlogError`]).
    pub fn trace(
        &self,
        connection: &str,
        sink: Option<Arc<QlogSink>>,
        timeout: Duration,
    ) -> Option<Result<PathBuf, QlogError>> {
        let (answer, traced) = std::sync::mpsc::sync_channel(1);
        let connection = connection.to_owned();
        let _ = self.commands.send(WorkerCommand::Trace { connection, sink, answer });
        self.wake();
        traced.recv_timeout(timeout).unwrap_or(Some(Err(QlogError::NoAnswer)))
    }

    /// Changes the congestion control of a connection; `None` when the worker does not have it.
    ///
    /// # Errors
    /// The algorithm was not changed ([`CcOverrideError`]).
    pub fn override_cc(
        &self,
        connection: &str,
        change: &CcOverride,
        timeout: Duration,
    ) -> Option<Result<CcOverrideResult, CcOverrideError>> {
        let (answer, turned) = std::sync::mpsc::sync_channel(1);
        let (connection, change) = (connection.to_owned(), change.clone());
        let _ = self.commands.send(WorkerCommand::OverrideCc { connection, change, answer });
        self.wake();
        turned.recv_timeout(timeout).unwrap_or(Some(Err(CcOverrideError::NoAnswer)))
    }

    /// The worker's flows; empty when it does not answer within `timeout`.
    pub fn flows(&self, timeout: Duration) -> Vec<FlowInfo> {
        let (answer, flows) = std::sync::mpsc::sync_channel(1);
        let _ = self.commands.send(WorkerCommand::Flows(answer));
        self.wake();
        flows.recv_timeout(timeout).unwrap_or_default()
    }
}

/// An event loop with its role, ready to run on a thread.
pub struct Worker<R> {
    poll: Poll,
    timer: Timer,
    commands: Receiver<WorkerCommand>,
    pub(crate) core: Core,
    role: R,
    settings: WorkerSettings,
    draining: Option<Instant>,
    /// Whether it counts as one that has something to do.
    at_work: bool,
    udp_ready: Vec<bool>,
    buffers: RecvBuffers,
    next_tick: Instant,
    heartbeat: Arc<Heartbeat>,
    next_progress_check: Instant,
    /// Whether something did not move at the last check.
    is_stuck: bool,
}

impl<R: Role> Worker<R> {
    /// A worker that is ready to run; `make_role` gets the handle to wake it by.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the role can't start.
    pub fn new(
        index: u8,
        tunnel: TunnelConfig,
        settings: WorkerSettings,
        shared: Arc<Shared>,
        make_role: impl FnOnce(WorkerHandle) -> R,
    ) -> io::Result<(Self, WorkerHandle)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let timer = Timer::new(poll.registry(), TIMER)?;
        let (commands, orders) = channel();
        shared.path_reports.add_worker(waker.clone());
        let heartbeat = Heartbeat::new(Instant::now());
        let handle = WorkerHandle { waker, commands, heartbeat: heartbeat.clone() };
        let registry = poll.registry().try_clone()?;
        let misdelivered = shared.sharing_workers.add_worker(index, handle.waker.clone());
        let mut core = Core::new(registry, index, tunnel, &settings, shared, misdelivered);
        let mut role = make_role(handle.clone());
        role.start(&mut core)?;
        core.shared.begin_work();
        let worker = Self {
            poll,
            timer,
            commands: orders,
            udp_ready: vec![false; core.sockets.ports.len()],
            core,
            role,
            settings,
            draining: None,
            at_work: true,
            buffers: RecvBuffers::default(),
            next_tick: Instant::now(),
            heartbeat,
            next_progress_check: Instant::now(),
            is_stuck: false,
        };
        Ok((worker, handle))
    }

    /// Runs until drained.
    ///
    /// # Errors
    /// Only what makes the loop itself impossible.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(MAX_EVENTS_PER_POLL);
        let mut load = ThreadLoad::of_this_thread();
        loop {
            let busy = !self.core.pending.drive.is_empty() || self.udp_ready.contains(&true);
            if let Err(error) = self.poll.poll(&mut events, busy.then_some(Duration::ZERO)) {
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            self.core.now = Instant::now();
            self.heartbeat.beat(self.core.now);
            self.core.is_busy =
                self.core.conns.len() >= MIN_BUSY_CONNECTIONS && load.is_high(self.core.now);
            for event in &events {
                if catch_unwind(AssertUnwindSafe(|| self.dispatch(event))).is_err() {
                    self.on_panic(event.token());
                }
            }
            self.receive();
            self.handle_deadlines();
            self.tick();
            self.core.apply_selections();
            self.drive();
            if self.finished() {
                return Ok(());
            }
            let role = self.role.next_deadline();
            let pending = &self.core.pending;
            let held = pending.held_packets.next();
            let capped = pending.capped_flows.next();
            let due = [Some(self.next_tick), role, pending.deadlines.next(), held, capped];
            self.timer.arm(due.into_iter().flatten().min(), Instant::now())?;
        }
    }

    fn dispatch(&mut self, event: &mio::event::Event) {
        match (event.token(), event.token().0 >> KIND_SHIFT, event.token().0 & INDEX_MASK) {
            (WAKER, ..) => {
                self.core.take_shared_reports();
                self.core.receive_misdelivered();
                self.run_commands();
            }
            (TIMER, ..) => self.timer.fired(),
            (_, KIND_FLOW, slot) => self.core.on_socket_event(slot, event),
            (_, KIND_DATAGRAMS, slot) => self.core.on_datagram_socket(slot),
            (_, KIND_ROLE, key) => self.role.on_event(&mut self.core, key, event),
            (_, KIND_UDP, port) => {
                self.udp_ready[port] |= event.is_readable();
                if event.is_error() {
                    self.core.on_port_error(port);
                    // It may have come in place of what there is to read.
                    self.udp_ready[port] = true;
                }
                if event.is_writable() {
                    self.core.port_writable(port);
                }
            }
            _ => {}
        }
    }

    /// A panic has interrupted the handling of an event: what the event is for ends.
    fn on_panic(&mut self, token: Token) {
        let (kind, index) = (token.0 >> KIND_SHIFT, token.0 & INDEX_MASK);
        let slot = match kind {
            KIND_FLOW => self.core.flows.get(index).map(|flow| flow.conn.slot),
            KIND_DATAGRAMS => self.core.udp_flows.get(index).map(|flow| flow.conn.slot),
            _ => None,
        };
        self.core.on_panic(slot);
        if kind == KIND_ROLE {
            self.role.on_panic(&mut self.core, index);
        }
    }

    fn run_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                WorkerCommand::Flows(answer) => {
                    let mut flows = self.core.flow_infos();
                    flows.extend(self.role.bypassed_flows());
                    // An error means that the request has timed out.
                    let _ = answer.send(flows);
                }
                WorkerCommand::Drain { deadline } if self.draining.is_none() => {
                    self.draining = Some(deadline);
                    self.core.admission.refusing = true;
                    self.role.drain(&mut self.core);
                }
                WorkerCommand::Drain { .. } => {}
                WorkerCommand::Trace { connection, sink, answer } => {
                    let conns = &mut self.core.conns;
                    let found = conns.iter_mut().find(|(_, conn)| conn.is_called(&connection));
                    let traced = found.map(|(_, conn)| conn.trace(&connection, sink.as_ref()));
                    let _ = answer.send(traced);
                }
                WorkerCommand::OverrideCc { connection, change, answer } => {
                    let now = self.core.now;
                    let conns = &mut self.core.conns;
                    let found = conns.iter_mut().find(|(_, conn)| conn.is_called(&connection));
                    let turned =
                        found.map(|(slot, conn)| (slot, conn.apply_override(&change, now)));
                    if let Some((slot, Ok(_))) = &turned {
                        // Another window may let more be sent now.
                        self.core.mark_pending(*slot);
                    }
                    let _ = answer.send(turned.map(|(_, turned)| turned));
                }
                WorkerCommand::Reload(update) => {
                    let Update { tunnel, settings } = *update;
                    self.core.reload(tunnel, &settings);
                    self.settings = settings;
                }
            }
        }
        self.role.on_wake(&mut self.core);
    }

    fn receive(&mut self) {
        for port in 0..self.udp_ready.len() {
            for _ in 0..MAX_RECEIVE_BATCHES_PER_TURN {
                if !self.udp_ready[port] {
                    break;
                }
                self.udp_ready[port] = self.core.receive(port, &mut self.buffers);
            }
        }
    }

    fn handle_deadlines(&mut self) {
        // A packet may be released a little before its time, so it may be due already.
        while let Some(slot) = self.core.pending.deadlines.pop(self.core.now) {
            let now = self.core.now;
            let due = |conn: &&mut Conn| conn.timeout().is_some_and(|at| at <= now);
            self.core.isolated(slot, |core| {
                core.inject_fault(slot, Fault::Timer);
                if let Some(conn) = core.conns.get_mut(slot).filter(due) {
                    conn.quic.on_timeout();
                    conn.pending.had_input = true;
                }
            });
            self.core.mark_pending(slot);
        }
        while let Some(slot) = self.core.pending.held_packets.pop(self.core.now) {
            let conn = self.core.udp_flows.get(slot).map(|flow| flow.conn.slot);
            if let Some(conn) = conn {
                self.core.isolated(conn, |core| core.release_held_packets(slot));
            }
        }
        while let Some(slot) = self.core.pending.capped_flows.pop(self.core.now) {
            self.core.queue_flow(slot);
        }
    }

    /// Everything that needs no better resolution than [`Core::TICK`].
    fn tick(&mut self) {
        let now = self.core.now;
        if now >= self.next_tick {
            self.next_tick = now + Core::TICK;
            let WorkerSettings {
                flow_idle_timeout,
                half_close_timeout,
                udp_idle_timeout,
                keepalive,
                ..
            } = self.settings;
            self.core.end_silent_datagrams(udp_idle_timeout, self.draining.is_some());
            self.core.end_flows(|flow| {
                let timeout =
                    if flow.half_closed() { half_close_timeout } else { flow_idle_timeout };
                (now.saturating_duration_since(flow.traffic.active) > timeout)
                    .then_some(FlowEnd::Idle)
            });
            self.core.end_vanished();
            self.core.on_tick();
            if let Some(interval) = keepalive {
                self.core.keep_alive(interval);
            }
            if let Some(timeout) = self.settings.handshake_timeout {
                self.core.end_handshakes(timeout);
            }
            self.role.on_tick(&mut self.core, now);
            self.check_progress(now);
        } else if self.role.next_deadline().is_some_and(|at| at <= now) {
            self.role.on_tick(&mut self.core, now);
        }
    }

    /// Reports whether data makes progress.
    fn check_progress(&mut self, now: Instant) {
        if now < self.next_progress_check {
            return;
        }
        self.next_progress_check = now + PROGRESS_CHECK_INTERVAL;
        let stuck = self.core.stuck();
        if let Some(problem) = &stuck
            && !self.is_stuck
        {
            tracing::warn!(problem, "data transfer stalled");
        }
        if stuck.is_some() || self.is_stuck {
            self.is_stuck = stuck.is_some();
            self.heartbeat.set_stuck(stuck);
        }
    }

    /// One turn for each connection with work to do, and the role's handling of the resulting
    /// events.
    fn drive(&mut self) {
        let mut turns = self.core.pending.drive.len();
        loop {
            while turns > 0 {
                turns -= 1;
                let Some(slot) = self.core.pending.drive.pop_front() else { break };
                self.core.isolated(slot, |core| {
                    core.inject_fault(slot, Fault::Drive);
                    core.inject_fault(slot, Fault::Stall);
                    core.pump_probes(slot);
                    core.drive(slot);
                });
            }
            self.core.send_outboxes();
            if self.core.pending.events.is_empty() {
                return;
            }
            while let Some(notice) = self.core.pending.events.pop_front() {
                let id = notice.conn();
                let (role, core) = (&mut self.role, &mut self.core);
                if catch_unwind(AssertUnwindSafe(|| role.on_tunnel_event(core, notice))).is_err() {
                    let conn = id.and_then(|id| self.core.conn(id));
                    let slot = conn.map(|conn| conn.id.slot);
                    self.core.on_panic(slot);
                }
            }
            turns = self.core.pending.drive.len();
        }
    }

    fn finished(&mut self) -> bool {
        let Some(deadline) = self.draining else { return false };
        let over = self.core.now >= deadline;
        if over {
            self.core.end_flows(|_| Some(FlowEnd::Drained));
            self.core.end_datagram_flows(|_| Some(FlowEnd::Drained));
        }
        let busy = self.core.flow_count() > 0 || self.role.pending() > 0 || self.core.unsent();
        match (self.at_work, busy) {
            (true, false) => self.core.shared.end_work(),
            (false, true) => self.core.shared.begin_work(),
            _ => {}
        }
        self.at_work = busy;
        // All end together. Packets are given to the sockets of an address by their connection's
        // worker, counted in the order of the sockets: when one goes, those of others change theirs.
        if !over && !self.core.shared.all_done() {
            return false;
        }
        let open: Vec<_> = self.core.conns.iter().map(|(_, conn)| conn.id).collect();
        for id in open {
            self.core.close(id, H3_NO_ERROR, b"");
        }
        self.drive();
        true
    }
}
