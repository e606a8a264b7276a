//! How and where a listener takes flows.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::value::HostPort;

/// How a listener learns where a flow wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interception {
    /// The socket's own address, kept by nftables `tproxy`.
    Tproxy,
    /// UDP, to where each datagram was sent, kept by nftables `tproxy`. Each source address with each destination
    /// is a flow.
    TproxyUdp,
    /// `SO_ORIGINAL_DST`, after nftables `redirect`.
    Redirect,
    /// A PROXY protocol header, version 1 or 2.
    ProxyProtocol,
    /// An HTTP/1.1 CONNECT request, or a request in absolute form.
    HttpConnect,
    /// A SOCKS5 CONNECT request (RFC 1928).
    Socks5,
    /// Always the same; key `destination`.
    Static {
        /// Where all its flows go.
        destination: HostPort,
    },
    /// UDP, always to the same; key `destination`. Each source address is a flow.
    Udp {
        /// Where all its flows go.
        destination: HostPort,
    },
}

impl Interception {
    /// Whether its flows are UDP flows.
    pub fn is_udp(&self) -> bool {
        matches!(self, Self::TproxyUdp | Self::Udp { .. })
    }

    /// Whether packet filter rules of this host lead flows to it.
    pub fn intercepts(&self) -> bool {
        matches!(self, Self::Tproxy | Self::TproxyUdp | Self::Redirect)
    }

    /// Whether it is the client that says where its flow goes, and not the kernel or the operator.
    pub fn names_destinations(&self) -> bool {
        matches!(self, Self::ProxyProtocol | Self::HttpConnect | Self::Socks5)
    }

    /// The mode, if all flows have the same destination.
    pub(crate) fn fixed_destination_mode(&self) -> Option<&'static str> {
        matches!(self, Self::Static { .. } | Self::Udp { .. }).then(|| self.as_str())
    }

    /// The name in configurations and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Tproxy | Self::TproxyUdp => "tproxy",
            Self::Redirect => "redirect",
            Self::ProxyProtocol => "proxy_protocol",
            Self::HttpConnect => "http_connect",
            Self::Socks5 => "socks5",
            Self::Static { .. } => "static",
            Self::Udp { .. } => "udp",
        }
    }
}

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A TCP address, or a UDP address where flows are UDP flows; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
