//! The client's part of an event loop: accepted connections become flows through the tunnel.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::ClientLimits;
use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::{Core, RelayStart};
use millrace_tunnel::flow::{FlowLabel, H3_CONNECT_ERROR};
use millrace_tunnel::metrics::{FlowFailure, Parser};
use millrace_tunnel::role::{Notice, Role};
use millrace_tunnel::socket::Socket;
use millrace_tunnel::streams::{failure_metric, fields_of};
use millrace_wire::h3_connect::{self, ConnectRequest, Response};
use millrace_wire::{ConnectFailure, Destination};
use mio::Interest;
use mio::event::Event;
use mio::net::{TcpListener, UnixListener};
use quiche::h3;
use socket2::{SockRef, TcpKeepalive};

use crate::accepted::{Accepted, Outcome, Stage};
use crate::intercept::{Handshake, Mode, RejectReason};
use crate::lane::Lane;
use crate::pool::Pool;

/// Connections taken from a listener before others have their turn.
const ACCEPT_TURNS: usize = 256;
/// Keys below are listeners, from here on accepted connections.
const FIRST_ACCEPTED: u64 = 1 << 16;
/// How long a refused client has to read why.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Silence after which the system asks whether the client is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A listening socket of this worker.
#[derive(Debug)]
pub enum Listening {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
}

/// One way in.
#[derive(Debug)]
pub struct Door {
    /// Where connections arrive.
    pub listening: Listening,
    /// How they say where they want to go.
    pub mode: Mode,
    /// The number of their flows' lane.
    pub lane: usize,
    /// The listener's own address.
    pub address: Option<SocketAddr>,
}

/// See the module.
pub struct ClientRole {
    doors: Vec<Door>,
    /// Doors with connections left to accept.
    open: Vec<usize>,
    accepted: HashMap<u64, Accepted>,
    next_key: u64,
    lanes: Vec<Lane>,
    pool: Pool,
    limits: ClientLimits,
    connect_timeout: Duration,
}

impl ClientRole {
    /// A role that accepts at `doors` and uses the connections of `pool`, which has `lanes`.
    pub fn new(
        doors: Vec<Door>,
        lanes: Vec<Lane>,
        pool: Pool,
        limits: ClientLimits,
        connect_timeout: Duration,
    ) -> Self {
        Self {
            doors,
            open: Vec::new(),
            accepted: HashMap::new(),
            next_key: FIRST_ACCEPTED,
            lanes,
            pool,
            limits,
            connect_timeout,
        }
    }

    fn accept_all(&mut self, core: &mut Core) {
        for index in std::mem::take(&mut self.open) {
            for turn in 0.. {
                let Some(door) = self.doors.get(index) else { break };
                if turn == ACCEPT_TURNS {
                    self.open.push(index);
                    break;
                }
                let accepted = match &door.listening {
                    Listening::Tcp(listener) => {
                        listener.accept().map(|(it, peer)| (Socket::Tcp(it), Some(peer)))
                    }
                    Listening::Unix(listener) => {
                        listener.accept().map(|(it, _)| (Socket::Unix(it), None))
                    }
                };
                match accepted {
                    Ok((socket, peer)) => self.on_accepted(core, index, socket, peer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if is_transient(&error) => {}
                    Err(error) => {
                        tracing::error!(%error, "can't accept; trying again");
                        self.open.push(index);
                        break;
                    }
                }
            }
        }
    }

    fn on_accepted(
        &mut self,
        core: &mut Core,
        door: usize,
        mut socket: Socket,
        peer: Option<SocketAddr>,
    ) {
        let door = &self.doors[door];
        let Some(admission) = core.shared.admit_flow() else {
            tracing::warn!("flow refused: max_flows reached");
            socket.reset();
            return;
        };
        let begun = match &socket {
            Socket::Tcp(tcp) => {
                let options = SockRef::from(tcp);
                // Without either the flow works, only not as well.
                let _ = options.set_tcp_nodelay(true);
                let _ = options.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
                Handshake::begin(&door.mode, tcp, door.address)
            }
            Socket::Unix(unix) => Handshake::begin(&door.mode, unix, door.address),
        };
        let handshake = match begun {
            Ok(handshake) => handshake,
            Err(error) => {
                tracing::warn!(?peer, %error, "connection refused");
                core.shared.metrics.flows_failed.of(FlowFailure::Protocol).inc();
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
            lane: door.lane,
            admission,
            deadline: core.now() + self.limits.handshake_timeout,
            stage: Stage::Handshake,
        };
        self.accepted.insert(key, accepted);
        self.advance(core, key);
    }

    /// Takes a connection through its handshake.
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
            // What the client sends now is its flow's, which reads it later.
            Stage::Waiting(_) | Stage::Requested { .. } => return,
        }
        match accepted.advance() {
            Outcome::Wait => {}
            Outcome::Ready(destination) => {
                accepted.stage = Stage::Waiting(destination);
                accepted.deadline = core.now() + self.connect_timeout;
                self.request(core, key);
                self.maintain(core);
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
                core.shared.metrics.flows_failed.of(FlowFailure::Protocol).inc();
                let reply = (!reject.reply.is_empty()).then_some(reject.reply);
                self.turn_away(core, key, reply);
            }
            Outcome::Gone => {
                self.accepted.remove(&key);
                core.shared.metrics.flows_failed.of(FlowFailure::TcpReset).inc();
            }
        }
    }

