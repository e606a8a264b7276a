//! The client's role in an event loop: turns accepted connections into flows through the tunnel.

mod first_bytes;
mod udp_flows;
mod udp_listeners;
mod udp_media;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::{ClientConfig, ClientLimits};
use millrace_ops::published::Published;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::event_loop::Role;
use millrace_tunnel::flow_end::FlowEnd;
use millrace_tunnel::flow_info::FlowInfo;
use millrace_tunnel::flow_owner::{FlowOwner, FlowRefusal};
use millrace_tunnel::h3_errors::H3_CONNECT_ERROR;
use millrace_tunnel::metrics;
use millrace_tunnel::metrics::{FlowFailure, FlowOutcome, Label, Parser};
use millrace_tunnel::socket::Socket;
use millrace_tunnel::tunnel_event::TunnelEvent;
use millrace_wire::ConnectFailure;
use mio::event::Event;
use socket2::SockRef;

use crate::accept_queue::{AcceptQueue, is_out_of_resources};
use crate::accepted::{Accepted, Outcome, Stage};
use crate::connection_group::{ConnectionGroup, ListenerClasses};
use crate::direct::{self, Direct};
use crate::intercept::{Handshake, Mode, Reject, RejectReason};
use crate::listener::{Listener, ListenerView, is_transient};
use crate::pool::{Pool, ServerSet, State};
use crate::recognition::FirstBytesQueue;
use crate::reloadable::Reloadable;
use crate::udp::{self, UdpFlows};

/// Connections accepted from a listener before other listeners have their turn.
const ACCEPT_TURNS: usize = 256;
/// Keys below are listeners, from here on accepted connections.
const FIRST_ACCEPTED: u64 = 1 << 16;

/// The role of a client in an event loop.
pub struct ClientRole {
    listeners: Vec<Listener>,
    /// Settings of the listeners, for flows that outlive them.
    pub(crate) listener_views: Vec<ListenerView>,
    /// Listeners with connections to accept.
    accepting: AcceptQueue,
    pub(crate) accepted: HashMap<u64, Accepted>,
    pub(crate) next_key: u64,
    pub(crate) groups: Vec<ConnectionGroup>,
    /// How each `[[listen]]` classifies its flows.
    pub(crate) classes: Vec<ListenerClasses>,
    first_bytes: FirstBytesQueue,
    pub(crate) pool: Pool,
    /// Flows that bypass the tunnel; `None` if no listener has fail mode `open`.
    pub(crate) direct: Option<Direct>,
    pub(crate) several_servers: bool,
    /// UDP flows and their listeners.
    pub(crate) udp: UdpFlows,
    pub(crate) limits: ClientLimits,
    pub(crate) connect_timeout: Duration,
    latest: Published<Reloadable>,
}

impl ClientRole {
    /// A role that accepts flows at `listeners` and carries them on the connections of `pool`.
    pub fn new(
        listeners: Vec<Listener>,
        udp: UdpFlows,
        pool: Pool,
        direct: Option<Direct>,
        config: &ClientConfig,
        latest: Published<Reloadable>,
    ) -> Self {
        let Reloadable { groups, classes, limits } = (*latest.get()).clone();
        Self {
            listener_views: listeners.iter().map(Listener::view).collect(),
            listeners,
            accepting: AcceptQueue::default(),
            accepted: HashMap::new(),
            next_key: FIRST_ACCEPTED,
            groups,
            classes,
            first_bytes: FirstBytesQueue::default(),
            pool,
            direct,
            udp,
            several_servers: config.tunnel.servers.len() > 1,
            limits,
            connect_timeout: config.tunnel.connect_timeout,
            latest,
        }
    }

    /// Settings of the listener that accepted a connection.
    pub(crate) fn listener_view(&self, accepted: &Accepted) -> &ListenerView {
        &self.listener_views[accepted.listener]
    }

    /// The listener that a flow counts for; `None` for a sole listener, which may have all flows.
    fn accounted_listener(&self, listener: usize) -> Option<usize> {
        (self.listener_views.len() + self.udp.listener_count() > 1).then_some(listener)
    }

