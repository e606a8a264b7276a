//! Local resources that connections to destinations can exhaust, and the remedy for each.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::Socket;

/// What is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// All ports towards the destination are in use.
    Ports,
    /// The process or the system has no file descriptor left.
    Descriptors,
    /// The kernel has no memory left for sockets.
    Memory,
    /// The machine does not have the address of `dial.bind_source`.
    SourceAddress,
}

impl Shortage {
    /// What an error of socket(2), connect(2) or epoll_ctl(2) says; `None` when this machine lacks
    /// nothing.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            // connect(2): EAGAIN for UDP, EADDRINUSE and EADDRNOTAVAIL for TCP.
            libc::EADDRINUSE | libc::EADDRNOTAVAIL | libc::EAGAIN => Some(Self::Ports),
            libc::EMFILE | libc::ENFILE => Some(Self::Descriptors),
            // ENOSPC: fs.epoll.max_user_watches.
            libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC => Some(Self::Memory),
            _ => None,
        }
    }

    /// What is wrong, and what would be right.
    fn advice(self) -> &'static str {
        match self {
            Self::Ports => {
                "no local port is left towards the destination; widen \
                 net.ipv4.ip_local_port_range"
            }
            Self::Descriptors => {
                "no file descriptor is left; raise the limit (ulimit -n, LimitNOFILE= of systemd, \
                 fs.file-max) or lower limits.max_flows"
            }
            Self::Memory => {
                "the kernel has no memory left for sockets; raise net.ipv4.tcp_mem and \
                 fs.epoll.max_user_watches, or lower limits.max_flows"
            }
            Self::SourceAddress => {
                "this machine does not have the address of dial.bind_source; correct the key or \
                 add the address"
            }
        }
    }

    /// Logs it.
    pub fn log(self, error: &io::Error, destination: SocketAddr) {
        let advice = self.advice();
        tracing::warn!(%error, %destination, advice, "not connected: local resources exhausted");
    }
}

/// Logs what this machine lacks, if that is why a destination could not be connected.
pub fn log_shortage(error: &io::Error, destination: SocketAddr) {
    if let Some(shortage) = Shortage::of(error) {
        shortage.log(error, destination);
    }
}

/// Lets a socket that is about to connect do so from `source`. Its port is chosen at connect(2), so
/// that connections to several destinations can share one.
///
/// # Errors
/// As bind(2); the machine may not have the address.
pub fn bind_source(socket: &Socket, source: IpAddr, destination: SocketAddr) -> io::Result<()> {
    setsockopt(socket, sockopt::IpBindAddressNoPort, &true)?;
    socket.bind(&SocketAddr::new(source, 0).into()).inspect_err(|error| {
        if error.kind() == io::ErrorKind::AddrNotAvailable {
            Shortage::SourceAddress.log(error, destination);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::ConnectFailure;

    #[test]
    fn every_shortage_is_reported_as_local() {
        for errno in [
            libc::EADDRINUSE,
            libc::EADDRNOTAVAIL,
            libc::EAGAIN,
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::ENOSPC,
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert!(Shortage::of(&error).is_some(), "{error}");
            assert_eq!(ConnectFailure::from(&error), ConnectFailure::LocalResources, "{error}");
        }
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!(Shortage::of(&refused), None);
    }

    #[test]
    fn sockets_share_a_bound_source_address() {
        use socket2::{Domain, Type};
        for (family, source) in [(Domain::IPV4, "127.0.0.1"), (Domain::IPV6, "::1")] {
            let socket = Socket::new(family, Type::STREAM, None).expect("a socket");
            let source: IpAddr = source.parse().expect("an address");
            bind_source(&socket, source, (source, 9).into()).expect("loopback");
            let local = socket.local_addr().expect("bound").as_socket().expect("IP");
            assert_eq!((local.ip(), local.port()), (source, 0), "no port before connect(2)");
        }
    }
}
