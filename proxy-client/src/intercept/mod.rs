//! Interception of flows: listening sockets, and learning the destination of a flow.
//!
//! A listener has one [`Mode`]. For each accepted connection the event loop makes a [`Handshake`],
//! feeds it the client's bytes until it is [`Step::Ready`], connects the flow through the tunnel,
//! and sends [`Handshake::success_reply`] or [`Handshake::failure_reply`] to the client.
//!
//! | mode | destination | a failed connect looks like |
//! |---|---|---|
//! | [`Mode::Tproxy`] | the accepted socket's own address | reset |
//! | [`Mode::Redirect`] | conntrack's original destination | reset |
//! | [`Mode::ProxyProtocol`] | PROXY header, version 1 or 2 | reset |
//! | [`Mode::HttpConnect`] | the target of CONNECT, or the URL of a request in absolute form | 5xx with `Proxy-Status` |
//! | [`Mode::Socks5`] | the request's address | reply code |
//! | [`Mode::Static`] | the configuration | reset |
//!
//! UDP is intercepted by [`InterceptingUdpSocket`], without a handshake: each datagram comes with its destination.
//!
//! The packet filter rules that the transparent modes need are in `deploy/nftables/`.

mod handshake;
mod listen_tcp;
mod listen_udp;
mod listen_unix;
mod mode;
mod original;

pub use handshake::{Handshake, MAX_HANDSHAKE_BYTES, Reject, RejectReason, Step};
pub use listen_tcp::{TcpListenError, listen_tcp, listen_tcp_alone};
pub use listen_udp::{DatagramBuffer, InterceptedDatagram, InterceptingUdpSocket};
pub use listen_unix::{UnixListenError, UnixSocket};
pub use mode::{BACKLOG, Mode};
pub(crate) use original::is_listener;
pub use original::{KernelInterception, OriginalDestinationError, original_destination};

/// The mark (`SO_MARK`) that every socket of Millrace that leaves this machine must carry: the
/// tunnel's UDP sockets and the sockets of bypassed flows. The rules in `deploy/nftables/` let marked
/// packets pass, so the proxies never intercept their own traffic.
pub const OWN_TRAFFIC_MARK: u32 = 0x4d52;

#[cfg(test)]
mod netns_tests;
