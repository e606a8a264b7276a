//! Forwards accepted connections with a known destination: through the tunnel, around it, or not at all.

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::streams::{failure_metric, fields_of};
use millrace_tunnel::event_loop::{Core, RelayStart};
use millrace_tunnel::flow::RetryableFlow;
use millrace_tunnel::flow_end::FlowEnd;
use millrace_tunnel::flow_label::FlowLabel;
use millrace_tunnel::h3_errors::H3_CONNECT_ERROR;
use millrace_tunnel::metrics::{FlowFailure, Parser};
use millrace_tunnel::rtsp::Rtsp;
use millrace_wire::h3_connect::{self, Carries, Response};
use millrace_wire::{ConnectFailure, Destination};
use quiche::h3;

use crate::accepted::{Accepted, Stage};
use crate::direct::{Failed, NamedBy};
use crate::intercept::{Handshake, Mode};
use crate::pool::{ServerSet, State};
use crate::recognition::Classification;
use crate::role::ClientRole;

/// How long a refused client has to read the reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest number of servers that one flow is offered to.
const MAX_OFFERS: u32 = 8;

/// State of a retryable flow, packed into its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetryKey {
    /// The number of its listener.
    listener: usize,
    /// How often it has been offered to a server, at most [`MAX_OFFERS`].
    offers: u32,
    /// Servers that have refused it because of a limit.
    refused_by: ServerSet,
}

impl RetryKey {
    const OFFERS_SHIFT: u32 = 16;
    const REFUSED_BY_SHIFT: u32 = 32;

    fn to_bits(self) -> u64 {
        let listener = self.listener as u64 & 0xffff;
        u64::from(self.refused_by.bits()) << Self::REFUSED_BY_SHIFT
            | u64::from(self.offers as u16) << Self::OFFERS_SHIFT
            | listener
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            listener: usize::from(bits as u16),
            offers: u32::from((bits >> Self::OFFERS_SHIFT) as u16),
            refused_by: ServerSet::from_bits((bits >> Self::REFUSED_BY_SHIFT) as u32),
        }
    }
}

impl ClientRole {
    /// Opens streams for the waiting connections, as far as that is possible now.
    pub(crate) fn request_waiting(&mut self, core: &mut Core) {
        let waiting =
            |(key, it): (&u64, &Accepted)| matches!(it.stage, Stage::Waiting(_)).then_some(*key);
        let mut keys: Vec<_> = self.accepted.iter().filter_map(waiting).collect();
        keys.sort_unstable();
        // A thousand may wait beside ten thousand connections: each criterion is tried once.
        let mut nothing_for = HashSet::new();
        for key in keys {
            let Some(criteria) = self.accepted.get(&key).map(|it| (it.group, it.refused_by)) else {
                continue;
            };
            if !nothing_for.contains(&criteria) && !self.request(core, key) {
                nothing_for.insert(criteria);
            }
        }
        self.request_waiting_udp(core);
    }

    /// Opens a stream for a waiting connection, if that is possible now. Returns `false` when no tunnel connection can
    /// take it.
    pub(crate) fn request(&mut self, core: &mut Core, key: u64) -> bool {
        let Some(accepted) = self.accepted.get_mut(&key) else { return true };
        let Stage::Waiting(destination) = &accepted.stage else { return true };
        if self.pool.state(core.now()) == State::Down {
            self.bypass(core, key);
            return true;
        }
        self.pool.use_group(accepted.group, core.now());
        let choice = self.pool.choose(core, accepted.group, accepted.refused_by);
        let Some(conn) = choice else { return false };
        let group = &self.groups[accepted.group];
        match group.request(core, conn, Carries::Tcp, destination, accepted.client, key) {
            Ok(stream) => {
                self.pool.flow_begins(core, conn);
                let destination = destination.clone();
                accepted.offers += 1;
                if accepted.expects_reply() {
                    accepted.deadline = core.now() + self.connect_timeout;
                    accepted.stage = Stage::Requested { conn, stream, destination };
                } else {
                    // The protocol has no success reply: the first bytes go with the request.
                    self.relay(core, key, conn, stream, &destination, None);
                }
            }
            // `TunnelEvent::Writable` comes when the stream can be opened.
            Err(h3::Error::StreamBlocked) => {}
            Err(h3::Error::TransportError(quiche::Error::StreamLimit)) => {
                accepted.offers += 1;
                self.refused_by(key, conn);
                self.offer_again(core, key, ConnectFailure::Overloaded);
            }
            Err(error) => tracing::debug!(%error, "request requeued"),
        }
        true
    }

