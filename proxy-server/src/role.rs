//! The server's part of an event loop: requests become connections to destinations.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use millrace_config::Class;
use millrace_ops::published::Published;
use millrace_tunnel::admitted::Admitted;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::datagrams::{DatagramsStart, LocalSocket, UdpContent};
use millrace_tunnel::dial::{DialProgress, Dialer, interleave};
use millrace_tunnel::event_loop::Role;
use millrace_tunnel::event_loop::WorkerHandle;
use millrace_tunnel::event_loop::streams::{failure_metric, fields_of};
use millrace_tunnel::event_loop::{Core, RelayStart};
use millrace_tunnel::flow_label::FlowLabel;
use millrace_tunnel::flow_trace::SetupStep;
use millrace_tunnel::local_resources::log_shortage;
use millrace_tunnel::metrics::{self, FlowFailure, Label, Parser};
use millrace_tunnel::probe;
use millrace_tunnel::resolve::{Asker, Name, Question, Resolved};
use millrace_tunnel::rtsp::{Medium, Rtsp};
use millrace_tunnel::socket::Socket;
use millrace_tunnel::tunnel_event::TunnelEvent;
use millrace_tunnel::udp::UdpPort;
use millrace_wire::connect_udp::CAPSULE_PROTOCOL;
use millrace_wire::h3_connect::{
    self, Carries, ConnectRequest, H3_MESSAGE_ERROR, RTSP_FIELD, RTSP_FOLLOWED,
};
use millrace_wire::repair::{self, RepairMethods};
use millrace_wire::{ConnectFailure, Destination};
use mio::event::Event;
use mio::net::TcpStream;
use quiche::h3;
use tracing::field;

use crate::shared::ServerShared;

/// RFC 9114, Section 8.1.
const H3_INTERNAL_ERROR: u64 = 0x102;
/// Attempts of one dialler are told apart in the lower bits of their token's key.
const ATTEMPT_BITS: u32 = 4;

enum RequestState {
    /// The question, once it is asked; dropping it withdraws it.
    Resolving {
        _question: Option<Question>,
    },
    Dialing(Dialer),
    /// Connected, but the answer found no room in the connection yet.
    Answering(TcpStream),
    /// A UDP flow with its socket open, and its medium if it carries one; the answer found no room
    /// in the connection yet.
    AnsweringUdp(LocalSocket, Option<Medium>),
    /// Failed, but the answer found no room in the connection yet.
    Refusing(ConnectFailure),
}

/// A request that is not a flow yet.
struct PendingRequest {
    conn: ConnId,
    stream: u64,
    /// Whether it is a UDP flow.
    udp: bool,
    /// The methods of repair that both ends use.
    repair: RepairMethods,
    label: FlowLabel,
    /// What was asked for, unless that was an address.
    name: Option<String>,
    admission: Admitted,
    /// Whether the client has ended its direction already.
    client_ended: bool,
    /// What the connection is told ahead of the flow: a PROXY header, where one is handed over.
    header: Vec<u8>,
    deadline: Instant,
    stage: RequestState,
}

impl PendingRequest {
    /// Whether its SETUP requests are followed if it is RTSP: not behind an upstream proxy, which would
    /// receive the media.
    fn follows_rtsp(&self, core: &Core) -> bool {
        self.header.is_empty() && core.shared.follows_rtsp()
    }
}

/// The server's role in an event loop.
pub struct ServerRole {
    latest: Published<ServerShared>,
    shared: Arc<ServerShared>,
    ports: Vec<UdpPort>,
    /// How many have ports of the same addresses.
    workers: usize,
    pending: HashMap<u64, PendingRequest>,
    next_key: u64,
    answers: Receiver<Resolved>,
    answer_to: Sender<Resolved>,
    handle: WorkerHandle,
    draining: bool,
}

impl ServerRole {
    /// A role that takes connections on `ports`.
    pub fn new(
        latest: Published<ServerShared>,
        ports: Vec<UdpPort>,
        workers: usize,
        handle: WorkerHandle,
    ) -> Self {
        let (answer_to, answers) = channel();
        Self {
            shared: latest.get(),
            latest,
            ports,
            workers,
            pending: HashMap::new(),
            next_key: 0,
            answers,
            answer_to,
            handle,
            draining: false,
        }
    }

