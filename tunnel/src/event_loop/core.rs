//! What a worker owns: sockets, connections and flows, and how bytes move between them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boring::ssl::SslRef;
use millrace_admission::flow_owner::{FlowOwner, FlowRefusal};
use millrace_admission::peer_limits::{FlowPlace, PeerPlace};
use millrace_config::{Class, Host};
use mio::{Interest, Registry, Token};
use quiche::h3;
use slab::Slab;

use crate::admitted::Admitted;
use crate::algorithms::CcPolicy;
use crate::conn::Conn;
use crate::conn_id::ConnId;
use crate::datagrams::{UdpFlow, Unanswered, UnansweredPlace};
use crate::event_loop::settings::WorkerSettings;
use crate::event_loop::state::{
    LoopBuffers, LoopSockets, PendingWork, Routes, WorkerAdmission, WorkerMemory,
};
use crate::event_loop::tokens::{KIND_FLOW, KIND_ROLE, KIND_SHIFT, KIND_UDP};
use crate::flow::{self, Flow};
use crate::flow_end::FlowEnd;
use crate::flow_label::FlowLabel;
use crate::h3_errors::H3_CONNECT_ERROR;
use crate::h3_errors::H3_NO_ERROR;
use crate::http_exchange::HttpExchange;
use crate::memory::HeldBytes;
use crate::metrics;
use crate::metrics::{ConnectionState, FlowFailure, WorkerCounters};
use crate::misdelivered::Inbox;
use crate::outbox::Outbox;
use crate::peer_verification::tls_session;
use crate::resumption::Resumption;
use crate::rtsp::Rtsp;
use crate::shared::{Admission, Shared};
use crate::socket::Socket;
use crate::stream_owner::Owner;
use crate::tcp_liveness::TcpLivenessChecks;
use crate::tick::TICK;
use crate::transport::TunnelConfig;
use crate::udp::UdpPort;

/// Bytes of our connection IDs; the first says which worker has the connection.
pub const CONN_ID_BYTES: usize = 16;
/// Receive window of a connection until its peer is authenticated.
const UNAUTHENTICATED_WINDOW_BYTES: u64 = 256 << 10;

/// A worker's sockets, connections and flows.
pub struct Core {
    pub(crate) sockets: LoopSockets,
    pub(crate) conns: Slab<Conn>,
    pub(crate) flows: Slab<Flow>,
    pub(crate) udp_flows: Slab<UdpFlow>,
    pub(crate) pending: PendingWork,
    pub(crate) routes: Routes,
    /// How new connections are made.
    pub(crate) tunnel: TunnelConfig,
    pub(crate) settings: WorkerSettings,
    pub(crate) buffers: LoopBuffers,
    pub(crate) admission: WorkerAdmission,
    pub(crate) memory: WorkerMemory,
    pub(crate) tcp_liveness: TcpLivenessChecks,
    pub(crate) now: Instant,
    /// Whether cheap turns count more than fine pacing: the thread is busy, with many connections.
    pub(crate) is_busy: bool,
    pub(crate) counters: Arc<WorkerCounters>,
    /// What all workers share.
    pub shared: Arc<Shared>,
}

impl Core {
    /// How often roles are called at least.
    pub const TICK: Duration = TICK;

    pub(crate) fn new(
        registry: Registry,
        worker: u8,
        tunnel: TunnelConfig,
        settings: &WorkerSettings,
        shared: Arc<Shared>,
        misdelivered: Inbox,
    ) -> Self {
        let unanswered = Unanswered::new(
            settings.max_unanswered_udp_flows,
            shared.metrics.udp_flows_unanswered.clone(),
        );
        Self {
            sockets: LoopSockets { registry, ports: Vec::new(), outboxes: Vec::new() },
            conns: Slab::new(),
            flows: Slab::new(),
            udp_flows: Slab::new(),
            pending: PendingWork::default(),
            routes: Routes { by_cid: HashMap::new(), worker, sharing_workers: 0, misdelivered },
            tunnel,
            settings: *settings,
            buffers: LoopBuffers::new(),
            admission: WorkerAdmission::new(unanswered),
            memory: WorkerMemory::default(),
            tcp_liveness: TcpLivenessChecks::new(settings.tcp_timeouts),
            now: Instant::now(),
            is_busy: false,
            counters: shared.metrics.worker(),
            shared,
        }
    }

