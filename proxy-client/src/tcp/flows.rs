//! TCP flows before they run: handshake, time-outs and failures.

use std::time::Instant;

use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::event_loop::streams::failure_metric;
use millrace_tunnel::h3_errors::H3_CONNECT_ERROR;
use millrace_tunnel::metrics::{FlowFailure, FlowOutcome, Label};
use millrace_wire::{ConnectFailure, Destination};
use tracing::field;

use super::accepted_table::AcceptedTable;
use super::rejects;
use crate::accepted::{Accepted, AcceptedState, Outcome};
use crate::direct::Direct;
use crate::flow_context::{FlowContext, log_refusal};

/// The accepted connections of a worker on their way to become flows, and the flows that bypass the tunnel.
pub(crate) struct TcpFlows {
    pub(crate) accepted: AcceptedTable,
    /// Flows that bypass the tunnel; `None` if no listener has fail mode `open`.
    pub(crate) direct: Option<Direct>,
    pub(super) several_servers: bool,
}

impl TcpFlows {
    /// No flows yet.
    pub(crate) fn new(direct: Option<Direct>, several_servers: bool) -> Self {
        Self { accepted: AcceptedTable::default(), direct, several_servers }
    }

    /// Takes an accepted connection.
    pub(crate) fn add(&mut self, context: &mut FlowContext, core: &mut Core, accepted: Accepted) {
        let (key, mut accepted) = (context.new_key(), accepted);
        let token = Core::role_token(key as usize);
        if let Err(error) = accepted.socket.watch(core.registry(), token) {
            tracing::error!(%error, "an accepted connection can't be watched");
            accepted.socket.reset();
            return;
        }
        self.accepted.insert(key, accepted);
        self.advance(context, core, key);
    }

    /// Advances a connection whose socket has an event.
    pub(crate) fn advance(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        match &accepted.state {
            AcceptedState::Handshake => self.advance_handshake(context, core, key),
            AcceptedState::Closing => {
                if accepted.discard() {
                    self.accepted.remove(key);
                }
            }
            AcceptedState::Recognising(_) => self.recognise(context, core, key),
            // What the client sends now belongs to its flow, which reads it later.
            AcceptedState::Waiting(_) | AcceptedState::Requested { .. } => {}
        }
    }

    fn advance_handshake(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        let outcome = accepted.advance();
        let client = accepted.client.map(field::display);
        match outcome {
            Outcome::Wait => {}
            Outcome::Ready(destination) => self.on_ready(context, core, key, destination),
            Outcome::Rejected(reject) => rejects::answer(&mut self.accepted, core, key, reject),
            Outcome::GoneInSilence => {
                tracing::debug!(client, "closed without a byte");
                self.accepted.remove(key);
                core.shared.metrics.flows_finished.of(FlowOutcome::Complete).inc();
            }
            Outcome::Gone => {
                self.accepted.remove(key);
                core.shared.metrics.flows_finished.of(FlowFailure::TcpReset.into()).inc();
            }
        }
    }

    /// The handshake is over. The client may be another one than the peer of the connection.
    fn on_ready(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        key: u64,
        destination: Destination,
    ) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        if let Some(client) = accepted.client
            && let Err(refusal) = accepted.admission.set_viewer(client.ip())
        {
            log_refusal(core, Some(client), refusal);
            return self.fail(context, core, key, ConnectFailure::Overloaded);
        }
        self.on_destination(context, core, key, destination);
    }

    /// Opens missing tunnel connections for the flows that wait for one.
    pub(crate) fn maintain(&self, context: &mut FlowContext, core: &mut Core) {
        context.pool.maintain(core, self.accepted.waiting_count());
    }

    /// Ends the stages that have timed out.
    pub(crate) fn expire(&mut self, context: &mut FlowContext, core: &mut Core, now: Instant) {
        for key in self.accepted.late(now) {
            self.on_state_timeout(context, core, key);
        }
        self.accepted.forget_classified();
    }

    fn on_state_timeout(&mut self, context: &mut FlowContext, core: &mut Core, key: u64) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        match &accepted.state {
            AcceptedState::Closing => {
                self.accepted.remove(key);
            }
            AcceptedState::Handshake => {
                let client = accepted.client.map(field::display);
                tracing::info!(client, "handshake took too long");
                let counted = FlowFailure::HandshakeTimeout;
                core.shared.metrics.flows_finished.of(counted.into()).inc();
                accepted.admission.end_set_up(Some(counted.as_str()), core.now());
                self.accepted.reply_and_close(key, None, core.now());
            }
            AcceptedState::Recognising(_) => self.classify_now(context, core, key),
            AcceptedState::Waiting(_) => {
                self.fail(context, core, key, ConnectFailure::TunnelUnavailable)
            }
            AcceptedState::Requested { conn, stream, .. } => {
                let (conn, stream) = (*conn, *stream);
                // Sent as early data, it may never have reached a server.
                let failure = match core.conn(conn).is_some_and(|conn| conn.is_established()) {
                    true => ConnectFailure::TimedOut,
                    false => ConnectFailure::TunnelUnavailable,
                };
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
                self.fail(context, core, key, failure);
            }
        }
    }

    /// Fails the flows whose request is still on a closed connection.
    pub(crate) fn on_disconnected(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        lost: ConnId,
    ) {
        for key in self.accepted.requested_on(&[lost]) {
            self.fail(context, core, key, ConnectFailure::TunnelUnavailable);
        }
    }

    /// The stream of a request has ended without a response.
    pub(crate) fn on_stream_lost(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        (conn, stream, key): (ConnId, u64, u64),
    ) {
        // It may have been offered to another server meanwhile.
        if self.accepted.get(key).is_some_and(|it| it.is_requested_on(conn, stream)) {
            self.fail(context, core, key, ConnectFailure::Internal);
        }
    }

    /// Refuses a flow with the failure reply of the protocol.
    pub(crate) fn fail(
        &mut self,
        context: &mut FlowContext,
        core: &mut Core,
        key: u64,
        failure: ConnectFailure,
    ) {
        let Some(accepted) = self.accepted.get_mut(key) else { return };
        let counted = failure_metric(failure);
        core.shared.metrics.flows_finished.of(counted.into()).inc();
        accepted.admission.end_set_up(Some(counted.as_str()), core.now());
        let reply = accepted.failure_reply(failure);
        if let Some(conn) = accepted.requested_on() {
            context.pool.flow_ends(core, conn);
        }
        self.accepted.reply_and_close(key, reply, core.now());
    }
}