    /// Opens a stream for a connection that waits for one, if that is possible now.
    fn request(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(&key) else { return };
        let Stage::Waiting(destination) = &accepted.stage else { return };
        let Some(conn) = self.pool.choose(core, accepted.lane) else { return };
        let lane = &self.lanes[accepted.lane];
        core.steer(conn, None, &lane.algorithm);
        let request = ConnectRequest {
            destination: destination.clone(),
            class: Some(lane.class.as_str().to_owned()),
            congestion_control: lane.wish.map(str::to_owned),
            client_address: accepted.client,
        };
        let fields: Vec<_> = request
            .fields()
            .iter()
            .map(|(name, value)| h3::Header::new(name.as_bytes(), value.as_bytes()))
            .collect();
        match core.request(conn, &fields, key) {
            Ok(stream) => {
                self.pool.flow_begins(conn);
                let destination = destination.clone();
                if accepted.expects_reply() {
                    accepted.deadline = core.now() + self.connect_timeout;
                    accepted.stage = Stage::Requested { conn, stream, destination };
                } else {
                    // The client is not told anyway: its first bytes go with the request.
                    self.relay(core, key, conn, stream, &destination, false);
                }
            }
            // Later: a notice comes when there is room.
            Err(h3::Error::StreamBlocked) => {}
            Err(h3::Error::TransportError(quiche::Error::StreamLimit)) => {
                self.fail(core, key, ConnectFailure::Overloaded);
            }
            Err(error) => tracing::debug!(%error, "the request waits for another connection"),
        }
    }

    fn relay(
        &mut self,
        core: &mut Core,
        key: u64,
        conn: ConnId,
        stream: u64,
        destination: &Destination,
        confirmed: bool,
    ) {
        let Some(accepted) = self.accepted.remove(&key) else { return };
        let to_socket = accepted.handshake.success_reply();
        core.relay(RelayStart {
            conn,
            stream,
            socket: accepted.socket,
            known: true,
            label: FlowLabel {
                client: accepted.client,
                destination: destination.to_string(),
                class: self.lanes[accepted.lane].class,
            },
            admission: accepted.admission,
            confirmed,
            stream_finished: false,
            to_stream: accepted.bytes,
            to_socket,
        });
    }