    /// Uses new settings for new connections; rules keep selecting as before.
    pub(crate) fn reload(&mut self, tunnel: TunnelConfig, settings: &WorkerSettings) {
        let agent = self.tunnel.agent.take();
        self.tunnel = TunnelConfig { agent, ..tunnel };
        self.settings = *settings;
        self.admission.unanswered.set(settings.max_unanswered_udp_flows);
        self.tcp_liveness.set_timeouts(settings.tcp_timeouts);
        self.close_denied();
    }

    /// The token under which a role's event source reports as `key`.
    pub fn role_token(key: usize) -> Token {
        Token(KIND_ROLE << KIND_SHIFT | key)
    }

    /// For the role's own event sources.
    pub fn registry(&self) -> &Registry {
        &self.sockets.registry
    }

    /// The time at which the current round of the loop began.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Adds a UDP port to the loop.
    ///
    /// # Errors
    /// When the loop can't take it.
    pub fn add_port(&mut self, mut port: UdpPort) -> io::Result<usize> {
        let index = self.sockets.ports.len();
        let both = Interest::READABLE | Interest::WRITABLE;
        self.sockets.registry.register(
            port.source(),
            Token(KIND_UDP << KIND_SHIFT | index),
            both,
        )?;
        self.sockets.ports.push(port);
        self.sockets.outboxes.push(Outbox::default());
        Ok(index)
    }

    /// The number of the UDP port that a port of this worker is bound to.
    pub fn port_number(&self, port: usize) -> u16 {
        self.sockets.ports[port].local().port()
    }