    fn on_request(&mut self, core: &mut Core, conn: ConnId, stream: u64, fields: &[h3::Header]) {
        if probe::is_probe(fields) {
            return core.answer_probe(conn, stream);
        }
        let request = match h3_connect::parse_request(fields_of(fields)) {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(conn = conn.number(), %error, "malformed request");
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
        let mut trace = core.shared.begin_trace(request.trace_parent, core.now());
        if let Some(trace) = &mut trace {
            trace.describe(class_of(request.class.as_deref()), request.destination.port());
        }
        let admission = match self.admit(core, conn, key, &request) {
            Ok(mut admission) => {
                *admission.trace() = trace;
                admission
            }
            Err(failure) => {
                if let Some(trace) = &mut trace {
                    trace.finish(Some(failure_metric(failure).as_str()), core.now());
                }
                // Not worth a place in the table: when the table is full, answers are best effort.
                if core.respond(conn, stream, &failure_fields(failure), true).is_err() {
                    core.reset_stream(conn, stream, H3_MESSAGE_ERROR);
                }
                return;
            }
        };
        let Some(client_ended) = core.own_stream(conn, stream, key) else { return };
        let now = core.now();
        let ConnectRequest {
            carries, destination, class, congestion_control, client_address, ..
        } = request;
        let class = class_of(class.as_deref());
        let choice = self.shared.choose(core, class, congestion_control);
        core.select_cc(conn, Some(stream), &choice, class);
        let repair = match carries {
            Carries::Udp { rtsp_stream, repair, .. } => {
                // Only the client looks at packets. For a flow that is not QUIC it offers no method, so that none is common.
                let content =
                    if rtsp_stream.is_some() { UdpContent::Media } else { UdpContent::Quic };
                core.repair_methods(conn, content).common(repair)
            }
            Carries::Tcp => RepairMethods::default(),
        };
        self.pending.insert(
            key,
            PendingRequest {
                conn,
                stream,
                udp: carries != Carries::Tcp,
                repair,
                label: FlowLabel {
                    client: client_address,
                    destination: destination.to_string(),
                    class,
                },
                name: match &destination {
                    Destination::Name { host, .. } => Some(host.clone()),
                    Destination::Address(_) => None,
                },
                admission,
                client_ended,
                header: Vec::new(),
                deadline: now + self.shared.resolve_timeout,
                stage: RequestState::Resolving { _question: None },
            },
        );
        if let Carries::Udp { rtsp_stream: Some(rtsp), .. } = carries {
            return self.open_medium(core, key, rtsp, &destination);
        }
        match destination {
            Destination::Address(address) => self.dial(core, key, &[address]),
            Destination::Name { host, port } => self.resolve(core, key, &host, port),
        }
    }

    /// Asks for the addresses of a name, unless no address of it could be permitted.
    fn resolve(&mut self, core: &mut Core, key: u64, host: &str, port: u16) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        pending.admission.begin_step(SetupStep::Resolve, core.now());
        let acl = if pending.udp { &self.shared.udp_acl } else { &self.shared.acl };
        if let Err(reason) = acl.may_permit_name(host, port) {
            tracing::warn!(
                destination = %pending.label.destination,
                protocol = if pending.udp { "udp" } else { "tcp" },
                reason = reason.as_str(),
                "destination is denied: no [[destinations.allow]] has the name and the port"
            );
            core.shared.metrics.destinations_denied.of(reason).inc();
            return self.refuse(core, key, ConnectFailure::Forbidden);
        }
        let asker = Asker {
            client: core.conn(pending.conn).and_then(|conn| conn.peer_name()).map(Arc::from),
            viewer: pending.label.client.map(|client| client.ip()),
        };
        let name = Name { host, port, uncached: false };
        let resolver = &self.shared.resolver;
        match resolver.ask(asker, name, key, &self.answer_to, &self.handle) {
            Ok(question) => pending.stage = RequestState::Resolving { _question: Some(question) },
            Err(error) => self.refuse(core, key, ConnectFailure::from(&error)),
        }
    }

