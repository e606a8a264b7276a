//! A panic in one connection's code ends that connection, and nothing else.
//!
//! What a worker does for one connection runs in [`Core::isolated`]. After a panic the connection is taken
//! out without another look at its state, which may be broken: its flows are reset, its role is told, and
//! a server answers its peer's next packet with a stateless reset.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::conn::{Conn, ConnId};
use crate::core::Core;
use crate::flow::FlowEnd;
use crate::metrics::ConnectionState;
use crate::role::Notice;

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
        self.read_streams = false;
        if let Some(slot) = slot {
            self.discard(slot);
        }
    }

    /// As [`Core::remove`], of a connection whose state can't be relied on.
    fn discard(&mut self, slot: usize) {
        let Some(conn) = self.conns.try_remove(slot) else { return };
        let Conn { id, established, peer, .. } = conn;
        tracing::error!(%peer, conn = id.number(), "connection ended after a panic");
        self.deadlines.set(slot, None);
        if let Some(agent) = &mut self.agent {
            agent.forget(id);
        }
        for cid in &conn.cids {
            self.by_cid.remove(cid);
        }
        self.shared.forget_connection(conn.held);
        let state = match established {
            true => ConnectionState::Established,
            false => ConnectionState::Connecting,
        };
        self.shared.metrics.connections.of(state).dec();
        self.end_flows_of(id);
        let reason = "internal error: panic".to_owned();
        self.notices.push_back(Notice::Disconnected { conn: id, established, reason });
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

/// What a log line has room for.
fn beginning(backtrace: &str) -> String {
    const MAX_BYTES: usize = 2000;
    backtrace[..backtrace.floor_char_boundary(MAX_BYTES)].to_owned()
}

/// Logs each panic with its place and message, in place of the default hook, which would write to
/// standard error at once and might block.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let backtrace = (backtrace.status() == std::backtrace::BacktraceStatus::Captured)
            .then(|| beginning(&backtrace.to_string()));
        tracing::error!(place, thread = thread.name(), error = message, backtrace, "panic");
    }));
}
