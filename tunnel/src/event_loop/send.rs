//! Packets of connections on their way to their ports.

use std::time::Instant;

use crate::conn::{Flushed, Flushing};
use crate::event_loop::core::Core;
use crate::outbox::OutboxSender;

impl Core {
    /// Hands what a connection has to send over to its port, at most `most_bytes`.
    pub(crate) fn flush(&mut self, slot: usize, most_bytes: usize) -> Flushed {
        let mut so_far = Flushing::default();
        let flushed = loop {
            let Some(conn) = self.conns.get_mut(slot) else { break Flushed::All(false) };
            let port = conn.address.port;
            let max_segments = self.sockets.ports[port].max_segments();
            let outbox = &mut self.sockets.outboxes[port];
            match conn.flush(outbox, max_segments, most_bytes, self.is_busy, &mut so_far) {
                Flushed::Full => self.send_outbox(port),
                Flushed::Blocked => {
                    if !std::mem::replace(&mut conn.pending.waits_for_port, true) {
                        outbox.wait(slot);
                    }
                    break Flushed::Blocked;
                }
                flushed => break flushed,
            }
        };
        so_far.count(&self.counters);
        flushed
    }

    /// Sends the packets that connections have handed over.
    pub(crate) fn send_outboxes(&mut self) {
        for port in 0..self.sockets.outboxes.len() {
            let outbox = &self.sockets.outboxes[port];
            if !outbox.is_empty() && !outbox.is_blocked() {
                self.send_outbox(port);
            }
        }
    }

    /// A port's buffer has room again, or data has come to the port: events do not tell.
    pub(crate) fn port_writable(&mut self, port: usize) {
        if !self.sockets.outboxes[port].is_blocked() {
            return;
        }
        self.send_outbox(port);
        for slot in self.sockets.outboxes[port].take_waiting() {
            if let Some(conn) = self.conns.get_mut(slot) {
                conn.pending.waits_for_port = false;
                self.mark_pending(slot);
            }
        }
    }

    fn send_outbox(&mut self, port: usize) {
        let sent = self.sockets.outboxes[port].send(&self.sockets.ports[port]);
        let now = Instant::now();
        for sender in &sent {
            self.isolated(sender.conn.slot, |core| core.on_sent(sender, now));
        }
        self.sockets.outboxes[port].recycle(sent);
    }

    /// The packets of a connection have left, if it still exists.
    fn on_sent(&mut self, sent: &OutboxSender, now: Instant) {
        let Some(conn) = self.conn_mut(sent.conn) else { return };
        conn.on_sent(sent, now);
        if conn.path_mtu.has_refused() {
            self.on_refused_packet(sent.conn.slot);
        }
    }
}