    /// A place for what a request asks for. A UDP flow gets a place of a flow without a reply, which may evict the
    /// oldest request; a medium uses the place of its RTSP flow.
    fn admit(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        key: u64,
        request: &ConnectRequest,
    ) -> Result<Admitted, ConnectFailure> {
        if self.draining {
            return Err(ConnectFailure::Overloaded);
        }
        let viewer = request.client_address;
        let admitted = if matches!(request.carries, Carries::Udp { rtsp_stream: None, .. }) {
            core.admit_unanswered_of(conn, viewer, key).map(|(place, evicted)| {
                if let Some(evicted) = evicted {
                    self.refuse(core, evicted, ConnectFailure::Overloaded);
                }
                Admitted::Unanswered { place, trace: None }
            })
        } else {
            core.admit_flow(conn, viewer).map(Admitted::Flow)
        };
        admitted.map_err(|refusal| {
            if core.may_log_refusal() {
                let reason = metrics::Drop::from(refusal).as_str();
                let viewer = viewer.map(field::display);
                tracing::warn!(viewer, reason, "flow refused; similar refusals may not be logged");
            }
            refusal.failure()
        })
    }

    /// Dials those of the addresses that are allowed.
    fn dial(&mut self, core: &mut Core, key: u64, addresses: &[SocketAddr]) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        pending.admission.begin_step(SetupStep::Dial, core.now());
        self.shared.own.refresh(core.now());
        pending.deadline = core.now() + self.shared.dial.timeout;
        let mut allowed = Vec::new();
        let mut denied = None;
        for address in addresses {
            // As the kernel dials it: an IPv4-mapped address is an IPv4 address.
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            let (ip, port) = (address.ip(), address.port());
            let acl = if pending.udp { &self.shared.udp_acl } else { &self.shared.acl };
            let permitted = match &pending.name {
                Some(name) => acl.permits_named(name, ip, port),
                None => acl.permits(ip, port),
            };
            match permitted {
                Ok(()) => allowed.push(address),
                Err(error) => denied = denied.or(Some(error)),
            }
        }
        match (allowed.is_empty(), denied) {
            (true, Some(denied)) => {
                tracing::warn!(
                    destination = %pending.label.destination,
                    protocol = if pending.udp { "udp" } else { "tcp" },
                    reason = denied.reason.as_str(),
                    "{denied}"
                );
                core.shared.metrics.destinations_denied.of(denied.reason).inc();
                self.refuse(core, key, ConnectFailure::Forbidden);
            }
            (true, None) => self.refuse(core, key, ConnectFailure::NameNotResolved),
            (false, _) if pending.udp => self.open_udp(core, key, &allowed),
            (false, _) => {
                let PendingRequest { name, header, label, .. } = pending;
                self.shared.forward(name.as_deref(), &mut allowed, header, label.client);
                pending.stage =
                    RequestState::Dialing(Dialer::new(interleave(&allowed), core.now()));
                self.advance(core, key);
            }
        }
    }

    /// Takes the port that an RTSP flow of the same connection has set up. Its origin has been
    /// permitted with that flow.
    fn open_medium(
        &mut self,
        core: &mut Core,
        key: u64,
        rtsp_stream: u64,
        destination: &Destination,
    ) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        match core.take_reserved(pending.conn, rtsp_stream, destination) {
            Some((socket, medium)) => {
                pending.stage = RequestState::AnsweringUdp(socket, Some(medium));
                self.answer(core, key);
            }
            None => self.refuse(core, key, ConnectFailure::Forbidden),
        }
    }

    /// Opens a socket towards the first address to which that is possible: UDP has no handshake
    /// that would tell which of them answers.
    fn open_udp(&mut self, core: &mut Core, key: u64, addresses: &[SocketAddr]) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        let mut failure = ConnectFailure::Internal;
        for peer in interleave(addresses) {
            let same_family = |it: &&IpAddr| it.is_ipv4() == peer.is_ipv4();
            let source = self.shared.dial.bind_source.iter().find(same_family).copied();
            match UdpPort::connect(peer, source) {
                Ok(port) => {
                    pending.stage =
                        RequestState::AnsweringUdp(LocalSocket::Own { port, peer }, None);
                    return self.answer(core, key);
                }
                Err(error) => {
                    log_shortage(&error, peer);
                    failure = ConnectFailure::from(&error);
                }
            }
        }
        self.refuse(core, key, failure);
    }

    fn advance(&mut self, core: &mut Core, key: u64) {
        let now = core.now();
        let Some(pending) = self.pending.get_mut(&key) else { return };
        if now >= pending.deadline {
            let failure = match pending.stage {
                RequestState::Resolving { .. } => Some(ConnectFailure::NameNotResolved),
                RequestState::Dialing(_) => Some(ConnectFailure::TimedOut),
                RequestState::Answering(_)
                | RequestState::AnsweringUdp(..)
                | RequestState::Refusing(_) => None,
            };
            if let Some(failure) = failure {
                return self.refuse(core, key, failure);
            }
        }
        if let RequestState::Dialing(dialer) = &mut pending.stage {
            let token = |attempt: usize| Core::role_token((key as usize) << ATTEMPT_BITS | attempt);
            let progress = dialer.advance(core.registry(), &self.shared.dial, token, now);
            self.on_progress(core, key, progress);
        }
    }

    fn on_progress(&mut self, core: &mut Core, key: u64, progress: DialProgress) {
        match progress {
            DialProgress::Waiting => {}
            DialProgress::Failed(failure) => self.refuse(core, key, failure),
            DialProgress::Connected(socket) => {
                if let Some(pending) = self.pending.get_mut(&key) {
                    pending.stage = RequestState::Answering(socket);
                    self.answer(core, key);
                }
            }
        }
    }

    fn refuse(&mut self, core: &mut Core, key: u64, failure: ConnectFailure) {
        if let Some(pending) = self.pending.get_mut(&key) {
            tracing::info!(destination = %pending.label.destination, %failure, "flow refused");
            let counted = failure_metric(failure);
            core.shared.metrics.flows_finished.of(counted.into()).inc();
            pending.admission.end_set_up(Some(counted.as_str()), core.now());
            pending.stage = RequestState::Refusing(failure);
            self.answer(core, key);
        }
    }

    /// Sends the answer, and starts the relay after a good one.
    fn answer(&mut self, core: &mut Core, key: u64) {
        let Some(pending) = self.pending.get(&key) else { return };
        let sent = match &pending.stage {
            RequestState::Refusing(failure) => {
                core.respond(pending.conn, pending.stream, &failure_fields(*failure), true)
            }
            RequestState::Answering(_) => {
                let mut fields = vec![h3::Header::new(b":status", b"200")];
                if pending.follows_rtsp(core) {
                    let (name, value) = (RTSP_FIELD.as_bytes(), RTSP_FOLLOWED.as_bytes());
                    fields.push(h3::Header::new(name, value));
                }
                core.respond(pending.conn, pending.stream, &fields, false)
            }
            RequestState::AnsweringUdp(..) => {
                let (name, value) = CAPSULE_PROTOCOL;
                let capsules = h3::Header::new(name.as_bytes(), value.as_bytes());
                let mut fields = vec![h3::Header::new(b":status", b"200"), capsules];
                if !pending.repair.is_empty() {
                    let methods = pending.repair.to_string();
                    fields.push(h3::Header::new(repair::FIELD.as_bytes(), methods.as_bytes()));
                }
                core.respond(pending.conn, pending.stream, &fields, false)
            }
            RequestState::Resolving { .. } | RequestState::Dialing(_) => return,
        };
        if matches!(sent, Err(h3::Error::StreamBlocked)) {
            return;
        }
        let Some(pending) = self.pending.remove(&key) else { return };
        let rtsp = pending.follows_rtsp(core).then(|| Rtsp::Server {
            media_sources: self.shared.media_sources(&pending.label),
            queue: self.shared.interleaved_queue,
        });
        let PendingRequest {
            conn,
            stream,
            label,
            repair,
            mut admission,
            client_ended,
            header,
            stage,
            ..
        } = pending;
        match (stage, sent) {
            (RequestState::Answering(socket), Ok(())) => {
                // Only UDP flows have any other.
                let Admitted::Flow(mut admission) = admission else { return };
                admission.begin_step(SetupStep::FirstByte, core.now());
                core.relay(RelayStart {
                    conn,
                    stream,
                    socket: Socket::tcp(socket),
                    known: true,
                    label,
                    admission,
                    confirmed: true,
                    stream_finished: client_ended,
                    to_stream: Vec::new(),
                    to_socket: header,
                    again: None,
                    rtsp,
                    exchange: None,
                });
            }
            (RequestState::AnsweringUdp(socket, medium), Ok(())) => {
                admission.begin_step(SetupStep::FirstByte, core.now());
                let finished = client_ended;
                // Without it the reason has been logged, and the stream reset.
                let _ = core.start_datagrams(DatagramsStart {
                    conn,
                    stream,
                    socket,
                    label,
                    admission,
                    key,
                    finished,
                    medium,
                    repair,
                });
            }
            (RequestState::Answering(socket), Err(_)) => {
                Socket::tcp(socket).reset();
                core.shared.metrics.flows_finished.of(FlowFailure::PeerReset.into()).inc();
                core.reset_stream(conn, stream, H3_MESSAGE_ERROR);
            }
            (_, Err(_)) => core.reset_stream(conn, stream, H3_MESSAGE_ERROR),
            (_, Ok(())) => {}
        }
    }

    fn drop_pending(&mut self, mut gone: impl FnMut(u64, &PendingRequest) -> bool) {
        self.pending.retain(|key, pending| !gone(*key, pending));
    }
}

