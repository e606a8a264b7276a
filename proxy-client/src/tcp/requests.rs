//! Forwards accepted connections with a known destination: through the tunnel, around it, or not at all.

use std::collections::HashSet;
use std::net::IpAddr;

use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::streams::{failure_metric, fields_of};
use millrace_tunnel::event_loop::{Core, RelayStart};
use millrace_tunnel::flow::RetryableFlow;
use millrace_tunnel::flow_end::FlowEnd;
use millrace_tunnel::flow_label::FlowLabel;
use millrace_tunnel::flow_trace::SetupStep;
use millrace_tunnel::h3_errors::H3_CONNECT_ERROR;
use millrace_tunnel::metrics::{FlowFailure, Label, Parser};
use millrace_tunnel::rtsp::Rtsp;
use millrace_wire::h3_connect::{self, Carries, Response};
use millrace_wire::{ConnectFailure, Destination};
use quiche::h3;

use super::flows::TcpFlows;
use crate::accepted::{Accepted, AcceptedState};
use crate::connection_group::RequestSource;
use crate::direct::{Failed, NamedBy};
use crate::flow_context::FlowContext;
use crate::intercept::{Handshake, Mode};
use crate::pool::Availability;
use crate::recognition::Classification;
use crate::server_set::ServerSet;

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
    /// Place of the offers: above the 16 bits of the listener.
    const OFFERS_SHIFT: u32 = 16;
    /// Place of the servers: above the 16 bits of the offers.
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

impl TcpFlows {
    /// Opens streams for the waiting connections, as far as that is possible now.
    pub(crate) fn request_waiting(&mut self, context: &mut FlowContext, core: &mut Core) {
        // A thousand may wait beside ten thousand connections: each criterion is tried once.
        let mut nothing_for = HashSet::new();
        for key in self.accepted.waiting() {
            let Some(criteria) = self.accepted.get(key).map(|it| (it.group, it.refused_by)) else {
                continue;
            };
            if !nothing_for.contains(&criteria) && !self.request(context, core, key) {
                nothing_for.insert(criteria);
            }
        }
    }

    /// Opens a stream for a waiting connection, if that is possible now. Returns `false` when no tunnel connection can
    /// take it.
    pub(super) fn request(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) -> bool {
        let Some(accepted) = self.accepted.get_mut(key) else { return true };
        let AcceptedState::Waiting(destination) = &accepted.state else { return true };
        if context.pool.availability(core.now()) == Availability::Down {
            self.bypass(context, core, key);
            return true;
        }
        context.pool.use_group(accepted.group, core.now());
        let choice = context.pool.choose(core, accepted.group, accepted.refused_by);
        let Some(conn) = choice else { return false };
        let group = &context.groups[accepted.group];
        let source = RequestSource {
            client: accepted.client,
            trace_parent: accepted.admission.trace.as_ref().and_then(|it| it.parent_for_peer()),
        };
        match group.request(core, conn, Carries::Tcp, destination, source, key) {
            Ok(stream) => {
                context.pool.flow_begins(conn);
                let destination = destination.clone();
                accepted.offers += 1;
                if accepted.expects_reply() {
                    accepted.deadline = core.now() + context.connect_timeout;
                    accepted.state = AcceptedState::Requested { conn, stream, destination };
                } else {
                    // The protocol has no success reply: the first bytes go with the request.
                    self.relay(context, core, key, (conn, stream), &destination, None);
                }
            }
            // `TunnelEvent::Writable` comes when the stream can be opened.
            Err(h3::Error::StreamBlocked) => {}
            Err(h3::Error::TransportError(quiche::Error::StreamLimit)) => {
                accepted.offers += 1;
                on_refused_by(context, accepted, conn);
                self.offer_again(context, core, key, ConnectFailure::Overloaded);
            }
            Err(error) => tracing::debug!(%error, "request requeued"),
        }
        true
    }

