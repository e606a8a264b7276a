//! Whether what could move does move.
//!
//! A reader that does not drain holds its own flow up, and that is in order. Not in order is data that waits
//! although its reader drains: bytes in the tunnel that the flow's socket would take, bytes of the socket
//! that the stream would take, and bytes on a connection whose peer is there but acknowledges none of them,
//! as on a path that passes small packets only.

use std::time::{Duration, Instant};

use crate::conn::Conn;
use crate::core::Core;
use crate::drive::SEND_AHEAD_BYTES;
use crate::flow::Flow;

/// How long data may wait that could move.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Acknowledged bytes that are more than the packets of a connection that only keeps itself alive.
const LEAST_ACKED_BYTES: u64 = 1200;

/// What is known of a connection's progress in sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Acknowledged bytes when they were enough, and when that was.
    acked_bytes: u64,
    moved: Instant,
    /// Packets received when they were last looked at, and when there were new ones.
    received_packets: usize,
    heard: Instant,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { acked_bytes: 0, moved: now, received_packets: 0, heard: now }
    }

    /// Whether data has waited for too long, on a path on which the peer is heard.
    fn is_stuck(&mut self, sent: &Sent, now: Instant) -> bool {
        if sent.received_packets != self.received_packets {
            (self.received_packets, self.heard) = (sent.received_packets, now);
        }
        if !sent.is_waiting || sent.acked_bytes >= self.acked_bytes + LEAST_ACKED_BYTES {
            (self.acked_bytes, self.moved) = (sent.acked_bytes, now);
        }
        now.saturating_duration_since(self.moved) >= STUCK_AFTER
            && now.saturating_duration_since(self.heard) < STUCK_AFTER
    }
}

/// What a connection has sent.
struct Sent {
    /// Stream data waits for the congestion window, or for acknowledgements. What waits for flow control is
    /// not among it: flows read no more from their sockets than their streams have credit for.
    is_waiting: bool,
    acked_bytes: u64,
    received_packets: usize,
}

impl Conn {
    fn sent(&self) -> Sent {
        let stats = self.quic.stats();
        let in_flight = self.quic.bytes_in_flight() as u64;
        Sent {
            is_waiting: self.quic.stream_bytes_waiting() > 0 || in_flight >= LEAST_ACKED_BYTES,
            acked_bytes: stats.acked_bytes,
            received_packets: stats.recv,
        }
    }
}

impl Core {
    /// What does not move although it could; `None` when all does. Called about once a second.
    pub(crate) fn stuck(&mut self) -> Option<String> {
        self.stuck_connection().or_else(|| self.stuck_flow())
    }

    fn stuck_connection(&mut self) -> Option<String> {
        let now = self.now;
        let mut stuck = None;
        for (_, conn) in self.conns.iter_mut().filter(|(_, conn)| conn.established) {
            let sent = conn.sent();
            if conn.progress.is_stuck(&sent, now) && !conn.quic.is_draining() {
                stuck = stuck.or(Some(conn.peer));
            }
        }
        let seconds = STUCK_AFTER.as_secs();
        stuck.map(|peer| {
            format!(
                "data towards {peer} has not been acknowledged for {seconds} s, though it answers"
            )
        })
    }

    fn stuck_flow(&mut self) -> Option<String> {
        let now = self.now;
        let waited = |flow: &Flow| now.saturating_duration_since(flow.active) >= STUCK_AFTER;
        for (_, flow) in self.flows.iter().filter(|(_, flow)| waited(flow)) {
            let conns = &mut self.conns;
            let conn = conns.get_mut(flow.conn.slot).filter(|conn| conn.id == flow.conn);
            let Some(conn) = conn.filter(|conn| conn.established) else { continue };
            let to_socket = flow.could_write(conn.quic.stream_readable(flow.stream));
            let has_turns = conn.quic.stream_bytes_waiting() < SEND_AHEAD_BYTES;
            let room =
                if has_turns { conn.quic.stream_capacity(flow.stream).unwrap_or(0) } else { 0 };
            if to_socket || flow.could_read(room) {
                let (seconds, to) = (STUCK_AFTER.as_secs(), &flow.label.destination);
                let direction = if to_socket { "from" } else { "to" };
                return Some(format!(
                    "data {direction} the tunnel of a flow to {to} has waited for {seconds} s, though \
                     its reader drains"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(is_waiting: bool, acked_bytes: u64, received_packets: usize) -> Sent {
        Sent { is_waiting, acked_bytes, received_packets }
    }

    #[test]
    fn a_peer_that_acknowledges_small_packets_only_is_stuck() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        let stuck: Vec<_> = (0..8)
            .filter(|second| {
                let now = start + Duration::from_secs(*second);
                progress.is_stuck(&sent(true, 40 * second, *second as usize), now)
            })
            .collect();
        assert_eq!(stuck, [5, 6, 7]);
        let now = start + Duration::from_secs(8);
        assert!(!progress.is_stuck(&sent(true, 5000, 8), now), "it moves again");
    }

    #[test]
    fn a_silent_peer_and_one_without_data_are_not() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        for second in 0..20 {
            let now = start + Duration::from_secs(second);
            assert!(
                !progress.is_stuck(&sent(true, 0, 0), now),
                "{second}: silence is another matter"
            );
        }
        let mut progress = Progress::new(start);
        for second in 0..20 {
            let now = start + Duration::from_secs(second);
            assert!(!progress.is_stuck(&sent(false, 0, second as usize), now), "{second}");
        }
    }

    #[test]
    fn a_slow_path_is_not() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        for second in 0..20 {
            let now = start + Duration::from_secs(second);
            let acked = 300 * second;
            assert!(!progress.is_stuck(&sent(true, acked, second as usize), now), "{second}");
        }
    }
}
