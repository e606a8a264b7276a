//! How flows come in: listening sockets, and finding out where a flow wants to go.
//!
//! A listener has one [`Mode`]. For each accepted connection the event loop makes a [`Handshake`],
//! feeds it the client's bytes until it is [`Step::Ready`], connects the flow through the tunnel,
//! and sends [`Handshake::success_reply`] or [`Handshake::failure_reply`] to the client.
//!
//! | mode | destination | a failed connect looks like |
//! |---|---|---|
//! | [`Mode::Tproxy`] | the accepted socket's own address | reset |
//! | [`Mode::Redirect`] | what conntrack remembers | reset |
//! | [`Mode::ProxyProtocol`] | PROXY header, version 1 or 2 | reset |
//! | [`Mode::HttpConnect`] | the request's target | 5xx with `Proxy-Status` |
//! | [`Mode::Socks5`] | the request's address | reply code |
//! | [`Mode::Fixed`] | the configuration | reset |
//!
//! The packet filter rules that the transparent modes need are in `nftables/`.

mod handshake;
mod listen_tcp;
mod listen_unix;
mod original;

use millrace_wire::Destination;

pub use handshake::{Handshake, MAX_HANDSHAKE_BYTES, Reject, RejectReason, Step};
pub use listen_tcp::{TcpListenError, listen_tcp, listen_tcp_alone};
pub use listen_unix::{UnixListenError, UnixSocket};
pub use original::{Interception, OriginalDestinationError, original_destination};

/// Backlog of a listening socket, in connections; the kernel caps it at `net.core.somaxconn`.
pub const BACKLOG: i32 = 1024;

/// The mark (`SO_MARK`) that every socket of Millrace that leaves this machine must carry: the
/// tunnel's UDP sockets and whatever a proxy dials itself. The rules in `nftables/` let marked
/// packets pass, so the proxies never intercept their own traffic.
pub const OWN_TRAFFIC_MARK: u32 = 0x4d52;

/// How a listener learns where a flow wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The kernel handed over packets meant for someone else (nftables `tproxy`).
    Tproxy,
    /// The kernel rewrote the packets' destination (nftables `redirect`).
    Redirect,
    /// A PROXY protocol header of version 1 or 2 comes first, from nginx for one.
    ProxyProtocol,
    /// The client asks by HTTP/1.1 CONNECT.
    HttpConnect,
    /// The client asks by SOCKS5.
    Socks5,
    /// All flows of this listener go to one place.
    Fixed(Destination),
}

#[cfg(test)]
mod netns_tests;
