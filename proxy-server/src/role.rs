//! The server's part of an event loop: requests become connections to destinations.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use millrace_cc::registry::Algorithm;
use millrace_config::{Acl, Class, Dial};
use millrace_tunnel::algorithms::{Algorithms, Selectable};
use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::{Core, RelayStart};
use millrace_tunnel::flow::FlowLabel;
use millrace_tunnel::metrics::{FlowFailure, Parser};
use millrace_tunnel::role::{Notice, Role};
use millrace_tunnel::shared::Admission;
use millrace_tunnel::socket::Socket;
use millrace_tunnel::streams::{failure_metric, fields_of};
use millrace_tunnel::udp::UdpPort;
use millrace_tunnel::worker::WorkerHandle;
use millrace_wire::h3_connect::{self, ConnectRequest, H3_MESSAGE_ERROR};
use millrace_wire::{ConnectFailure, Destination};
use mio::event::Event;
use mio::net::TcpStream;
use quiche::h3;

use crate::dial::{Dialer, Progress, interleave};
use crate::resolve::{Resolved, Resolver};

/// Attempts of one dialler are told apart in the lower bits of their token's key.
const ATTEMPT_BITS: u32 = 4;

/// What all workers of a server use.
#[derive(Clone)]
pub struct ServerShared {
    /// Where flows may go.
    pub acl: Arc<Acl>,
    /// How destinations are connected to.
    pub dial: Dial,
    /// For destinations with a name.
    pub resolver: Resolver,
    /// The congestion control of each class.
    pub algorithms: Arc<Algorithms>,
    /// What flows may ask for instead.
    pub selectable: Arc<Selectable>,
}

enum Stage {
    Resolving,
    Dialing(Dialer),
    /// Connected, but the answer found no room in the connection yet.
    Answering(TcpStream),
    /// Failed, and the same.
    Refusing(ConnectFailure),
}

/// A request that is not a flow yet.
struct Pending {
    conn: ConnId,
    stream: u64,
    label: FlowLabel,
    admission: Admission,
    /// Whether the client has ended its direction already.
    client_ended: bool,
    deadline: Instant,
    stage: Stage,
}

/// See the module.
pub struct ServerRole {
    shared: ServerShared,
    ports: Vec<UdpPort>,
    pending: HashMap<u64, Pending>,
    next_key: u64,
    answers: Receiver<Resolved>,
    answer_to: Sender<Resolved>,
    handle: WorkerHandle,
    draining: bool,
}

impl ServerRole {
    /// A role that takes connections on `ports`.
    pub fn new(shared: ServerShared, ports: Vec<UdpPort>, handle: WorkerHandle) -> Self {
        let (answer_to, answers) = channel();
        Self {
            shared,
            ports,
            pending: HashMap::new(),
            next_key: 0,
            answers,
            answer_to,
            handle,
            draining: false,
        }
    }