    /// Starts the flow of a request. `answer` has the fields of its response, if that has come.
    fn relay(
        &mut self,
        context: &FlowContext,
        core: &mut Core,
        key: u64,
        (conn, stream): (ConnId, u64),
        destination: &Destination,
        answer: Option<&[h3::Header]>,
    ) {
        let Some(mut accepted) = self.accepted.remove(key) else { return };
        if answer.is_some() {
            accepted.admission.begin_step(SetupStep::FirstByte, core.now());
        }
        let listener = context.listener(accepted.listener);
        let retry = RetryKey {
            listener: accepted.listener,
            offers: accepted.offers,
            refused_by: accepted.refused_by.union(context.pool.server_of(conn)),
        };
        let may_retry = self.several_servers || listener.may_bypass();
        let rtsp = rtsp_of(&accepted, original_address(&listener.mode, destination), answer);
        core.relay(RelayStart {
            conn,
            stream,
            known: true,
            label: FlowLabel {
                client: accepted.client,
                destination: destination.to_string(),
                class: context.groups[accepted.group].class,
            },
            confirmed: answer.is_some(),
            stream_finished: false,
            to_socket: accepted.handshake.success_reply(),
            exchange: accepted.handshake.into_exchange(),
            socket: accepted.socket,
            admission: accepted.admission,
            to_stream: accepted.bytes,
            again: may_retry.then_some(retry.to_bits()),
            rtsp,
        });
    }

    /// The server has answered a request.
    pub(crate) fn on_response(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, stream, key): (ConnId, u64, u64),
        fields: &[h3::Header],
    ) {
        let current = |it: &&Accepted| it.is_requested_on(conn, stream);
        let Some(accepted) = self.accepted.get(key).filter(current) else { return };
        let AcceptedState::Requested { destination, .. } = &accepted.state else { return };
        let destination = destination.clone();
        match h3_connect::parse_response(fields_of(fields)) {
            Ok(Response::Interim) => {}
            Ok(Response::Established) => {
                self.relay(context, core, key, (conn, stream), &destination, Some(fields));
            }
            Ok(Response::Failed { failure, .. }) => {
                tracing::info!(%destination, %failure, "flow refused");
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                self.on_refused(context, core, (conn, key), failure);
            }
            Err(error) => {
                tracing::warn!(%error, "malformed response");
                core.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                self.fail(context, core, key, ConnectFailure::Internal);
            }
        }
    }

    /// The server has refused a flow. Because of a limit: another server may take it.
    fn on_refused(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, key): (ConnId, u64),
        failure: ConnectFailure,
    ) {
        if failure == ConnectFailure::ServerFull {
            context.pool.on_full(core, conn);
        }
        let Some(accepted) = self.accepted.get_mut(key).filter(|_| failure.is_limit()) else {
            return self.fail(context, core, key, failure);
        };
        on_refused_by(context, accepted, conn);
        withdraw_request(context, core, accepted);
        self.offer_again(context, core, key, failure);
    }

    /// Tries another server if one is usable, else applies the fail mode of the listener.
    fn offer_again(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        key: u64,
        failure: ConnectFailure,
    ) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        if let Some(trace) = &mut accepted.admission.trace {
            trace.fail_step(failure_metric(failure).as_str(), core.now());
            trace.begin(SetupStep::Tunnel, core.now());
        }
        let accepted = &*accepted;
        let availability = context.pool.availability(core.now());
        let elsewhere = || {
            let refused_by = accepted.refused_by;
            refused_by.is_empty() || context.pool.choose(core, accepted.group, refused_by).is_some()
        };
        let is_up = availability == Availability::Up;
        if accepted.offers < MAX_OFFERS && is_up && elsewhere() {
            self.request(context, core, key);
        } else if context.listener(accepted.listener).may_bypass() {
            self.bypass(context, core, key);
        } else if !failure.is_limit() && availability == Availability::Pending {
            // It waits for the next tunnel connection.
        } else {
            self.fail(context, core, key, failure);
        }
    }

    /// Connects a flow that no server can take to its destination directly, or fails it.
    fn bypass(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get(key) else { return };
        let AcceptedState::Waiting(destination) = &accepted.state else { return };
        let listener = context.listener(accepted.listener);
        let direct = self.direct.as_mut().filter(|_| listener.may_bypass());
        let Some(direct) = direct else {
            let failure = context.pool.unavailable(core.now());
            return self.fail(context, core, key, failure);
        };
        let named_by = match listener.mode {
            Mode::ProxyProtocol | Mode::HttpConnect | Mode::Socks5 => NamedBy::Client,
            Mode::Tproxy | Mode::Redirect | Mode::Static(_) => NamedBy::Interception,
        };
        let (destination, class) = (destination.clone(), context.groups[accepted.group].class);
        if let Some(accepted) = self.accepted.remove(key) {
            let failed = direct.start(core, accepted, destination, class, named_by);
            self.on_direct_failed(context, core, failed);
        }
    }

    /// Fails flows that could not be connected directly.
    pub(crate) fn on_direct_failed(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        failed: impl IntoIterator<Item = Failed>,
    ) {
        for (accepted, failure) in failed {
            let key = context.new_key();
            self.accepted.insert(key, accepted);
            self.fail(context, core, key, failure);
        }
    }

    /// A flow that was given to the tunnel has come back before any byte of it was delivered.
    pub(crate) fn on_returned(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        returned: RetryableFlow,
    ) {
        let RetryableFlow { key, mut socket, label, admission, bytes, end, exchange } = returned;
        let RetryKey { listener, offers, mut refused_by } = RetryKey::from_bits(key);
        let failure = failure_of(end);
        if !failure.is_limit() {
            // The connection has failed; its server may be available again soon.
            refused_by = ServerSet::default();
        }
        let key = context.new_key();
        let watched = socket.watch_again(core.registry(), Core::role_token(key as usize));
        let (Ok(destination), Ok(())) = (label.destination.parse::<Destination>(), watched) else {
            core.shared.metrics.flows_finished.of(FlowFailure::Internal.into()).inc();
            return socket.reset();
        };
        let classes = context.classes(listener);
        let Classification { class, follows_rtsp, .. } =
            Classification::by_now(classes, destination.port(), &bytes);
        let accepted = Accepted {
            socket,
            handshake: match exchange {
                Some(exchange) => Handshake::forwarding(destination.clone(), exchange),
                None => Handshake::over(destination.clone()),
            },
            bytes,
            client: label.client,
            listener,
            group: classes.group(class),
            follows_rtsp,
            handshake_place: None,
            admission,
            deadline: core.now() + context.connect_timeout,
            state: AcceptedState::Waiting(destination),
            offers,
            refused_by,
        };
        self.accepted.insert(key, accepted);
        self.offer_again(context, core, key, failure);
    }

    /// Moves the requests on failed connections to others.
    pub(crate) fn leave(&mut self, context: &mut FlowContext, core: &mut Core, lost: &[ConnId]) {
        for key in self.accepted.requested_on(lost) {
            if let Some(accepted) = self.accepted.get_mut(key) {
                withdraw_request(context, core, accepted);
            }
            self.offer_again(context, core, key, ConnectFailure::TunnelUnavailable);
        }
    }
}