    /// The listener of datagrams that a flow counts for; `None` for a sole listener.
    pub(crate) fn accounted_udp_listener(&self, listener: usize) -> Option<usize> {
        self.accounted_listener(self.listener_views.len() + listener)
    }

    fn accept_all(&mut self, core: &mut Core) {
        for index in self.accepting.take(core.now()) {
            for turn in 0.. {
                let Some(listener) = self.listeners.get(index) else { break };
                if turn == ACCEPT_TURNS {
                    self.accepting.add(index);
                    break;
                }
                match listener.accept() {
                    Ok((socket, peer)) => self.on_accepted(core, index, socket, peer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if is_transient(&error) => {}
                    // It refuses connections now, and earlier ones have been accepted.
                    Err(_) if !listener.is_open() => break,
                    Err(error) => {
                        if is_out_of_resources(&error) {
                            core.shared.metrics.drops.of(metrics::Drop::DescriptorLimit).inc();
                        }
                        tracing::error!(%error, "can't accept connections; trying again");
                        self.accepting.add(index);
                        self.accepting.pause(core.now());
                        break;
                    }
                }
            }
        }
    }

    fn on_accepted(
        &mut self,
        core: &mut Core,
        index: usize,
        mut socket: Socket,
        peer: Option<SocketAddr>,
    ) {
        let listener = &self.listeners[index];
        if !listener.trusts(peer) {
            core.shared.metrics.drops.of(metrics::Drop::UntrustedProxy).inc();
            let (listener, advice) = (listener.address, "add its network to trusted_proxies");
            tracing::warn!(?peer, ?listener, advice, "PROXY header not accepted");
            socket.reset();
            return;
        }
        let owner = FlowOwner {
            // Behind a proxy the PROXY header names the viewer.
            viewer: peer.filter(|_| listener.mode != Mode::ProxyProtocol).map(|peer| peer.ip()),
            listener: self.accounted_listener(index),
            client: None,
        };
        let admission = match core.shared.admit_flow(&owner) {
            Ok(admission) => admission,
            Err(refusal) => {
                log_refusal(core, peer, refusal);
                socket.reset();
                return;
            }
        };
        let Ok(handshake_place) =
            peer.map(|peer| core.shared.peers.begin_handshake(peer, None, core.now())).transpose()
        else {
            // Not logged: a flood would fill the log too.
            core.shared.metrics.drops.of(metrics::Drop::PeerHandshakes).inc();
            socket.reset();
            return;
        };
        let begun = match &socket {
            Socket::Tcp(tcp) => {
                // Without it the flow works, with more delay.
                let _ = SockRef::from(tcp.stream()).set_tcp_nodelay(true);
                Handshake::begin(&listener.mode, tcp.stream(), listener.address)
            }
            Socket::Unix(unix) => {
                // TCP sockets inherit it from their listener, Unix sockets don't.
                let _ = SockRef::from(unix).set_out_of_band_inline(true);
                Handshake::begin(&listener.mode, unix, listener.address)
            }
        };
        let handshake = match begun {
            Ok(handshake) => handshake,
            Err(error) => {
                tracing::warn!(?peer, %error, "connection refused");
                core.shared.metrics.flows_finished.of(FlowFailure::Protocol.into()).inc();
                socket.reset();
                return;
            }
        };
        let key = self.next_key;
        self.next_key += 1;
        if let Err(error) = socket.watch(core.registry(), Core::role_token(key as usize)) {
            tracing::error!(%error, "an accepted connection can't be watched");
            socket.reset();
            return;
        }
        let accepted = Accepted {
            socket,
            handshake,
            bytes: Vec::new(),
            client: peer,
            listener: index,
            group: self.classes[listener.number].default_group(),
            follows_rtsp: false,
            handshake_place,
            admission,
            deadline: core.now() + self.limits.handshake_timeout,
            stage: Stage::Handshake,
            offers: 0,
            refused_by: ServerSet::default(),
        };
        self.accepted.insert(key, accepted);
        self.advance(core, key);
    }

    /// Advances the handshake of a connection.
    fn advance(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(&key) else { return };
        match &accepted.stage {
            Stage::Handshake => {}
            Stage::Closing => {
                if accepted.discard() {
                    self.accepted.remove(&key);
                }
                return;
            }
            Stage::Recognising(_) => return self.recognise(core, key),
            // What the client sends now belongs to its flow, which reads it later.
            Stage::Waiting(_) | Stage::Requested { .. } => return,
        }
        match accepted.advance() {
            Outcome::Wait => {}
            Outcome::Ready(destination) => {
                let client = accepted.client;
                if let Some(client) = client
                    && let Err(refusal) = accepted.admission.set_viewer(client.ip())
                {
                    log_refusal(core, Some(client), refusal);
                    return self.fail(core, key, ConnectFailure::Overloaded);
                }
                self.on_destination(core, key, destination);
            }
            Outcome::Rejected(Reject { reason: RejectReason::NoDestination, .. }) => {
                // Accepting the connection is the answer (PROXY protocol, section 2.2).
                tracing::debug!(client = ?accepted.client, "health check by a PROXY header");
                core.shared.metrics.flows_finished.of(FlowOutcome::Complete).inc();
                self.turn_away(core, key, Some(Vec::new()));
            }
            Outcome::GoneInSilence => {
                tracing::debug!(client = ?accepted.client, "closed without a byte");
                self.accepted.remove(&key);
                core.shared.metrics.flows_finished.of(FlowOutcome::Complete).inc();
            }
            Outcome::Rejected(reject) => {
                let parser = match &reject.reason {
                    RejectReason::HttpConnect(_) => Parser::HttpConnect,
                    RejectReason::Socks5(_) | RejectReason::NoAcceptableMethod => Parser::Socks5,
                    RejectReason::ProxyProtocol(_)
                    | RejectReason::NoDestination
                    | RejectReason::BadDestination(_) => Parser::ProxyProtocol,
                };
                tracing::warn!(client = ?accepted.client, reason = %reject.reason, "bad handshake");
                core.shared.metrics.protocol_errors.of(parser).inc();
                core.shared.metrics.flows_finished.of(FlowFailure::Protocol.into()).inc();
                let reply = (!reject.reply.is_empty()).then_some(reject.reply);
                self.turn_away(core, key, reply);
            }
            Outcome::Gone => {
                self.accepted.remove(&key);
                core.shared.metrics.flows_finished.of(FlowFailure::TcpReset.into()).inc();
            }
        }
    }

    fn maintain(&mut self, core: &mut Core) {
        let waiting =
            self.accepted.values().filter(|it| matches!(it.stage, Stage::Waiting(_))).count();
        self.pool.maintain(core, waiting);
    }

    fn expire(&mut self, core: &mut Core, now: Instant) {
        let late: Vec<_> = self
            .accepted
            .iter()
            .filter(|(_, accepted)| accepted.deadline <= now)
            .map(|(key, _)| *key)
            .collect();
        for key in late {
            let Some(accepted) = self.accepted.get(&key) else { continue };
            match &accepted.stage {
                Stage::Closing => {
                    self.accepted.remove(&key);
                }
                Stage::Handshake => {
                    tracing::info!(client = ?accepted.client, "handshake took too long");
                    core.shared
                        .metrics
                        .flows_finished
                        .of(FlowFailure::HandshakeTimeout.into())
                        .inc();
                    self.turn_away(core, key, None);
                }
                Stage::Recognising(_) => self.classify_now(core, key),
                Stage::Waiting(_) => self.fail(core, key, ConnectFailure::TunnelUnavailable),
                Stage::Requested { conn, stream, .. } => {
                    let (conn, stream) = (*conn, *stream);
                    // Sent as early data, it may never have reached a server.
                    let failure = match core.conn(conn).is_some_and(|conn| conn.is_established()) {
                        true => ConnectFailure::TimedOut,
                        false => ConnectFailure::TunnelUnavailable,
                    };
                    core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                    self.fail(core, key, failure);
                }
            }
        }
        self.forget_classified();
    }

    /// Moves the requests on a closed connection to others, or fails them.
    fn on_disconnected(&mut self, core: &mut Core, lost: ConnId) {
        self.leave(core, &[lost]);
        self.leave_udp(core, &[lost]);
        let on_it = |(key, it): (&u64, &Accepted)| match it.stage {
            Stage::Requested { conn, .. } => (conn == lost).then_some(*key),
            _ => None,
        };
        let keys: Vec<_> = self.accepted.iter().filter_map(on_it).collect();
        for key in keys {
            self.fail(core, key, ConnectFailure::TunnelUnavailable);
        }
    }

    /// Tunnel connections on which flows wait for a response of the server.
    fn awaited(&self, core: &Core) -> HashSet<ConnId> {
        let requested = self.accepted.values().filter_map(|it| match it.stage {
            Stage::Requested { conn, .. } => Some(conn),
            _ => None,
        });
        requested.chain(self.udp.requested()).chain(core.unconfirmed()).collect()
    }

    /// Checks the servers, and requests waiting flows.
    fn watch(&mut self, core: &mut Core) {
        let awaited = match self.pool.has_connection_per_flow() {
            true => self.awaited(core),
            false => HashSet::new(),
        };
        let lost = self.pool.watch(core, &awaited);
        if !lost.is_empty() {
            // Flows without a response are ended so that their clients can try again. A slow origin is no reason
            // for that, since its server answers PINGs.
            for conn in &lost {
                core.end_unconfirmed(*conn);
            }
            self.leave(core, &lost);
            self.leave_udp(core, &lost);
        }
        self.update_listeners(core);
        self.request_waiting(core);
    }

    /// Opens and closes the listeners that take no flows while no server is usable.
    fn update_listeners(&mut self, core: &mut Core) {
        let up = match self.pool.state(core.now()) {
            State::Up => true,
            State::Down => false,
            State::Pending => return,
        };
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if !listener.withdraws() || listener.is_open() == up {
                continue;
            }
            listener.set_open(core, Core::role_token(index), up);
            // Connections may wait from before the change.
            self.accepting.add(index);
        }
        self.accept_all(core);
        self.udp.on_servers(up);
    }
}

