//! How a listener learns the destination of a flow.

use millrace_wire::Destination;

/// Backlog of a listening socket, in connections; the kernel caps it at `net.core.somaxconn`.
pub const BACKLOG: i32 = 1024;

/// How a listener learns the destination of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The kernel delivers packets for other addresses (nftables `tproxy`).
    Tproxy,
    /// The kernel rewrites the destination of packets (nftables `redirect`).
    Redirect,
    /// A PROXY protocol header of version 1 or 2 comes first, for example from nginx.
    ProxyProtocol,
    /// The client asks by HTTP/1.1 CONNECT, or by a request in absolute form.
    HttpConnect,
    /// The client asks by SOCKS5.
    Socks5,
    /// All flows of this listener have the same destination.
    Static(Destination),
}
