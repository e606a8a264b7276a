//! The ends of flows and connections.

use crate::close_reason::{close_reason, handshake_failure};
use crate::event_loop::core::Core;
use crate::flow::{self, Flow};
use crate::flow_end::FlowEnd;
use crate::h3_errors::H3_CONNECT_ERROR;
use crate::metrics::{ConnectionState, FlowFailure, FlowOutcome, HandshakeFailure, Label};
use crate::stream_owner::Owner;
use crate::tunnel_event::TunnelEvent;

impl Core {
    /// Takes a flow out, and lets both its ends know when that is before its time.
    pub(crate) fn end_flow(&mut self, flow_slot: usize, end: FlowEnd) {
        let Some(flow) = self.flows.get(flow_slot) else { return };
        // What comes as early data is passed on after the handshake only, and limits are checked
        // before the destination is dialled.
        let unreached = match end {
            FlowEnd::Refused(failure) => failure.is_limit(),
            _ => self.conn(flow.conn).is_some_and(|conn| !conn.quic.is_established()),
        };
        self.end_flow_of(flow_slot, end, unreached);
    }

    /// As [`Core::end_flow`]; `unreached` says that the peer certainly passed nothing on.
    fn end_flow_of(&mut self, flow_slot: usize, end: FlowEnd, unreached: bool) {
        let Some(flow) = self.flows.try_remove(flow_slot) else { return };
        self.end_rtsp(&flow, end == FlowEnd::Complete);
        let slot = flow.conn.slot;
        if let Some(conn) = self.conn_mut(flow.conn) {
            if end == FlowEnd::Complete {
                conn.http.streams.remove(&flow.stream);
            } else {
                conn.reset(flow.stream, H3_CONNECT_ERROR);
            }
            self.mark_pending(slot);
        }
        self.pending.events.push_back(TunnelEvent::FlowEnded { conn: flow.conn, end });
        let recoverable = match end {
            FlowEnd::Refused(failure) => failure.is_limit(),
            end => end == FlowEnd::TunnelLost,
        };
        if recoverable && flow.can_retry(unreached) {
            let returned = flow.into_retry(end);
            self.pending.events.extend(returned.map(|it| TunnelEvent::FlowRetryable(Box::new(it))));
            return;
        }
        // A client that has gone takes no answer, and a process that ends gives none.
        let is_told = !matches!(
            end,
            FlowEnd::Complete | FlowEnd::LocalReset | FlowEnd::TcpTimeout | FlowEnd::Drained
        );
        if is_told && flow::is_unanswered(&flow) {
            self.count_end(end);
            let unanswered = flow::into_unanswered(flow, end).map(Box::new);
            self.pending.events.extend(unanswered.map(TunnelEvent::FlowUnanswered));
            return;
        }
        tracing::debug!(
            destination = %flow.label.destination,
            sent_bytes = flow.traffic.sent_bytes,
            received_bytes = flow.traffic.received_bytes,
            end = end.as_str(),
            "flow ended"
        );
        self.count_end(end);
        match end {
            FlowEnd::Complete => flow.socket.abort_on_close(false),
            _ => flow.socket.reset(),
        }
    }

    pub(crate) fn count_end(&self, end: FlowEnd) {
        let failure = match end {
            FlowEnd::Complete => {
                return self.shared.metrics.flows_finished.of(FlowOutcome::Complete).inc();
            }
            FlowEnd::LocalReset => FlowFailure::TcpReset,
            FlowEnd::TcpTimeout => FlowFailure::TcpTimeout,
            FlowEnd::RemoteReset => FlowFailure::PeerReset,
            FlowEnd::TunnelLost | FlowEnd::Drained => FlowFailure::TunnelLost,
            FlowEnd::Idle => FlowFailure::IdleTimeout,
            FlowEnd::Memory => FlowFailure::Memory,
            FlowEnd::BadExchange => FlowFailure::Protocol,
            FlowEnd::Refused(failure) => failure,
        };
        self.shared.metrics.flows_finished.of(failure.into()).inc();
    }

    /// Ends the flows for which `select` gives a reason.
    pub(crate) fn end_flows(&mut self, mut select: impl FnMut(&Flow) -> Option<FlowEnd>) {
        let ends: Vec<_> =
            self.flows.iter().filter_map(|(slot, flow)| Some((slot, select(flow)?))).collect();
        for (slot, end) in ends {
            self.end_flow(slot, end);
        }
    }

    /// Forgets a closed connection; its flows end with a reset, never as if complete.
    pub(crate) fn remove(&mut self, slot: usize) {
        let Some(mut conn) = self.conns.try_remove(slot) else { return };
        self.pending.deadlines.set(slot, None);
        if let Some(agent) = &mut self.tunnel.agent {
            agent.forget(conn.id);
        }
        for cid in &conn.address.cids {
            self.routes.by_cid.remove(cid);
        }
        self.shared.forget_connection(conn.memory.held);
        let state = if conn.handshake.established {
            ConnectionState::Established
        } else {
            ConnectionState::Connecting
        };
        self.shared.metrics.connections.of(state).dec();
        self.counters.packets_lost.add(conn.quic.stats().lost as u64);
        let reason = close_reason(&mut conn.quic);
        let mut owners: Vec<_> = conn.http.streams.values().copied().collect();
        owners.retain(|owner| matches!(owner, Owner::Flow(_) | Owner::Datagrams(_)));
        for owner in owners {
            match owner {
                Owner::Flow(flow) => {
                    self.end_flow_of(flow, FlowEnd::TunnelLost, !conn.quic.is_established());
                }
                Owner::Datagrams(flow) => self.end_datagrams(flow, FlowEnd::TunnelLost),
                Owner::Role(_) | Owner::Probe | Owner::PendingRequest { .. } => {}
            }
        }
        let id = conn.id;
        if !conn.handshake.established {
            let failure = handshake_failure(&mut conn.quic);
            let failed = failure.as_str();
            match failure {
                // Ever again while a peer is away.
                HandshakeFailure::Timeout => {
                    tracing::debug!(peer = %conn.address.peer, reason, failure = failed, "handshake failed");
                }
                _ => {
                    tracing::warn!(peer = %conn.address.peer, reason, failure = failed, "handshake failed")
                }
            }
            self.shared.metrics.handshake_failures.of(failure).inc();
        }
        self.pending.events.push_back(TunnelEvent::Disconnected {
            conn: id,
            established: conn.handshake.established,
            reason,
        });
    }
}
