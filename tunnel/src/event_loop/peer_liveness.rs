//! Whether peers are still there, and connections that have to move to another path.

use crate::conn_id::ConnId;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::source_address::source_address;
use std::net::SocketAddr;
use std::time::Duration;

impl Core {
    /// For how long no packet of the peer's has come that could be decrypted; exact to the
    /// interval at which it is asked.
    pub fn silence(&mut self, id: ConnId) -> Option<Duration> {
        let now = self.now;
        let conn = self.conn_mut(id)?;
        if std::mem::take(&mut conn.activity.has_new_datagrams) {
            let packets = conn.quic.stats().recv;
            if packets != conn.activity.received_packets {
                conn.activity.received_packets = packets;
                conn.activity.heard = now;
            }
        }
        Some(now.saturating_duration_since(conn.activity.heard))
    }

    /// How many packets had come when [`Core::silence`] was asked last.
    pub fn received_packets(&self, id: ConnId) -> usize {
        self.conn(id).map_or(0, |conn| conn.activity.received_packets)
    }

    /// Sends a packet that the peer has to acknowledge (PING, RFC 9000, Section 19.2).
    pub fn ping(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id) {
            // An error only says that the connection is closed.
            let _ = conn.quic.send_ack_eliciting();
            self.mark_pending(id.slot);
        }
    }

    /// The smoothed round-trip time, once one has been measured.
    pub fn rtt(&self, id: ConnId) -> Option<Duration> {
        self.conn(id)?.rtt()
    }

    /// Moves a connection to the local address from which the system would now send to its peer,
    /// if that is another one (RFC 9000, Section 9.2). Whether it did.
    pub fn follow_route(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conn_mut(id) else { return false };
        let (Some(local), peer) = (conn.address.local, conn.address.peer) else { return false };
        let Ok(ip) = source_address(peer) else { return false };
        if ip == local.ip() || !conn.handshake.established {
            return false;
        }
        let moved = SocketAddr::new(ip, local.port());
        match conn.quic.migrate_source(moved) {
            Ok(_) => {
                tracing::info!(%peer, from = %local, to = %moved, "local address changed");
                conn.address.local = Some(moved);
                self.mark_pending(id.slot);
                true
            }
            Err(error) => {
                let (from, to) = (local, moved);
                tracing::warn!(%peer, %from, %to, %error, "connection migration failed");
                false
            }
        }
    }

    /// Connections that have flows which no answer has confirmed.
    pub fn unconfirmed(&self) -> impl Iterator<Item = ConnId> {
        self.flows.iter().filter(|(_, flow)| !flow.state.confirmed).map(|(_, flow)| flow.conn)
    }

    /// Ends those flows of a connection that no answer has confirmed: they would wait for a peer
    /// that is silent. Those that can begin again elsewhere go back to the role.
    pub fn end_unconfirmed(&mut self, id: ConnId) {
        self.end_flows(|flow| {
            (flow.conn == id && !flow.state.confirmed).then_some(FlowEnd::TunnelLost)
        });
    }
}
