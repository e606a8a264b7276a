//! The local socket of a UDP flow.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::datagrams::media_peer::MediaPeer;
use crate::udp::UdpPort;

/// The local socket of a UDP flow.
#[derive(Debug)]
pub enum LocalSocket {
    /// A socket of its own, connected to `peer`. The loop reads from it.
    Own {
        /// The socket.
        port: UdpPort,
        /// The address of its peer.
        peer: SocketAddr,
    },
    /// A socket of a medium that an RTSP connection has set up. The loop reads from it.
    Media {
        /// The socket.
        port: UdpPort,
        /// The player or the origin.
        peer: MediaPeer,
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

/// From which address a socket of its own takes datagrams.
#[derive(Debug)]
pub(crate) enum Sender<'a> {
    /// This one. Others may have sent before the socket was connected.
    At(SocketAddr),
    /// Those of the peer of a medium.
    OfMedia(&'a mut MediaPeer),
}

impl Sender<'_> {
    pub(crate) fn accepts(&mut self, from: SocketAddr) -> bool {
        match self {
            Self::At(peer) => (from.ip(), from.port()) == (peer.ip(), peer.port()),
            Self::OfMedia(peer) => peer.accept(from),
        }
    }
}

impl LocalSocket {
    /// Sends `bytes` as datagrams of `segment` bytes, the last one possibly shorter.
    pub(crate) fn send(&self, bytes: &[u8], segment: usize) -> io::Result<()> {
        match self {
            Self::Own { port, peer } => port.send(*peer, port.local().ip(), bytes, segment),
            Self::Media { port, peer } => {
                let to = peer.send_to().ok_or(io::ErrorKind::NotConnected)?;
                port.send(to, port.local().ip(), bytes, segment)
            }
            Self::Shared { port, peer, local } => port.send(*peer, *local, bytes, segment),
        }
    }

    /// Connects the socket of a medium to where its peer is, so that the kernel reports a peer that is gone.
    pub(crate) fn connect(&self) {
        if let Self::Media { port, peer } = self
            && let Some(to) = peer.send_to()
            && let Err(error) = port.connect_to(to)
        {
            tracing::debug!(%to, %error, "failed to connect the socket of a medium");
        }
    }

    /// The socket that the loop reads from, if the flow has one of its own.
    pub(crate) fn own_port(&mut self) -> Option<&mut UdpPort> {
        match self {
            Self::Own { port, .. } | Self::Media { port, .. } => Some(port),
            Self::Shared { .. } => None,
        }
    }

    /// The socket that the loop reads from, and what tells the datagrams of its peer from others.
    pub(crate) fn reader(&mut self) -> Option<(&UdpPort, Sender<'_>)> {
        match self {
            Self::Own { port, peer } => Some((port, Sender::At(*peer))),
            Self::Media { port, peer } => Some((port, Sender::OfMedia(peer))),
            Self::Shared { .. } => None,
        }
    }

    pub(crate) fn max_segments(&self) -> usize {
        match self {
            Self::Own { port, .. } => port.max_segments(),
            // The kernel refuses to segment what it has to fragment.
            Self::Media { .. } => 1,
            Self::Shared { port, .. } => port.max_segments(),
        }
    }

    /// Whether `error` means that the socket is of no use any more, so that the flow has to end
    /// (RFC 9298, Section 3.1). A socket of several flows tells nothing of one peer.
    pub(crate) fn is_fatal(&self, error: &io::Error) -> bool {
        !matches!(self, Self::Shared { .. })
            && matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
            )
    }
}
