//! The original destination of an intercepted connection.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsFd,
};

use socket2::SockRef;

/// How the kernel intercepted the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelInterception {
    /// nftables `tproxy`: the local address of the accepted socket is the original destination.
    Tproxy,
    /// nftables `redirect`: conntrack has the original destination.
    Redirect,
}

/// An accepted connection has no original destination that could be dialled.
#[derive(Debug, thiserror::Error)]
pub enum OriginalDestinationError {
    /// The kernel does not know it.
    #[error("the kernel does not know the connection's original destination ({step}: {error})")]
    Unknown {
        /// The system call that failed.
        step: &'static str,
        /// The error.
        error: io::Error,
    },
    /// A client connected to the listener itself, so nothing was intercepted. Dialling the
    /// destination would loop.
    #[error("a client connected to the listener itself ({0}); only intercepted flows are served")]
    Loop(SocketAddr),
}

/// The address that the client of an accepted connection meant to reach.
///
/// `listening` is the listener's own address ([`std::net::TcpListener::local_addr`]); it may be a
/// wildcard.
///
/// # Errors
/// [`OriginalDestinationError::Loop`] if that is the listener itself,
/// [`OriginalDestinationError::Unknown`] if the kernel does not know it (for REDIRECT: the connection
/// is not in conntrack's table).
pub fn original_destination(
    interception: KernelInterception,
    accepted: &impl AsFd,
    listening: SocketAddr,
) -> Result<SocketAddr, OriginalDestinationError> {
    let socket = SockRef::from(accepted);
    let unknown = |step| move |error| OriginalDestinationError::Unknown { step, error };
    let local = ip_address(socket.local_addr()).map_err(unknown("getsockname"))?;
    let original = match interception {
        KernelInterception::Tproxy => local,
        KernelInterception::Redirect if local.is_ipv4() => {
            ip_address(socket.original_dst_v4()).map_err(unknown("SO_ORIGINAL_DST"))?
        }
        KernelInterception::Redirect => {
            ip_address(socket.original_dst_v6()).map_err(unknown("IP6T_SO_ORIGINAL_DST"))?
        }
    };
    if is_listener(original, listening) {
        return Err(OriginalDestinationError::Loop(original));
    }
    Ok(original)
}

/// Whether `original` is an address of the listener, which may listen on all addresses.
pub(crate) fn is_listener(original: SocketAddr, listening: SocketAddr) -> bool {
    original.port() == listening.port()
        && original.is_ipv4() == listening.is_ipv4()
        && (original.ip() == listening.ip()
            || (listening.ip().is_unspecified() && is_local(original.ip())))
}

/// Whether a socket can be bound to the address, which means that it is local. With
/// `ip_nonlocal_bind` every address counts, so that a flow to the listener's port on another host is
/// refused: safe, and rare.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

fn ip_address(address: io::Result<socket2::SockAddr>) -> io::Result<SocketAddr> {
    let address = address?.as_socket().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "not a TCP connection over IP")
    })?;
    Ok((address.ip().to_canonical(), address.port()).into())
}

#[cfg(test)]
#[path = "original_tests.rs"]
mod tests;