impl Role for ServerRole {
    fn start(&mut self, core: &mut Core) -> io::Result<()> {
        for port in self.ports.drain(..) {
            core.add_port(port)?;
        }
        core.share_addresses(self.workers);
        Ok(())
    }

    fn on_event(&mut self, core: &mut Core, key: usize, _event: &Event) {
        let attempt = key & ((1 << ATTEMPT_BITS) - 1);
        let key = (key >> ATTEMPT_BITS) as u64;
        let now = core.now();
        let Some(pending) = self.pending.get_mut(&key) else { return };
        if let RequestState::Dialing(dialer) = &mut pending.stage {
            match dialer.on_event(attempt, now) {
                DialProgress::Waiting => self.advance(core, key),
                progress => self.on_progress(core, key, progress),
            }
        }
    }

    fn on_wake(&mut self, core: &mut Core) {
        self.shared = self.latest.get();
        while let Ok(Resolved { key, result }) = self.answers.try_recv() {
            // It may have been too late, or the client may have gone.
            let waits =
                |pending: &PendingRequest| matches!(pending.stage, RequestState::Resolving { .. });
            if !self.pending.get(&key).is_some_and(waits) {
                continue;
            }
            match result {
                Ok(resolved) => self.dial(core, key, &resolved.addresses),
                Err(error) => {
                    tracing::debug!(%error, "name not resolved");
                    self.refuse(core, key, ConnectFailure::from(&error));
                }
            }
        }
    }