    /// A connection, if it still exists.
    pub fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(id.slot).filter(|conn| conn.id == id)
    }

    pub(crate) fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(id.slot).filter(|conn| conn.id == id)
    }

    /// The number of flows in relay.
    pub fn flow_count(&self) -> usize {
        self.flows.len() + self.udp_flows.len()
    }

    /// Dials a server through `port`, which must be bound to `local`'s family.
    ///
    /// # Errors
    /// When quiche refuses, as for a name that is no host name.
    pub fn connect(
        &mut self,
        port: usize,
        local: SocketAddr,
        server: SocketAddr,
        server_name: &Host,
        resumption: &Resumption,
    ) -> Result<ConnId, quiche::Error> {
        let cid = self.new_cid();
        self.set_unauthenticated_window();
        let mut quic = open_connection(&mut self.tunnel.quic, server_name, &cid, local, server)?;
        if let Some(token) = &resumption.token {
            quic.set_token(token)?;
        }
        let session = resumption.session.as_deref();
        if let Some(session) = session.filter(|it| self.may_resume(it, server, server_name)) {
            // An old ticket only costs the early data.
            let _ = quic.set_session(session);
        }
        let id = self.insert(quic, vec![cid], port, server);
        self.conns[id.slot].address.local = Some(local);
        self.mark_pending(id.slot);
        Ok(id)
    }

    /// Whether the server that `session` was agreed with would be accepted in a full handshake now.
    fn may_resume(&self, session: &[u8], server: SocketAddr, server_name: &Host) -> bool {
        let Some(session) = tls_session(session) else { return false };
        let verified = self.tunnel.verifier.verify_session(&session, Some(server_name));
        if let Err(refusal) = &verified {
            tracing::info!(
                peer = %server,
                %refusal,
                "session not resumed: server certificate not accepted"
            );
        }
        verified.is_ok()
    }

    pub(crate) fn insert(
        &mut self,
        mut quic: quiche::Connection,
        cids: Vec<Vec<u8>>,
        port: usize,
        peer: SocketAddr,
    ) -> ConnId {
        quic.set_stream_window_limit(self.memory.window_limit);
        // Counted with the next tick.
        let held = HeldBytes::default();
        self.shared.add_connection();
        let entry = self.conns.vacant_entry();
        let id = ConnId { slot: entry.key(), serial: self.shared.new_number() };
        let algorithm = self.tunnel.algorithm.clone();
        let conn = entry.insert(Conn::new(id, quic, port, peer, held, algorithm, self.now));
        self.routes.by_cid.extend(cids.iter().cloned().map(|cid| (cid, id.slot)));
        conn.address.cids = cids;
        self.shared.metrics.connections.of(ConnectionState::Connecting).inc();
        id
    }

    /// Closes a connection in order (RFC 9000, Section 10.2).
    pub fn close(&mut self, id: ConnId, code: u64, reason: &[u8]) {
        if let Some(conn) = self.conn_mut(id) {
            // An error only says that it is closed already.
            let _ = conn.quic.close(true, code, reason);
            self.mark_pending(id.slot);
        }
    }

    /// Tells all peers that no new streams are taken (RFC 9114, Section 5.2).
    pub fn go_away(&mut self) {
        for (slot, conn) in &mut self.conns {
            let next = conn.http.next_peer_stream;
            if let Some(h3) = &mut conn.http.h3 {
                // Without room the peer learns it from the refusal of its next request.
                let _ = h3.send_goaway(&mut conn.quic, next);
            }
            if !conn.pending.drive {
                conn.pending.drive = true;
                self.pending.drive.push_back(slot);
            }
        }
    }

    /// Opens a stream that the role owns under `key` until it starts a flow on it.
    ///
    /// # Errors
    /// `StreamBlocked` when the connection can't take the request now: [`crate::tunnel_event::TunnelEvent::Writable`] tells when
    /// to try again. `TransportError(StreamLimit)` when the peer allows no more streams.
    pub fn request(
        &mut self,
        id: ConnId,
        fields: &[h3::Header],
        key: u64,
    ) -> Result<u64, h3::Error> {
        let conn = self.conn_mut(id).ok_or(h3::Error::InternalError)?;
        let stream = conn.request(fields, Owner::Role(key));
        conn.pending.wants_writable |= matches!(stream, Err(h3::Error::StreamBlocked));
        self.mark_pending(id.slot);
        stream
    }

    /// Applies `choice` to a connection for a flow of this class, unless it carries other streams than `stream`. A
    /// connection has one congestion control, and the flow that begins on an empty connection chooses it for the flows
    /// that join.
    pub fn select_cc(&mut self, id: ConnId, stream: Option<u64>, choice: &CcPolicy, class: Class) {
        let Some(conn) = self.conns.get_mut(id.slot).filter(|conn| conn.id == id) else { return };
        // The role takes requests in their order: those that it has still to look at join.
        let may_join = |owner: &Owner| matches!(owner, Owner::Probe | Owner::PendingRequest { .. });
        let mut streams = conn.http.streams.iter();
        if streams.all(|(other, owner)| Some(*other) == stream || may_join(owner)) {
            conn.select_cc(choice, class, self.tunnel.agent.as_mut(), self.now);
        }
    }

    /// Answers a request; `end` when no body follows, after which the stream is forgotten.
    ///
    /// # Errors
    /// `StreamBlocked` as for [`Core::request`]; any other when the connection or stream is gone.
    pub fn respond(
        &mut self,
        id: ConnId,
        stream: u64,
        fields: &[h3::Header],
        end: bool,
    ) -> Result<(), h3::Error> {
        let conn = self.conn_mut(id).ok_or(h3::Error::InternalError)?;
        let sent = conn.respond(stream, fields, end);
        conn.pending.wants_writable |= matches!(sent, Err(h3::Error::StreamBlocked));
        sent?;
        if end {
            // RFC 9114, Section 4.1.
            conn.abandon(stream, H3_NO_ERROR);
        }
        self.mark_pending(id.slot);
        Ok(())
    }

    /// Assigns the stream of a request to the role under `key`. Returns whether the peer has ended
    /// its direction already; `None` when the stream is gone.
    pub fn own_stream(&mut self, id: ConnId, stream: u64, key: u64) -> Option<bool> {
        let owner = self.conn_mut(id)?.http.streams.get_mut(&stream)?;
        let finished = matches!(owner, Owner::PendingRequest { finished: true });
        *owner = Owner::Role(key);
        Some(finished)
    }

    /// Resets a stream.
    pub fn reset_stream(&mut self, id: ConnId, stream: u64, code: u64) {
        if let Some(conn) = self.conn_mut(id) {
            conn.reset(stream, code);
            self.mark_pending(id.slot);
        }
    }

    /// Relays between `socket` and `stream` from now on. `known` tells whether the socket is
    /// registered with the loop already.
    pub fn relay(&mut self, start: RelayStart) {
        let RelayStart { conn: id, stream, mut socket, known, label, confirmed, admission, .. } =
            start;
        let slot = self.flows.vacant_key();
        let token = Token(KIND_FLOW << KIND_SHIFT | slot);
        let now = self.now;
        let registered = socket.register(&self.sockets.registry, token, known);
        let Some(conn) = self.conns.get_mut(id.slot).filter(|conn| conn.id == id) else {
            socket.reset();
            return;
        };
        if let Err(error) = registered {
            tracing::error!(%error, "failed to register a flow's socket");
            socket.reset();
            conn.reset(stream, H3_CONNECT_ERROR);
            self.mark_pending(id.slot);
            return;
        }
        conn.fault = conn.fault.or_else(|| self.shared.faults.of(&label.destination));
        conn.http.streams.insert(stream, Owner::Flow(slot));
        conn.pending.flows.push_back(slot);
        // Until the flow is known to have ended in order. Otherwise the kernel would send a FIN
        // when the process is killed.
        socket.abort_on_close(true);
        self.tcp_liveness.watch(&socket);
        let mut flow = Flow::new(id, stream, socket, label, admission, now)
            .with_first_bytes(start.to_stream, start.to_socket);
        if let Some(key) = start.again {
            flow.retain(key);
        }
        if conn.quic.is_server() && flow.label.class == Class::Dash {
            flow.observe_cmcd(&self.shared.metrics, self.settings.caps_player_rates);
        }
        if let Some(rtsp) = start.rtsp.and_then(|rtsp| self.follow_rtsp(rtsp, &flow)) {
            flow.follow_rtsp(rtsp);
        }
        if let Some(exchange) = start.exchange {
            flow::carry_exchange(&mut flow, exchange);
        }
        flow.state.confirmed = confirmed;
        flow.state.queued = true;
        flow.state.stream_finished = start.stream_finished;
        self.flows.insert(flow);
        self.mark_pending(id.slot);
    }

    pub(crate) fn mark_pending(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot).filter(|conn| !conn.pending.drive) {
            conn.pending.drive = true;
            self.pending.drive.push_back(slot);
        }
    }

    /// Gives a flow its turn.
    pub(crate) fn queue_flow(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let id = flow.conn;
        let is_queued = std::mem::replace(&mut flow.state.queued, true);
        if let Some(conn) = self.conns.get_mut(id.slot).filter(|_| !is_queued) {
            conn.pending.flows.push_back(slot);
        }
        self.mark_pending(id.slot);
    }

    pub(crate) fn new_cid(&self) -> Vec<u8> {
        let mut cid = vec![0; CONN_ID_BYTES];
        boring::rand::rand_bytes(&mut cid).expect("BoringSSL's generator does not fail");
        cid[0] = self.routes.worker;
        cid
    }

    /// The stateless reset token of a connection ID that is never reset without state.
    pub(crate) fn random_token(&self) -> u128 {
        let mut token = [0; 16];
        boring::rand::rand_bytes(&mut token).expect("BoringSSL's generator does not fail");
        u128::from_ne_bytes(token)
    }

    /// The window of connections until their peers are authenticated.
    pub(crate) fn set_unauthenticated_window(&mut self) {
        self.tunnel.quic.set_max_connection_window(UNAUTHENTICATED_WINDOW_BYTES);
    }

    /// Gives an authenticated connection its full window, of which streams that wait for their
    /// readers take nothing. `false` when its peer has used up the memory that it may have.
    pub(crate) fn open_window(&mut self, slot: usize) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        if conn.handshake.peer_place.as_ref().is_some_and(PeerPlace::is_over_memory) {
            return false;
        }
        let most = self.settings.max_connection_window_bytes;
        conn.quic.set_max_connection_window(most.max(UNAUTHENTICATED_WINDOW_BYTES));
        conn.quic.credit_on_receipt();
        true
    }

    /// A place for a flow that a peer wants on a connection, for the viewer that it names.
    ///
    /// # Errors
    /// The limit or share that is reached.
    pub fn admit_flow(
        &mut self,
        id: ConnId,
        viewer: Option<SocketAddr>,
    ) -> Result<Admission, FlowRefusal> {
        let (owner, place) = self.join_peer(id, viewer)?;
        Ok(self.shared.admit_flow(&owner)?.of_peer(place))
    }

    /// A place for a UDP flow without a reply, which its role knows by `key`, and the key of a request that is evicted
    /// for it.
    ///
    /// # Errors
    /// As [`Core::admit_flow`].
    pub fn admit_unanswered_of(
        &mut self,
        id: ConnId,
        viewer: Option<SocketAddr>,
        key: u64,
    ) -> Result<(UnansweredPlace, Option<u64>), FlowRefusal> {
        let (owner, _) = self.join_peer(id, viewer)?;
        Ok(self.admit_unanswered(owner, key))
    }

    /// A place for a UDP flow that this end opens, and the key of a request that is evicted for it.
    pub fn admit_unanswered(
        &mut self,
        owner: FlowOwner,
        key: u64,
    ) -> (UnansweredPlace, Option<u64>) {
        let (place, evicted) = self.admission.unanswered.take(key, owner);
        self.shared.metrics.flows_opened.inc();
        let request = evicted.and_then(|evicted| {
            self.shared.metrics.drops.of(metrics::Drop::UnansweredUdpFlow).inc();
            match evicted.slot {
                Some(slot) => self.end_datagrams(slot, FlowEnd::Idle),
                None => return Some(evicted.key),
            }
            None
        });
        (place, request)
    }

    /// The owner of a flow, and its place among the flows of the peer.
    fn join_peer(
        &mut self,
        id: ConnId,
        viewer: Option<SocketAddr>,
    ) -> Result<(FlowOwner, Option<FlowPlace>), FlowRefusal> {
        // The session of early data identifies the peer (RFC 8446, Section 4.2.11).
        self.identify(id.slot);
        let conn = self.conn(id).filter(|conn| conn.quic.local_error().is_none());
        let conn = conn.ok_or(FlowRefusal::Client)?;
        let peer = conn.handshake.peer_place.as_ref();
        let refused = || self.shared.refuse_peer();
        if peer.is_none() && conn.quic.is_server() {
            return Err(refused());
        }
        let place = peer.map(|peer| peer.admit_flow().ok_or_else(refused)).transpose()?;
        Ok((FlowOwner::of_client(peer.map(|peer| peer.name().clone()), viewer), place))
    }

    /// A UDP flow has its first reply: it counts towards the flow limit from now on, or ends. Returns whether it goes
    /// on.
    pub(crate) fn datagrams_answered(&mut self, slot: usize) -> bool {
        let Some(flow) = self.udp_flows.get(slot) else { return false };
        let Admitted::Unanswered { place, .. } = &flow.admission else { return true };
        let (id, owner) = (flow.conn, place.owner().unwrap_or_default());
        let joined = match self.conn(id).and_then(|conn| conn.handshake.peer_place.as_ref()) {
            Some(peer) => peer.admit_flow().map(Some).ok_or_else(|| self.shared.refuse_peer()),
            None => Ok(None),
        };
        let admitted =
            joined.and_then(|place| Ok(self.shared.admit_answered(&owner)?.of_peer(place)));
        match (admitted, self.udp_flows.get_mut(slot)) {
            (Ok(mut admission), Some(flow)) => {
                admission.trace = flow.admission.trace().take();
                flow.admission = Admitted::Flow(admission);
                true
            }
            _ => {
                self.end_datagrams(slot, FlowEnd::Refused(FlowFailure::Overloaded));
                false
            }
        }
    }

    /// Whether a refusal may be logged: a flood must not fill the log.
    pub fn may_log_refusal(&mut self) -> bool {
        !std::mem::replace(&mut self.admission.refusal_logged, true)
    }

    /// A flow's socket reported something.
    pub(crate) fn on_socket_event(&mut self, slot: usize, event: &mio::event::Event) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let id = flow.conn;
        // The event may be of a flow that had this slot before: the socket itself decides.
        if event.is_error()
            && let Some(error) = flow.socket.take_error().unwrap_or_else(Some)
        {
            self.end_flow(slot, FlowEnd::of_socket_error(&error));
            return;
        }
        flow.state.socket_readable |= event.is_readable() || event.is_read_closed();
        let has_room = event.is_writable() && !flow.state.socket_writable;
        flow.state.socket_writable |= event.is_writable();
        let is_queued = std::mem::replace(&mut flow.state.queued, true);
        if let Some(conn) = self.conns.get_mut(id.slot) {
            if !is_queued {
                conn.pending.flows.push_back(slot);
            }
            if has_room {
                conn.pending.writable_flows.push(slot);
            }
        }
        self.mark_pending(id.slot);
        self.fill_queue(slot);
    }
}

