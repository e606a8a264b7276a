//! The local socket of a UDP flow.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::udp::UdpPort;

/// The local socket of a UDP flow.
#[derive(Debug)]
pub enum Near {
    /// A socket of its own, connected to `peer`. The loop reads from it.
    Own {
        /// The socket.
        port: UdpPort,
        /// The address of its peer.
        peer: SocketAddr,
    },
    /// A socket that several flows share, each with its own peer. Its owner reads from it and
    /// forwards what belongs to this flow with [`crate::event_loop::core::Core::send_datagram`].
    Shared {
        /// The socket.
        port: Arc<UdpPort>,
        /// Where what comes from the tunnel goes.
        peer: SocketAddr,
        /// The local address that the peer knows.
        local: IpAddr,
    },
}

impl Near {
    /// Sends `bytes` as datagrams of `segment` bytes, the last one possibly shorter.
    pub(crate) fn send(&self, bytes: &[u8], segment: usize) -> io::Result<()> {
        match self {
            Self::Own { port, peer } => port.send(*peer, port.local().ip(), bytes, segment),
            Self::Shared { port, peer, local } => port.send(*peer, *local, bytes, segment),
        }
    }

    pub(crate) fn max_segments(&self) -> usize {
        match self {
            Self::Own { port, .. } => port.max_segments(),
            Self::Shared { port, .. } => port.max_segments(),
        }
    }

    /// Whether `error` means that the socket is of no use any more, so that the flow has to end
    /// (RFC 9298, Section 3.1). A socket of several flows tells nothing of one peer.
    pub(crate) fn is_fatal(&self, error: &io::Error) -> bool {
        matches!(self, Self::Own { .. })
            && matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
            )
    }
}