pub(crate) fn log_refusal(core: &mut Core, client: Option<SocketAddr>, refusal: FlowRefusal) {
    if core.may_log_refusal() {
        let reason = refusal.metric().as_str();
        tracing::warn!(?client, reason, "flow refused; others like it may not be logged");
    }
}

impl Role for ClientRole {
    fn start(&mut self, core: &mut Core) -> io::Result<()> {
        self.pool.start(core)?;
        self.udp.start(core)?;
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            // A listener that withdraws does so once no server is known to be usable.
            listener.set_open(core, Core::role_token(index), true);
        }
        Ok(())
    }

    fn on_event(&mut self, core: &mut Core, key: usize, _event: &Event) {
        let key = key as u64;
        if key & direct::KEY_BIT != 0 {
            let failed = self.direct.as_mut().and_then(|direct| direct.on_event(core, key));
            self.on_direct_failed(core, failed);
        } else if key & udp::KEY_BIT != 0 {
            self.on_udp_event(core, key);
        } else if key >= FIRST_ACCEPTED {
            self.advance(core, key);
        } else {
            self.accepting.add(key as usize);
            self.accept_all(core);
        }
    }

    fn on_wake(&mut self, core: &mut Core) {
        Reloadable { groups: self.groups, classes: self.classes, limits: self.limits } =
            (*self.latest.get()).clone();
        self.pool.set_kept_ready(&self.groups);
        if let Some(direct) = &mut self.direct {
            direct.set_limits(self.limits.clone());
            let failed = direct.on_wake(core);
            self.on_direct_failed(core, failed);
        }
        self.maintain(core);
    }

    fn on_tunnel_event(&mut self, core: &mut Core, notice: TunnelEvent) {
        match notice {
            TunnelEvent::Open(conn) => {
                self.pool.on_open(conn);
                self.request_waiting(core);
            }
            TunnelEvent::Established(conn) => {
                self.pool.on_established(core, conn);
                self.update_listeners(core);
                self.request_waiting(core);
            }
            TunnelEvent::Token { conn, token } => self.pool.on_token(conn, token),
            TunnelEvent::Writable(_) => self.request_waiting(core),
            TunnelEvent::Disconnected { conn, reason, .. } => {
                self.pool.on_disconnected(core, conn, &reason);
                self.on_disconnected(core, conn);
                self.maintain(core);
                self.request_waiting(core);
            }
            TunnelEvent::Response { conn, stream, key, fields } if self.udp.has(key) => {
                self.on_udp_response(core, (conn, stream, key), &fields);
            }
            TunnelEvent::StreamLost { conn, stream, key }
            | TunnelEvent::StreamFinished { conn, stream, key }
                if self.udp.has(key) =>
            {
                self.on_udp_stream_lost(core, conn, stream, key);
            }
            TunnelEvent::DatagramsEnded { conn, key, end } => {
                self.on_udp_ended(core, conn, key, end);
                self.request_waiting(core);
            }
            TunnelEvent::Response { conn, stream, key, fields } => {
                if self.accepted.get(&key).is_some_and(|it| it.is_requested_on(conn, stream)) {
                    self.on_response(core, key, &fields);
                }
            }
            TunnelEvent::StreamLost { conn, stream, key }
            | TunnelEvent::StreamFinished { conn, stream, key } => {
                // It may have been offered to another server meanwhile.
                let current = |it: &&Accepted| it.is_requested_on(conn, stream);
                if self.accepted.get(&key).filter(current).is_some() {
                    self.fail(core, key, ConnectFailure::Internal);
                }
            }
            TunnelEvent::FlowEnded { conn, end } => {
                if end == FlowEnd::Refused(FlowFailure::ServerFull) {
                    self.pool.on_full(core, conn);
                    self.update_listeners(core);
                }
                self.pool.flow_ends(core, conn);
                self.request_waiting(core);
            }
            TunnelEvent::MediumSetUp(medium) => self.on_medium(core, *medium),
            TunnelEvent::MediaOver { conn, stream, number } => {
                self.on_media_over(core, conn, stream, number);
            }
            TunnelEvent::FlowRetryable(returned) => self.on_returned(core, *returned),
            TunnelEvent::GoingAway(conn) => self.pool.on_going_away(core, conn),
            TunnelEvent::Request { conn, stream, .. } => {
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
            }
        }
    }

    fn on_tick(&mut self, core: &mut Core, now: Instant) {
        self.expire(core, now);
        self.expire_udp(core, now);
        self.read_udp_listeners(core);
        self.accept_all(core);
        self.maintain(core);
        self.watch(core);
        if let Some(direct) = &mut self.direct {
            let failed = direct.on_tick(core);
            self.on_direct_failed(core, failed);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let direct = self.direct.as_ref().and_then(Direct::next_deadline);
        let accepting = self.accepting.next_deadline();
        let first_bytes = self.first_bytes.next_deadline();
        let deadlines =
            [self.pool.next_deadline(), direct, self.udp.next_deadline(), accepting, first_bytes];
        deadlines.into_iter().flatten().min()
    }

    fn on_panic(&mut self, core: &mut Core, key: usize) {
        // Of flows that bypass the tunnel and of UDP flows nothing is known to be broken: their own
        // time-outs end them.
        if let Some(Accepted { stage: Stage::Requested { conn, stream, .. }, .. }) =
            self.accepted.remove(&(key as u64))
        {
            core.reset_stream(conn, stream, H3_CONNECT_ERROR);
        }
    }

    fn drain(&mut self, core: &mut Core) {
        for listener in self.listeners.drain(..) {
            listener.close(core);
        }
        self.accepting.clear();
        self.udp.drain();
        self.pool.drain();
    }

    fn bypassed_flows(&self) -> Vec<FlowInfo> {
        self.direct.as_ref().map_or_else(Vec::new, Direct::flows)
    }

    fn pending(&self) -> usize {
        let accepted = self.accepted.values().filter(|it| !matches!(it.stage, Stage::Closing));
        accepted.count() + self.udp.pending() + self.direct.as_ref().map_or(0, Direct::len)
    }
}
