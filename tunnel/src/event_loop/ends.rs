//! The ends of flows and connections.

use crate::close_reason::{close_reason, handshake_failure};
use crate::conn::Conn;
use crate::event_loop::core::Core;
use crate::flow::{self, Flow};
use crate::flow_end::FlowEnd;
use crate::flow_info::FlowInfo;
use crate::h3_errors::H3_CONNECT_ERROR;
use crate::metrics::{ConnectionState, FlowOutcome, HandshakeFailure, Label};
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
        self.end_flow_of(flow_slot, end, unreached, None);
    }

    /// As [`Core::end_flow`]; `unreached` says that the peer certainly passed nothing on. `removed` is the flow's
    /// connection where that has been taken out already.
    fn end_flow_of(
        &mut self,
        flow_slot: usize,
        end: FlowEnd,
        unreached: bool,
        removed: Option<&Conn>,
    ) {
        let Some(mut flow) = self.flows.try_remove(flow_slot) else { return };
        self.pending.capped_flows.set(flow_slot, None);
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
        let outcome = end.outcome();
        if recoverable && flow.can_retry(unreached) {
            if let Some(trace) = &mut flow.admission.trace {
                trace.fail_step(outcome.as_str(), self.now);
            }
            let returned = flow.into_retry(end);
            self.pending.events.extend(returned.map(|it| TunnelEvent::FlowRetryable(Box::new(it))));
            return;
        }
        if outcome != FlowOutcome::Complete {
            flow.admission.end_set_up(Some(outcome.as_str()), self.now);
        }
        // A client that has gone takes no answer, and a process that ends gives none.
        let is_told = !matches!(
            end,
            FlowEnd::Complete | FlowEnd::LocalReset | FlowEnd::TcpTimeout | FlowEnd::Drained
        );
        if is_told && flow::is_unanswered(&flow) {
            self.record_flow_end(flow_slot, &flow, end, removed);
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
        self.record_flow_end(flow_slot, &flow, end, removed);
        match end {
            FlowEnd::Complete => flow.socket.abort_on_close(false),
            _ => flow.socket.reset(),
        }
    }

    fn record_flow_end(&self, slot: usize, flow: &Flow, end: FlowEnd, removed: Option<&Conn>) {
        let conn = removed.or_else(|| self.conn(flow.conn));
        let info = conn
            .map(|conn| conn.describe(flow.seen(slot, conn.quic.is_server(), self.now), self.now));
        self.record_end(end, info);
    }

    /// Counts a flow that has ended, and keeps its last values.
    pub(crate) fn record_end(&self, end: FlowEnd, info: Option<FlowInfo>) {
        let outcome = end.outcome();
        self.shared.metrics.flows_finished.of(outcome).inc();
        if let Some(info) = info {
            self.shared.ended_flows.add(info, outcome, self.now);
        }
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
                    let unreached = !conn.quic.is_established();
                    self.end_flow_of(flow, FlowEnd::TunnelLost, unreached, Some(&conn));
                }
                Owner::Datagrams(flow) => {
                    self.end_datagrams_of(flow, FlowEnd::TunnelLost, Some(&conn));
                }
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