    fn on_response(&mut self, core: &mut Core, key: u64, fields: &[h3::Header]) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        let Stage::Requested { conn, stream, destination } = &accepted.stage else { return };
        let (conn, stream, destination) = (*conn, *stream, destination.clone());
        match h3_connect::parse_response(fields_of(fields)) {
            Ok(Response::Interim) => {}
            Ok(Response::Established) => {
                self.relay(core, key, conn, stream, &destination, true);
            }
            Ok(Response::Failed { failure, .. }) => {
                tracing::info!(%destination, %failure, "flow refused");
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                self.fail(core, key, failure);
            }
            Err(error) => {
                tracing::warn!(%error, "malformed response");
                core.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                self.fail(core, key, ConnectFailure::Internal);
            }
        }
    }

    /// There will be no flow: tells the client as its protocol does.
    fn fail(&mut self, core: &mut Core, key: u64, failure: ConnectFailure) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        core.shared.metrics.flows_failed.of(failure_metric(failure)).inc();
        let reply = accepted.failure_reply(failure);
        if let Stage::Requested { conn, .. } = accepted.stage {
            self.pool.flow_ends(core, conn);
        }
        self.turn_away(core, key, reply);
    }

    /// Closes after `reply`, or with a reset when there is none.
    fn turn_away(&mut self, core: &mut Core, key: u64, reply: Option<Vec<u8>>) {
        use std::io::Write;
        let Some(mut accepted) = self.accepted.remove(&key) else { return };
        let Some(reply) = reply else {
            accepted.socket.reset();
            return;
        };
        // To close with unread bytes would reset, and could take the reply away again.
        let said = accepted.socket.write(&reply).is_ok_and(|sent| sent == reply.len());
        if said && accepted.socket.shutdown_write().is_ok() && !accepted.discard() {
            accepted.stage = Stage::Closing;
            accepted.deadline = core.now() + CLOSE_PATIENCE;
            self.accepted.insert(key, accepted);
        }
    }

    fn request_waiting(&mut self, core: &mut Core) {
        let waiting =
            |(key, it): (&u64, &Accepted)| matches!(it.stage, Stage::Waiting(_)).then_some(*key);
        let mut keys: Vec<_> = self.accepted.iter().filter_map(waiting).collect();
        keys.sort_unstable();
        for key in keys {
            self.request(core, key);
        }
    }

    fn maintain(&mut self, core: &mut Core) {
        let waiting =
            self.accepted.values().filter(|it| matches!(it.stage, Stage::Waiting(_))).count();
        self.pool.maintain_for(core, waiting);
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
                    core.shared.metrics.flows_failed.of(FlowFailure::HandshakeTimeout).inc();
                    self.turn_away(core, key, None);
                }
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
    }

    /// Fails the requests on a connection that is gone and, when it never came about, those that
    /// wait for one: each has so had one attempt.
    fn on_disconnected(&mut self, core: &mut Core, lost: ConnId, established: bool) {
        let hopeless = !established && !self.pool.has_established();
        let on_it = |(key, it): (&u64, &Accepted)| match it.stage {
            Stage::Requested { conn, .. } => (conn == lost).then_some(*key),
            Stage::Waiting(_) => hopeless.then_some(*key),
            Stage::Handshake | Stage::Closing => None,
        };
        let keys: Vec<_> = self.accepted.iter().filter_map(on_it).collect();
        for key in keys {
            self.fail(core, key, ConnectFailure::TunnelUnavailable);
        }
    }
}

impl Role for ClientRole {
    fn start(&mut self, core: &mut Core) -> io::Result<()> {
        for (index, door) in self.doors.iter_mut().enumerate() {
            let token = Core::role_token(index);
            match &mut door.listening {
                Listening::Tcp(it) => core.registry().register(it, token, Interest::READABLE)?,
                Listening::Unix(it) => core.registry().register(it, token, Interest::READABLE)?,
            }
        }
        self.pool.start(core)
    }

    fn on_event(&mut self, core: &mut Core, key: usize, _event: &Event) {
        let key = key as u64;
        if key >= FIRST_ACCEPTED {
            self.advance(core, key);
        } else {
            self.open.push(key as usize);
            self.accept_all(core);
        }
    }

    fn on_wake(&mut self, core: &mut Core) {
        self.maintain(core);
    }

    fn on_notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Open(conn) => {
                self.pool.on_open(conn);
                self.request_waiting(core);
            }
            Notice::Established(conn) => self.pool.on_established(conn),
            Notice::Room(_) => self.request_waiting(core),
            Notice::Disconnected { conn, established, reason } => {
                self.on_disconnected(core, conn, established);
                self.pool.on_disconnected(core, conn, &reason);
                self.maintain(core);
            }
            Notice::Response { key, fields, .. } => self.on_response(core, key, &fields),
            Notice::StreamLost { key } | Notice::StreamFinished { key, .. } => {
                self.fail(core, key, ConnectFailure::Internal);
            }
            Notice::FlowEnded { conn } => {
                self.pool.flow_ends(core, conn);
                self.request_waiting(core);
            }
            Notice::GoingAway(conn) => self.pool.on_going_away(core, conn),
            Notice::Request { conn, stream, .. } => {
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
            }
        }
    }

    fn on_tick(&mut self, core: &mut Core, now: Instant) {
        self.expire(core, now);
        self.accept_all(core);
        self.maintain(core);
        self.request_waiting(core);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.pool.next_deadline()
    }

    fn drain(&mut self, core: &mut Core) {
        for door in &mut self.doors {
            // A failure means that the loop does not watch it any more.
            let _ = match &mut door.listening {
                Listening::Tcp(it) => core.registry().deregister(it),
                Listening::Unix(it) => core.registry().deregister(it),
            };
        }
        self.doors.clear();
        self.open.clear();
        self.pool.drain();
    }

    fn pending(&self) -> usize {
        self.accepted.values().filter(|it| !matches!(it.stage, Stage::Closing)).count()
    }
}

/// Errors of the connection that was to be accepted, not of the listener (accept(2)).
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::PermissionDenied
    )
}
