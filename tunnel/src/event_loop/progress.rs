//! Whether a worker's flows and connections make progress.

use crate::conn::Conn;
use crate::event_loop::core::Core;
use crate::event_loop::drive::SEND_AHEAD_BYTES;
use crate::flow::Flow;
use crate::progress::{MIN_ACKED_BYTES, MIN_STILL_TIME, STUCK_TIMEOUT, SentAmount};

impl Conn {
    fn sent(&self) -> SentAmount {
        let stats = self.quic.stats();
        let in_flight = self.quic.bytes_in_flight() as u64;
        SentAmount {
            is_waiting: self.quic.stream_bytes_waiting() > 0 || in_flight >= MIN_ACKED_BYTES,
            acked_bytes: stats.acked_bytes,
            received_packets: stats.recv,
        }
    }
}

impl Core {
    /// Describes data that is stuck; `None` when all data moves. Called about once a second.
    pub(crate) fn stuck(&mut self) -> Option<String> {
        self.stuck_connection().or_else(|| self.stuck_flow())
    }

    fn stuck_connection(&mut self) -> Option<String> {
        let now = self.now;
        let mut stuck = None;
        for (_, conn) in self.conns.iter_mut().filter(|(_, conn)| conn.handshake.established) {
            let sent = conn.sent();
            if conn.progress.is_stuck(&sent, now) && !conn.quic.is_draining() {
                stuck = stuck.or(Some(conn.address.peer));
            }
        }
        let seconds = STUCK_TIMEOUT.as_secs();
        stuck.map(|peer| {
            format!(
                "data to {peer} has not been acknowledged for {seconds} s, but the peer responds"
            )
        })
    }

    fn stuck_flow(&mut self) -> Option<String> {
        let now = self.now;
        let mut stuck = None;
        for (_, flow) in &mut self.flows {
            let is_still = now.saturating_duration_since(flow.traffic.active) >= MIN_STILL_TIME;
            let conn = self.conns.get_mut(flow.conn.slot).filter(|conn| conn.id == flow.conn);
            let conn = conn.filter(|conn| is_still && conn.handshake.established);
            let movable = conn.and_then(|conn| movable_direction(flow, conn));
            if flow.traffic.wait.is_stuck(movable.is_some(), flow.traffic.active, now) {
                stuck = stuck.or(movable.map(|direction| (direction, &flow.label.destination)));
            }
        }
        stuck.map(|(direction, to)| {
            let seconds = STUCK_TIMEOUT.as_secs();
            format!(
                "data {direction} the tunnel of a flow to {to} has waited for {seconds} s, though its reader drains"
            )
        })
    }
}

/// The direction in which data of a flow could move now.
fn movable_direction(flow: &Flow, conn: &mut Conn) -> Option<&'static str> {
    if flow.can_write_socket(conn.quic.stream_readable(flow.stream)) {
        return Some("from");
    }
    let has_turns = conn.quic.stream_bytes_waiting() < SEND_AHEAD_BYTES;
    let room = if has_turns { conn.quic.stream_capacity(flow.stream).unwrap_or(0) } else { 0 };
    flow.can_read_socket(room).then_some("to")
}