    fn on_request(&mut self, core: &mut Core, conn: ConnId, stream: u64, fields: &[h3::Header]) {
        let request = match h3_connect::parse_request(fields_of(fields)) {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(conn = conn.number(), %error, "bad request");
                core.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                if error.is_malformed() {
                    core.reset_stream(conn, stream, H3_MESSAGE_ERROR);
                } else {
                    let status = error.status().to_string();
                    // Without room for it the client's own time-out has to do.
                    let field = h3::Header::new(b":status", status.as_bytes());
                    let _ = core.respond(conn, stream, &[field], true);
                }
                return;
            }
        };
        let key = self.next_key;
        self.next_key += 1;
        let Some(admission) = core.shared.admit_flow().filter(|_| !self.draining) else {
            // Not worth a place in the table: when the table is full, answers are best effort.
            let fields = failure_fields(ConnectFailure::Overloaded);
            if core.respond(conn, stream, &fields, true).is_err() {
                core.reset_stream(conn, stream, H3_MESSAGE_ERROR);
            }
            return;
        };
        let Some(client_ended) = core.own_stream(conn, stream, key) else { return };
        let now = core.now();
        let ConnectRequest { destination, class, congestion_control, client_address } = request;
        let class = class_of(class.as_deref());
        let algorithm = self.choose(core, class, congestion_control);
        core.steer(conn, Some(stream), &algorithm);
        self.pending.insert(
            key,
            Pending {
                conn,
                stream,
                label: FlowLabel {
                    client: client_address,
                    destination: destination.to_string(),
                    class,
                },
                admission,
                client_ended,
                deadline: now + self.shared.dial.timeout,
                stage: Stage::Resolving,
            },
        );
        match destination {
            Destination::Address(address) => self.dial(core, key, &[address]),
            Destination::Name { host, port } => {
                let answer = self.answer_to.clone();
                if !self.shared.resolver.ask(key, host, port, answer, self.handle.clone()) {
                    self.refuse(core, key, ConnectFailure::Overloaded);
                }
            }
        }
    }

    /// The algorithm that a flow asks for, if it may have it, else that of its class.
    fn choose(&self, core: &Core, class: Class, wish: Option<String>) -> Algorithm {
        let of_class = || self.shared.algorithms.of(class).clone();
        let Some(name) = wish else { return of_class() };
        if let Some(algorithm) = self.shared.selectable.get(&name) {
            return algorithm.clone();
        }
        let algorithm = of_class();
        core.shared.metrics.congestion_control_refused.inc();
        if self.shared.selectable.is_first_refusal(&name) {
            tracing::warn!(
                asked = name,
                instead = algorithm.name(),
                "a flow may not choose this congestion control; logged once"
            );
        }
        algorithm
    }

    /// Dials those of the addresses that are allowed.
    fn dial(&mut self, core: &mut Core, key: u64, addresses: &[SocketAddr]) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        let mut allowed = Vec::new();
        let mut denied = None;
        for address in addresses {
            // As the kernel dials it: an IPv4-mapped address is an IPv4 address.
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            match self.shared.acl.permits(address.ip(), address.port()) {
                Ok(()) => allowed.push(address),
                Err(error) => denied = denied.or(Some(error)),
            }
        }
        match (allowed.is_empty(), denied) {
            (true, Some(denied)) => {
                tracing::warn!(
                    destination = %pending.label.destination,
                    reason = denied.reason.as_str(),
                    "{denied}"
                );
                core.shared.metrics.destinations_denied.of(denied.reason).inc();
                self.refuse(core, key, ConnectFailure::Forbidden);
            }
            (true, None) => self.refuse(core, key, ConnectFailure::NameNotResolved),
            (false, _) => {
                pending.stage = Stage::Dialing(Dialer::new(interleave(&allowed), core.now()));
                self.advance(core, key);
            }
        }
    }

    fn advance(&mut self, core: &mut Core, key: u64) {
        let now = core.now();
        let Some(pending) = self.pending.get_mut(&key) else { return };
        if now >= pending.deadline && matches!(pending.stage, Stage::Resolving | Stage::Dialing(_))
        {
            self.refuse(core, key, ConnectFailure::TimedOut);
            return;
        }
        if let Stage::Dialing(dialer) = &mut pending.stage {
            let token = |attempt: usize| Core::role_token((key as usize) << ATTEMPT_BITS | attempt);
            let progress = dialer.advance(core.registry(), &self.shared.dial, token, now);
            self.on_progress(core, key, progress);
        }
    }

    fn on_progress(&mut self, core: &mut Core, key: u64, progress: Progress) {
        match progress {
            Progress::Waiting => {}
            Progress::Failed(failure) => self.refuse(core, key, failure),
            Progress::Connected(socket) => {
                if let Some(pending) = self.pending.get_mut(&key) {
                    pending.stage = Stage::Answering(socket);
                    self.answer(core, key);
                }
            }
        }
    }

    fn refuse(&mut self, core: &mut Core, key: u64, failure: ConnectFailure) {
        if let Some(pending) = self.pending.get_mut(&key) {
            tracing::info!(destination = %pending.label.destination, %failure, "flow refused");
            core.shared.metrics.flows_failed.of(failure_metric(failure)).inc();
            pending.stage = Stage::Refusing(failure);
            self.answer(core, key);
        }
    }

    /// Sends the answer, and starts the relay after a good one.
    fn answer(&mut self, core: &mut Core, key: u64) {
        let Some(pending) = self.pending.get(&key) else { return };
        let sent = match &pending.stage {
            Stage::Refusing(failure) => {
                core.respond(pending.conn, pending.stream, &failure_fields(*failure), true)
            }
            Stage::Answering(_) => {
                let fields = [h3::Header::new(b":status", b"200")];
                core.respond(pending.conn, pending.stream, &fields, false)
            }
            Stage::Resolving | Stage::Dialing(_) => return,
        };
        if matches!(sent, Err(h3::Error::StreamBlocked)) {
            return;
        }
        let Some(pending) = self.pending.remove(&key) else { return };
        let Pending { conn, stream, label, admission, client_ended, stage, .. } = pending;
        match (stage, sent) {
            (Stage::Answering(socket), Ok(())) => core.relay(RelayStart {
                conn,
                stream,
                socket: Socket::Tcp(socket),
                known: true,
                label,
                admission,
                confirmed: true,
                stream_finished: client_ended,
                to_stream: Vec::new(),
                to_socket: Vec::new(),
            }),
            (Stage::Answering(socket), Err(_)) => {
                Socket::Tcp(socket).reset();
                core.shared.metrics.flows_failed.of(FlowFailure::PeerReset).inc();
                core.reset_stream(conn, stream, H3_MESSAGE_ERROR);
            }
            (_, Err(_)) => core.reset_stream(conn, stream, H3_MESSAGE_ERROR),
            (_, Ok(())) => {}
        }
    }

    fn drop_pending(&mut self, mut gone: impl FnMut(u64, &Pending) -> bool) {
        self.pending.retain(|key, pending| !gone(*key, pending));
    }
}