/// The server of a tunnel connection has refused this flow because of a limit. It may take other flows.
fn on_refused_by(context: &FlowContext, accepted: &mut Accepted, conn: ConnId) {
    accepted.refused_by = accepted.refused_by.union(context.pool.server_of(conn));
}

/// Withdraws a request; the accepted connection waits for another one.
fn withdraw_request(context: &mut FlowContext, core: &mut Core, accepted: &mut Accepted) {
    let AcceptedState::Requested { conn, stream, destination } = &accepted.state else { return };
    let (conn, stream) = (*conn, *stream);
    accepted.state = AcceptedState::Waiting(destination.clone());
    core.reset_stream(conn, stream, H3_CONNECT_ERROR);
    context.pool.flow_ends(core, conn);
}

/// How the messages of a flow that may be RTSP are followed. `origin` is its address, if the client does not name it.
fn rtsp_of(
    accepted: &Accepted,
    origin: Option<IpAddr>,
    answer: Option<&[h3::Header]>,
) -> Option<Rtsp> {
    let may_be_rtsp = accepted.follows_rtsp && !accepted.handshake.is_forwarding();
    let player = accepted.client.filter(|_| may_be_rtsp)?;
    Some(Rtsp::Client {
        player,
        origin,
        server_follows: answer.map(|fields| h3_connect::follows_rtsp(fields_of(fields))),
        group: accepted.group,
    })
}

/// The address that the client of an intercepted flow has connected to.
fn original_address(mode: &Mode, destination: &Destination) -> Option<IpAddr> {
    match (mode, destination) {
        (Mode::Tproxy, Destination::Address(origin)) => Some(origin.ip()),
        _ => None,
    }
}

/// Why the tunnel has given a flow back.
fn failure_of(end: FlowEnd) -> ConnectFailure {
    match end {
        FlowEnd::Refused(FlowFailure::ServerFull) => ConnectFailure::ServerFull,
        FlowEnd::Refused(FlowFailure::LocalResources) => ConnectFailure::LocalResources,
        FlowEnd::Refused(FlowFailure::ClientLimit) => ConnectFailure::ClientLimitReached,
        FlowEnd::Refused(_) => ConnectFailure::Overloaded,
        _ => ConnectFailure::TunnelUnavailable,
    }
}