    fn on_tunnel_event(&mut self, core: &mut Core, notice: TunnelEvent) {
        match notice {
            TunnelEvent::Request { conn, stream, fields } => {
                self.on_request(core, conn, stream, &fields);
            }
            TunnelEvent::Disconnected { conn, established, reason } => {
                if established {
                    tracing::info!(conn = conn.number(), reason, "connection closed");
                }
                self.drop_pending(|_, pending| pending.conn == conn);
            }
            TunnelEvent::StreamFinished { key, .. } => {
                if let Some(pending) = self.pending.get_mut(&key) {
                    pending.client_ended = true;
                }
            }
            TunnelEvent::StreamLost { key, .. } => self.drop_pending(|other, _| other == key),
            TunnelEvent::Writable(conn) => {
                let blocked = self.pending.iter().filter(|(_, pending)| pending.conn == conn);
                let blocked: Vec<_> = blocked.map(|(key, _)| *key).collect();
                for key in blocked {
                    self.answer(core, key);
                }
            }
            TunnelEvent::Open(_)
            | TunnelEvent::Established(_)
            | TunnelEvent::Token { .. }
            | TunnelEvent::Response { .. }
            | TunnelEvent::FlowEnded { .. }
            | TunnelEvent::DatagramsEnded { .. }
            | TunnelEvent::FlowRetryable(_)
            | TunnelEvent::FlowUnanswered(_)
            | TunnelEvent::MediumSetUp(_)
            | TunnelEvent::MediaOver { .. }
            | TunnelEvent::GoingAway(_) => {}
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
            RequestState::Dialing(dialer) => {
                Some(dialer.next_deadline().map_or(pending.deadline, |at| at.min(pending.deadline)))
            }
            RequestState::Resolving { .. } => Some(pending.deadline),
            RequestState::Answering(_)
            | RequestState::AnsweringUdp(..)
            | RequestState::Refusing(_) => None,
        });
        deadlines.min()
    }

    fn on_panic(&mut self, core: &mut Core, key: usize) {
        if let Some(pending) = self.pending.remove(&((key >> ATTEMPT_BITS) as u64)) {
            core.reset_stream(pending.conn, pending.stream, H3_INTERNAL_ERROR);
        }
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
