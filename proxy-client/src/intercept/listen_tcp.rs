//! Listening TCP sockets.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use millrace_tunnel::address_sharing::AddressSharing;
use socket2::{Domain, Protocol, Socket, Type};

use super::mode::BACKLOG;

/// A TCP listening socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on TCP {address}: {step}: {error}{}", hint(.error, .step))]
pub struct TcpListenError {
    /// Address of the socket.
    pub address: SocketAddr,
    /// The system call or socket option that failed.
    pub step: &'static str,
    /// The error.
    pub error: io::Error,
}

const TRANSPARENT: &str = "IP_TRANSPARENT";

fn hint(error: &io::Error, step: &str) -> &'static str {
    match (error.kind(), step) {
        (io::ErrorKind::PermissionDenied, TRANSPARENT) => " (TPROXY needs CAP_NET_ADMIN)",
        (io::ErrorKind::PermissionDenied, "bind") => {
            " (a port below 1024 needs CAP_NET_BIND_SERVICE)"
        }
        (io::ErrorKind::AddrInUse, _) => " (another process listens there)",
        _ => "",
    }
}

/// Opens a nonblocking listening TCP socket.
///
/// With `sharing` each event loop opens its own and the kernel spreads the connections; another
/// process is refused. An IPv6 socket is IPv6-only, so that `0.0.0.0` and `[::]` can be bound beside
/// each other, whatever `net.ipv6.bindv6only` says. `transparent` sets `IP_TRANSPARENT` or
/// `IPV6_TRANSPARENT`, which TPROXY needs.
///
/// # Errors
/// Names the address, the step that failed, and the capability that is missing, if one is.
pub fn listen_tcp(
    address: SocketAddr,
    transparent: bool,
    sharing: AddressSharing,
) -> Result<TcpListener, TcpListenError> {
    let step = |step: &'static str| move |error: io::Error| TcpListenError { address, step, error };
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )
    .map_err(step("socket"))?;
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(step("IPV6_V6ONLY"))?;
    }
    socket.set_reuse_address(true).map_err(step("SO_REUSEADDR"))?;
    // Urgent data has its place in the stream (RFC 6093 §3); accepted connections inherit it.
    socket.set_out_of_band_inline(true).map_err(step("SO_OOBINLINE"))?;
    if transparent {
        let set = if address.is_ipv6() {
            socket.set_ip_transparent_v6(true)
        } else {
            socket.set_ip_transparent_v4(true)
        };
        set.map_err(step(TRANSPARENT))?;
    }
    sharing.bind(&socket, address).map_err(step("bind"))?;
    socket.listen(BACKLOG).map_err(step("listen"))?;
    Ok(socket.into())
}

/// Opens a socket with `IP_TRANSPARENT` that is not shared, for a program that shares it among its own
/// processes, as nginx does.
///
/// # Errors
/// As [`listen_tcp`].
pub fn listen_tcp_alone(address: SocketAddr) -> Result<TcpListener, TcpListenError> {
    listen_tcp(address, true, AddressSharing::Alone)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};

    use super::*;

    #[test]
    fn both_families_share_a_port_and_loops_share_an_address() {
        let v6 =
            listen_tcp((Ipv6Addr::UNSPECIFIED, 0).into(), false, AddressSharing::First).unwrap();
        let port = v6.local_addr().unwrap().port();
        let v4 =
            listen_tcp((Ipv4Addr::UNSPECIFIED, port).into(), false, AddressSharing::Alone).unwrap();
        let address = v6.local_addr().unwrap();
        let second = listen_tcp(address, false, AddressSharing::Join).unwrap();
        assert_eq!(second.local_addr().unwrap().port(), port);

        let _client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (_, peer) = v4.accept().unwrap();
        assert!(peer.is_ipv4(), "an IPv4 client must not arrive as mapped IPv6");
    }

    #[test]
    fn accepting_does_not_block() {
        let listener =
            listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), false, AddressSharing::Alone).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn an_address_in_use_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let error = listen_tcp(address, false, AddressSharing::Alone).unwrap_err();
        assert_eq!(error.step, "bind");
        let text = error.to_string();
        assert!(text.contains(&address.to_string()) && text.contains("another process"), "{text}");
    }
}