    fn relay(
        &mut self,
        core: &mut Core,
        key: u64,
        conn: ConnId,
        stream: u64,
        destination: &Destination,
        answer: Option<&[h3::Header]>,
    ) {
        let Some(accepted) = self.accepted.remove(&key) else { return };
        let to_socket = accepted.handshake.success_reply();
        let listener = &self.listener_views[accepted.listener];
        let retry = RetryKey {
            listener: accepted.listener,
            offers: accepted.offers,
            refused_by: accepted.refused_by.union(self.pool.server_of(conn)),
        };
        let again = self.several_servers || listener.may_bypass();
        let class = self.groups[accepted.group].class;
        let player = accepted.client.filter(|_| accepted.follows_rtsp);
        let rtsp = player.map(|player| Rtsp::Client {
            player,
            origin: match (&listener.mode, destination) {
                (Mode::Tproxy, Destination::Address(origin)) => Some(origin.ip()),
                _ => None,
            },
            server_follows: answer.map(|fields| h3_connect::follows_rtsp(fields_of(fields))),
            group: accepted.group,
        });
        core.relay(RelayStart {
            conn,
            stream,
            socket: accepted.socket,
            known: true,
            label: FlowLabel {
                client: accepted.client,
                destination: destination.to_string(),
                class,
            },
            admission: accepted.admission,
            confirmed: answer.is_some(),
            stream_finished: false,
            to_stream: accepted.bytes,
            to_socket,
            again: again.then_some(retry.to_bits()),
            rtsp,
        });
    }

