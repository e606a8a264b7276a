//! What becomes of a connection that has said where it wants to go: a request through the tunnel,
//! a connection past it, or a refusal.

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use millrace_config::{Class, OnFailure};
use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::{Core, RelayStart};
use millrace_tunnel::flow::{FlowEnd, FlowLabel, H3_CONNECT_ERROR, Returned};
use millrace_tunnel::metrics::{FlowFailure, Parser};
use millrace_tunnel::rtsp::Rtsp;
use millrace_tunnel::streams::{failure_metric, fields_of};
use millrace_wire::h3_connect::{self, Carries, Response};
use millrace_wire::{ConnectFailure, Destination};
use quiche::h3;

use crate::accepted::{Accepted, Stage};
use crate::direct::{Failed, NamedBy};
use crate::intercept::{Handshake, Mode};
use crate::pool::{ServerSet, State};
use crate::role::ClientRole;

/// How long a refused client has to read why.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Servers that one flow is offered to.
const MAX_OFFERS: u32 = 8;

/// What is known of a flow that may come back ([`RelayStart::again`]), packed into its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetryKey {
    /// The number of its listener.
    listener: usize,
    /// How often it was offered to a server, at most [`MAX_OFFERS`].
    offers: u32,
    /// Servers that refused it because of a limit.
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
    /// Opens streams for the connections that wait for one, as far as that is possible now.
    pub(crate) fn request_waiting(&mut self, core: &mut Core) {
        let waiting =
            |(key, it): (&u64, &Accepted)| matches!(it.stage, Stage::Waiting(_)).then_some(*key);
        let mut keys: Vec<_> = self.accepted.iter().filter_map(waiting).collect();
        keys.sort_unstable();
        // A thousand may wait beside ten thousand connections: those that want the same ask once.
        let mut nothing_for = HashSet::new();
        for key in keys {
            let Some(criteria) = self.accepted.get(&key).map(|it| (it.lane, it.refused_by)) else {
                continue;
            };
            if !nothing_for.contains(&criteria) && !self.request(core, key) {
                nothing_for.insert(criteria);
            }
        }
        self.request_waiting_udp(core);
    }

    /// Opens a stream for a connection that waits for one, if that is possible now. `false` when there is no
    /// connection to a server that it could use.
    pub(crate) fn request(&mut self, core: &mut Core, key: u64) -> bool {
        let Some(accepted) = self.accepted.get_mut(&key) else { return true };
        let Stage::Waiting(destination) = &accepted.stage else { return true };
        if self.pool.state(core.now()) == State::Down {
            self.without_tunnel(core, key);
            return true;
        }
        let choice = self.pool.choose(core, accepted.lane, accepted.refused_by);
        let Some(conn) = choice else { return false };
        let lane = &self.lanes[accepted.lane];
        match lane.request(core, conn, Carries::Tcp, destination, accepted.client, key) {
            Ok(stream) => {
                self.pool.flow_begins(core, conn);
                let destination = destination.clone();
                accepted.offers += 1;
                if accepted.expects_reply() {
                    accepted.deadline = core.now() + self.connect_timeout;
                    accepted.stage = Stage::Requested { conn, stream, destination };
                } else {
                    // The client is not told anyway: its first bytes go with the request.
                    self.relay(core, key, conn, stream, &destination, None);
                }
            }
            // Later: a notice comes when there is room.
            Err(h3::Error::StreamBlocked) => {}
            Err(h3::Error::TransportError(quiche::Error::StreamLimit)) => {
                accepted.offers += 1;
                self.refused_by(key, conn);
                self.offer_again(core, key, ConnectFailure::Overloaded);
            }
            Err(error) => tracing::debug!(%error, "the request waits for another connection"),
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
        let door = &self.doors_seen[accepted.door];
        let retry = RetryKey {
            listener: accepted.door,
            offers: accepted.offers,
            refused_by: accepted.refused_by.union(self.pool.server_of(conn)),
        };
        let again = self.several_servers || door.on_failure == OnFailure::Direct;
        let class = self.lanes[accepted.lane].class;
        let rtsp = accepted.client.filter(|_| class == Class::Rtsp).map(|player| Rtsp::Client {
            player,
            origin: match (&door.mode, destination) {
                (Mode::Tproxy, Destination::Address(origin)) => Some(origin.ip()),
                _ => None,
            },
            agreed: answer.is_some_and(|fields| h3_connect::follows_rtsp(fields_of(fields))),
            lane: accepted.lane,
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

    /// A request has come to nothing, and the connection waits as before.
    fn take_back(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(&key) else { return };
        let Stage::Requested { conn, stream, destination } = &accepted.stage else { return };
        let (conn, stream) = (*conn, *stream);
        accepted.stage = Stage::Waiting(destination.clone());
        core.reset_stream(conn, stream, H3_CONNECT_ERROR);
        self.pool.flow_ends(core, conn);
    }

    /// The server of a connection has no room for this flow. That says nothing about other flows.
    fn refused_by(&mut self, key: u64, conn: ConnId) {
        if let Some(accepted) = self.accepted.get_mut(&key) {
            accepted.refused_by = accepted.refused_by.union(self.pool.server_of(conn));
        }
    }

    /// Another server, if there is one, else what the listener says.
    fn offer_again(&mut self, core: &mut Core, key: u64, failure: ConnectFailure) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        let up = self.pool.state(core.now()) == State::Up;
        let elsewhere = || {
            let refused_by = accepted.refused_by;
            refused_by.is_empty() || self.pool.choose(core, accepted.lane, refused_by).is_some()
        };
        if accepted.offers < MAX_OFFERS && up && elsewhere() {
            self.request(core, key);
        } else if self.door(accepted).on_failure == OnFailure::Direct {
            self.without_tunnel(core, key);
        } else if !failure.is_limit() && self.pool.state(core.now()) == State::Pending {
            // It waits for the next connection.
        } else {
            self.fail(core, key, failure);
        }
    }

    /// No server can take it.
    fn without_tunnel(&mut self, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        let Stage::Waiting(destination) = &accepted.stage else { return };
        let door = &self.doors_seen[accepted.door];
        let direct = self.direct.as_mut().filter(|_| door.on_failure == OnFailure::Direct);
        let Some(direct) = direct else {
            let failure = match self.pool.is_full(core.now()) {
                true => ConnectFailure::ServerFull,
                false => ConnectFailure::TunnelUnavailable,
            };
            return self.fail(core, key, failure);
        };
        let named_by = match door.mode {
            Mode::ProxyProtocol | Mode::HttpConnect | Mode::Socks5 => NamedBy::Client,
            Mode::Tproxy | Mode::Redirect | Mode::Fixed(_) => NamedBy::Interception,
        };
        let (destination, class) = (destination.clone(), self.lanes[accepted.lane].class);
        if let Some(accepted) = self.accepted.remove(&key) {
            let failed = direct.start(core, accepted, destination, class, named_by);
            self.on_direct_failed(core, failed);
        }
    }

    /// Flows that found no way past the tunnel either.
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

    /// A flow that was given to the tunnel is back, and nobody has seen a byte of it.
    pub(crate) fn on_returned(&mut self, core: &mut Core, returned: Returned) {
        let Returned { key, mut socket, label, admission, bytes, end } = returned;
        let RetryKey { listener: door, offers, mut refused_by } = RetryKey::from_bits(key);
        let failure = match end {
            FlowEnd::Refused(FlowFailure::ServerFull) => ConnectFailure::ServerFull,
            FlowEnd::Refused(FlowFailure::LocalResources) => ConnectFailure::LocalResources,
            FlowEnd::Refused(FlowFailure::ClientLimit) => ConnectFailure::ClientLimitReached,
            FlowEnd::Refused(_) => ConnectFailure::Overloaded,
            _ => ConnectFailure::TunnelUnavailable,
        };
        if !failure.is_limit() {
            // The connection is gone, and the server may be back any moment.
            refused_by = ServerSet::default();
        }
        let key = self.next_key;
        self.next_key += 1;
        let watched = socket.watch_again(core.registry(), Core::role_token(key as usize));
        let (Ok(destination), Ok(())) = (label.destination.parse::<Destination>(), watched) else {
            core.shared.metrics.flows_failed.of(FlowFailure::Internal).inc();
            return socket.reset();
        };
        let accepted = Accepted {
            socket,
            handshake: Handshake::over(destination.clone()),
            bytes,
            client: label.client,
            door,
            lane: self.doors_seen[door].lane,
            handshake_place: None,
            admission,
            deadline: core.now() + self.connect_timeout,
            stage: Stage::Waiting(destination),
            offers,
            refused_by,
        };
        self.accepted.insert(key, accepted);
        self.offer_again(core, key, failure);
    }

    /// Requests on these connections, which are of no use now, go elsewhere.
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

    /// There will be no flow: tells the client as its protocol does.
    pub(crate) fn fail(&mut self, core: &mut Core, key: u64, failure: ConnectFailure) {
        let Some(accepted) = self.accepted.get(&key) else { return };
        core.shared.metrics.flows_failed.of(failure_metric(failure)).inc();
        let reply = accepted.failure_reply(failure);
        if let Stage::Requested { conn, .. } = accepted.stage {
            self.pool.flow_ends(core, conn);
        }
        self.turn_away(core, key, reply);
    }

    /// Closes after `reply`, or with a reset when there is none.
    pub(crate) fn turn_away(&mut self, core: &mut Core, key: u64, reply: Option<Vec<u8>>) {
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
}