impl Role for ServerRole {
    fn start(&mut self, core: &mut Core) -> io::Result<()> {
        for port in self.ports.drain(..) {
            core.add_port(port)?;
        }
        Ok(())
    }

    fn on_event(&mut self, core: &mut Core, key: usize, _event: &Event) {
        let attempt = key & ((1 << ATTEMPT_BITS) - 1);
        let key = (key >> ATTEMPT_BITS) as u64;
        let now = core.now();
        let Some(pending) = self.pending.get_mut(&key) else { return };
        if let Stage::Dialing(dialer) = &mut pending.stage {
            match dialer.on_event(attempt, now) {
                Progress::Waiting => self.advance(core, key),
                progress => self.on_progress(core, key, progress),
            }
        }
    }

    fn on_wake(&mut self, core: &mut Core) {
        while let Ok(Resolved { key, addresses }) = self.answers.try_recv() {
            match addresses {
                Ok(addresses) => self.dial(core, key, &addresses),
                Err(error) => {
                    tracing::debug!(%error, "name not resolved");
                    self.refuse(core, key, ConnectFailure::NameNotResolved);
                }
            }
        }
    }

    fn on_notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Request { conn, stream, fields } => {
                self.on_request(core, conn, stream, &fields);
            }
            Notice::Disconnected { conn, established, reason } => {
                if established {
                    tracing::info!(conn = conn.number(), reason, "connection closed");
                }
                self.drop_pending(|_, pending| pending.conn == conn);
            }
            Notice::StreamFinished { key, .. } => {
                if let Some(pending) = self.pending.get_mut(&key) {
                    pending.client_ended = true;
                }
            }
            Notice::StreamLost { key } => self.drop_pending(|other, _| other == key),
            Notice::Room(conn) => {
                let blocked = self.pending.iter().filter(|(_, pending)| pending.conn == conn);
                let blocked: Vec<_> = blocked.map(|(key, _)| *key).collect();
                for key in blocked {
                    self.answer(core, key);
                }
            }
            Notice::Open(_)
            | Notice::Established(_)
            | Notice::Response { .. }
            | Notice::FlowEnded { .. }
            | Notice::GoingAway(_) => {}
        }
    }

    fn on_tick(&mut self, core: &mut Core, _now: Instant) {
        let keys: Vec<_> = self.pending.keys().copied().collect();
        for key in keys {
            self.advance(core, key);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.pending.values().filter_map(|pending| match &pending.stage {
            Stage::Dialing(dialer) => {
                Some(dialer.next_deadline().map_or(pending.deadline, |at| at.min(pending.deadline)))
            }
            Stage::Resolving => Some(pending.deadline),
            Stage::Answering(_) | Stage::Refusing(_) => None,
        });
        deadlines.min()
    }

    fn drain(&mut self, core: &mut Core) {
        self.draining = true;
        core.go_away();
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }
}

fn failure_fields(failure: ConnectFailure) -> Vec<h3::Header> {
    let fields = h3_connect::failure_fields(failure);
    fields.iter().map(|(name, value)| h3::Header::new(name.as_bytes(), value.as_bytes())).collect()
}

fn class_of(name: Option<&str>) -> Class {
    [Class::Rtsp, Class::Dash]
        .into_iter()
        .find(|class| Some(class.as_str()) == name)
        .unwrap_or_default()
}
