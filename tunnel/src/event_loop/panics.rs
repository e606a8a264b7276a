//! Panic isolation: a panic in one connection's code ends only that connection.

use crate::conn_id::ConnId;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::metrics::ConnectionState;
use crate::tunnel_event::TunnelEvent;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Core {
    /// Does something for the connection in `slot`; `None` after a panic, which ends the connection.
    pub(crate) fn isolated<T>(
        &mut self,
        slot: usize,
        turn: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(|| turn(self)));
        outcome.inspect_err(|_| self.on_panic(Some(slot))).ok()
    }

    /// A panic has been caught, and logged by the panic hook. `slot` is the connection that it concerns.
    pub(crate) fn on_panic(&mut self, slot: Option<usize>) {
        self.shared.metrics.panics.inc();
        // What an interrupted turn may have left behind.
        self.pending.needs_h3_poll = false;
        if let Some(slot) = slot {
            self.discard(slot);
        }
    }

    /// As [`Core::remove`], of a connection whose state can't be relied on.
    fn discard(&mut self, slot: usize) {
        let Some(conn) = self.conns.try_remove(slot) else { return };
        let id = conn.id;
        tracing::error!(peer = %conn.address.peer, conn = id.number(), "connection ended after a panic");
        self.pending.deadlines.set(slot, None);
        if let Some(agent) = &mut self.tunnel.agent {
            agent.forget(id);
        }
        for cid in &conn.address.cids {
            self.routes.by_cid.remove(cid);
        }
        self.shared.forget_connection(conn.memory.held);
        let state = match conn.handshake.established {
            true => ConnectionState::Established,
            false => ConnectionState::Connecting,
        };
        self.shared.metrics.connections.of(state).dec();
        self.end_flows_of(id);
        let reason = "internal error: panic".to_owned();
        self.pending.events.push_back(TunnelEvent::Disconnected {
            conn: id,
            established: conn.handshake.established,
            reason,
        });
        // Letting go of broken state may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(conn))).is_err() {
            self.shared.metrics.panics.inc();
        }
    }

    /// Ends what is on a connection that is gone. By the flows, not by the connection's own list.
    fn end_flows_of(&mut self, id: ConnId) {
        self.end_flows(|flow| (flow.conn == id).then_some(FlowEnd::TunnelLost));
        self.end_datagram_flows(|flow| (flow.conn == id).then_some(FlowEnd::TunnelLost));
    }
}