    pub(crate) fn on_response(&mut self, core: &mut Core, key: u64, fields: &[h3::Header]) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        let Stage::Requested { conn, stream, destination } = &accepted.stage else { return };
        let (conn, stream, destination) = (*conn, *stream, destination.clone());
        match h3_connect::parse_response(fields_of(fields)) {
            Ok(Response::Interim) => {}
            Ok(Response::Established) => {
                self.relay(core, key, conn, stream, &destination, Some(fields));
            }
            Ok(Response::Failed { failure, .. }) => {
                tracing::info!(%destination, %failure, "flow refused");
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                if failure == ConnectFailure::ServerFull {
                    self.pool.on_full(core, conn);
                }
                if failure.is_limit() {
                    self.refused_by(key, conn);
                    self.take_back(core, key);
                    self.offer_again(core, key, failure);
                } else {
                    self.fail(core, key, failure);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "malformed response");
                core.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                self.fail(core, key, ConnectFailure::Internal);
            }
        }
    }

    /// Withdraws a request; the accepted connection waits for another one.
    fn take_back(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(&key) else { return };
        let Stage::Requested { conn, stream, destination } = &accepted.stage else { return };
        let (conn, stream) = (*conn, *stream);
        accepted.stage = Stage::Waiting(destination.clone());
        core.reset_stream(conn, stream, H3_CONNECT_ERROR);
        self.pool.flow_ends(core, conn);
    }

    /// The server of a tunnel connection has refused this flow because of a limit. It may take other flows.
    fn refused_by(&mut self, key: u64, conn: ConnId) {
        if let Some(accepted) = self.accepted.get_mut(&key) {
            accepted.refused_by = accepted.refused_by.union(self.pool.server_of(conn));
        }
    }

    /// Tries another server if one is usable, else applies the fail mode of the listener.
    fn offer_again(&mut self, core: &mut Core, key: u64, failure: ConnectFailure) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        let up = self.pool.state(core.now()) == State::Up;
        let elsewhere = || {
            let refused_by = accepted.refused_by;
            refused_by.is_empty() || self.pool.choose(core, accepted.group, refused_by).is_some()
        };
        if accepted.offers < MAX_OFFERS && up && elsewhere() {
            self.request(core, key);
        } else if self.listener_view(accepted).may_bypass() {
            self.bypass(core, key);
        } else if !failure.is_limit() && self.pool.state(core.now()) == State::Pending {
            // It waits for the next tunnel connection.
        } else {
            self.fail(core, key, failure);
        }
    }

    /// Connects a flow that no server can take to its destination directly, or fails it.
    fn bypass(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        let Stage::Waiting(destination) = &accepted.stage else { return };
        let listener = &self.listener_views[accepted.listener];
        let direct = self.direct.as_mut().filter(|_| listener.may_bypass());
        let Some(direct) = direct else {
            let failure = match self.pool.is_full(core.now()) {
                true => ConnectFailure::ServerFull,
                false => ConnectFailure::TunnelUnavailable,
            };
            return self.fail(core, key, failure);
        };
        let named_by = match listener.mode {
            Mode::ProxyProtocol | Mode::HttpConnect | Mode::Socks5 => NamedBy::Client,
            Mode::Tproxy | Mode::Redirect | Mode::Static(_) => NamedBy::Interception,
        };
        let (destination, class) = (destination.clone(), self.groups[accepted.group].class);
        if let Some(accepted) = self.accepted.remove(&key) {
            let failed = direct.start(core, accepted, destination, class, named_by);
            self.on_direct_failed(core, failed);
        }
    }

    /// Fails flows that could not be connected directly.
    pub(crate) fn on_direct_failed(
        &mut self,
        core: &mut Core,
        failed: impl IntoIterator<Item = Failed>,
    ) {
        for (accepted, failure) in failed {
            let key = self.next_key;
            self.next_key += 1;
            self.accepted.insert(key, accepted);
            self.fail(core, key, failure);
        }
    }

    /// A flow that was given to the tunnel has come back before any byte of it was delivered.
    pub(crate) fn on_returned(&mut self, core: &mut Core, returned: RetryableFlow) {
        let RetryableFlow { key, mut socket, label, admission, bytes, end } = returned;
        let RetryKey { listener, offers, mut refused_by } = RetryKey::from_bits(key);
        let failure = match end {
            FlowEnd::Refused(FlowFailure::ServerFull) => ConnectFailure::ServerFull,
            FlowEnd::Refused(FlowFailure::LocalResources) => ConnectFailure::LocalResources,
            FlowEnd::Refused(FlowFailure::ClientLimit) => ConnectFailure::ClientLimitReached,
            FlowEnd::Refused(_) => ConnectFailure::Overloaded,
            _ => ConnectFailure::TunnelUnavailable,
        };
        if !failure.is_limit() {
            // The connection has failed; its server may be available again soon.
            refused_by = ServerSet::default();
        }
        let key = self.next_key;
        self.next_key += 1;
        let watched = socket.watch_again(core.registry(), Core::role_token(key as usize));
        let (Ok(destination), Ok(())) = (label.destination.parse::<Destination>(), watched) else {
            core.shared.metrics.flows_finished.of(FlowFailure::Internal.into()).inc();
            return socket.reset();
        };
        let mut accepted = Accepted {
            socket,
            handshake: Handshake::over(destination.clone()),
            bytes,
            client: label.client,
            listener,
            group: self.classes[self.listener_views[listener].number].default_group(),
            follows_rtsp: false,
            handshake_place: None,
            admission,
            deadline: core.now() + self.connect_timeout,
            stage: Stage::Waiting(destination.clone()),
            offers,
            refused_by,
        };
        let Classification { class, follows_rtsp, .. } =
            self.classification(&accepted, &destination);
        accepted.group = self.classes_of(&accepted).group(class);
        accepted.follows_rtsp = follows_rtsp;
        self.accepted.insert(key, accepted);
        self.offer_again(core, key, failure);
    }

    /// Moves the requests on failed connections to others.
    pub(crate) fn leave(&mut self, core: &mut Core, lost: &[ConnId]) {
        let on_them = |(key, it): (&u64, &Accepted)| match it.stage {
            Stage::Requested { conn, .. } => lost.contains(&conn).then_some(*key),
            _ => None,
        };
        let keys: Vec<_> = self.accepted.iter().filter_map(on_them).collect();
        for key in keys {
            self.take_back(core, key);
            self.offer_again(core, key, ConnectFailure::TunnelUnavailable);
        }
    }

    /// Refuses a flow with the failure reply of the protocol.
    pub(crate) fn fail(&mut self, core: &mut Core, key: u64, failure: ConnectFailure) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        core.shared.metrics.flows_finished.of(failure_metric(failure).into()).inc();
        let reply = accepted.failure_reply(failure);
        if let Stage::Requested { conn, .. } = accepted.stage {
            self.pool.flow_ends(core, conn);
        }
        self.turn_away(core, key, reply);
    }

    /// Sends `reply` and closes; without a reply resets.
    pub(crate) fn turn_away(&mut self, core: &mut Core, key: u64, reply: Option<Vec<u8>>) {
        let Some(mut accepted) = self.accepted.remove(&key) else { return };
        let Some(reply) = reply else {
            accepted.socket.reset();
            return;
        };
        // A close with unread bytes resets the connection, and the client may lose the reply.
        let said = accepted.socket.write(&reply).is_ok_and(|sent| sent == reply.len());
        if said && accepted.socket.shutdown_write().is_ok() && !accepted.discard() {
            accepted.stage = Stage::Closing;
            accepted.deadline = core.now() + CLOSE_TIMEOUT;
            self.accepted.insert(key, accepted);
        }
    }
}
