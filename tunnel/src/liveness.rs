//! Whether peers are still there, and connections that have to move to another path.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::conn::ConnId;
use crate::core::Core;
use crate::flow::FlowEnd;

impl Core {
    /// For how long no packet of the peer's has come that could be decrypted; exact to the
    /// interval at which it is asked.
    pub fn silence(&mut self, id: ConnId) -> Option<Duration> {
        let now = self.now;
        let conn = self.conn_mut(id)?;
        if std::mem::take(&mut conn.has_new_datagrams) {
            let packets = conn.quic.stats().recv;
            if packets != conn.heard_packets {
                conn.heard_packets = packets;
                conn.heard = now;
            }
        }
        Some(now.saturating_duration_since(conn.heard))
    }

    /// How many packets had come when [`Core::silence`] was asked last.
    pub fn packets_heard(&self, id: ConnId) -> usize {
        self.conn(id).map_or(0, |conn| conn.heard_packets)
    }

    /// Sends a packet that the peer has to acknowledge (PING, RFC 9000, Section 19.2).
    pub fn ping(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id) {
            // An error only says that the connection is closed.
            let _ = conn.quic.send_ack_eliciting();
            self.mark_dirty(id.slot);
        }
    }

    /// The smoothed round-trip time, once one has been measured.
    pub fn rtt(&self, id: ConnId) -> Option<Duration> {
        let path = self.conn(id)?.quic.path_stats().find(|path| path.active)?;
        path.min_rtt.map(|_| path.rtt)
    }

    /// Moves a connection to the local address from which the system would now send to its peer,
    /// if that is another one (RFC 9000, Section 9.2). Whether it did.
    pub fn follow_route(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conn_mut(id) else { return false };
        let (Some(local), peer) = (conn.local, conn.peer) else { return false };
        let Ok(ip) = source_address(peer) else { return false };
        if ip == local.ip() || !conn.established {
            return false;
        }
        let moved = SocketAddr::new(ip, local.port());
        match conn.quic.migrate_source(moved) {
            Ok(_) => {
                tracing::info!(%peer, from = %local, to = %moved, "own address changed");
                conn.local = Some(moved);
                self.mark_dirty(id.slot);
                true
            }
            Err(error) => {
                tracing::warn!(%peer, from = %local, to = %moved, %error, "can't migrate");
                false
            }
        }
    }

    /// Connections that have flows which no answer has confirmed.
    pub fn unconfirmed(&self) -> impl Iterator<Item = ConnId> {
        self.flows.iter().filter(|(_, flow)| !flow.confirmed).map(|(_, flow)| flow.conn)
    }

    /// Ends those flows of a connection that no answer has confirmed: they would wait for a peer
    /// that is silent. Those that can begin again elsewhere go back to the role.
    pub fn end_unconfirmed(&mut self, id: ConnId) {
        self.end_flows(|flow| (flow.conn == id && !flow.confirmed).then_some(FlowEnd::TunnelLost));
    }
}

/// The address that this machine sends from towards `peer`.
///
/// # Errors
/// When there is no route.
pub fn source_address(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let probe = UdpSocket::bind((any, 0))?;
    // Sends nothing: it only looks up the route.
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}
