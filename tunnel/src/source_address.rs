//! Which of its addresses this machine sends from.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

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