/// A client's connection of which nothing has been sent yet. The server's certificate must be for
/// `server_name`.
pub fn open_connection(
    config: &mut quiche::Config,
    server_name: &Host,
    cid: &[u8],
    local: SocketAddr,
    server: SocketAddr,
) -> Result<quiche::Connection, quiche::Error> {
    let scid = quiche::ConnectionId::from_ref(cid);
    let name = match server_name {
        Host::Name(name) => Some(name.as_str()),
        Host::Ip(_) => None,
    };
    let mut quic = quiche::connect(name, &scid, local, server, config)?;
    if let Host::Ip(ip) = server_name {
        // quiche would look for the address among the certificate's names.
        let tls: &mut SslRef = quic.as_mut();
        tls.verify_param_mut().set_ip(*ip).map_err(|_| quiche::Error::TlsFail)?;
    }
    Ok(quic)
}

/// What [`Core::relay`] needs.
#[derive(Debug)]
pub struct RelayStart {
    /// The connection.
    pub conn: ConnId,
    /// The stream.
    pub stream: u64,
    /// The local socket.
    pub socket: Socket,
    /// Whether the loop watches the socket already.
    pub known: bool,
    /// For logs and `/flows`.
    pub label: FlowLabel,
    /// The flow's place among those allowed.
    pub admission: Admission,
    /// Whether the destination is known to be connected.
    pub confirmed: bool,
    /// Whether the peer has ended the stream already.
    pub stream_finished: bool,
    /// Bytes that go to the stream before what the socket brings.
    pub to_stream: Vec<u8>,
    /// Bytes that go to the socket before what the stream brings.
    pub to_socket: Vec<u8>,
    /// The role's key for it, if the flow is to come back ([`crate::tunnel_event::TunnelEvent::FlowRetryable`]) when it could
    /// not be connected and can begin again.
    pub again: Option<u64>,
    /// How its SETUP requests are followed, if it is RTSP.
    pub rtsp: Option<Rtsp>,
    /// The exchange that it carries, if its client has sent a request in absolute form.
    pub exchange: Option<Box<HttpExchange>>,
}
