//! UDP sockets that a service manager has bound and passes on: `LISTEN_FDS` of sd_listen_fds(3), as with a
//! `.socket` unit of systemd.
//!
//! The manager keeps them while the service restarts, so that the port is never free for another process, and
//! a process without privileges can have a port below 1024. Nothing else lets a second process have the port
//! ([`millrace_tunnel::address_sharing`]).

use std::io;
use std::net::{SocketAddr, UdpSocket};

use listenfd::ListenFd;
use socket2::SockRef;

/// Why inherited sockets can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritedSocketError {
    /// Not a UDP socket over IP.
    #[error(
        "inherited socket {index} (LISTEN_FDS): {source}; ListenDatagram= with an IP address is right"
    )]
    NotUdp {
        /// From 0 on, in the order of the service manager.
        index: usize,
        /// What the system says.
        source: io::Error,
    },
    /// Over IPv6 and IPv4 at once.
    #[error(
        "the inherited socket of {0} also receives IPv4; BindIPv6Only=ipv6-only in the .socket unit and a second \
         ListenDatagram= are right"
    )]
    DualStack(SocketAddr),
    /// An address that the configuration does not have.
    #[error(
        "the inherited socket of {0} is not in tunnel.listen; add its address there, or take it away"
    )]
    NotConfigured(SocketAddr),
}

/// The sockets that this process has inherited and not used yet.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<(SocketAddr, UdpSocket)>);

impl InheritedSockets {
    /// Takes the sockets that the environment announces to this process. To be called once.
    ///
    /// # Errors
    /// One of them can't carry a tunnel.
    pub fn from_environment() -> Result<Self, InheritedSocketError> {
        let mut listed = ListenFd::from_env();
        let inherited = listed.len();
        let take = |index| {
            let socket = listed.take_udp_socket(index).transpose()?;
            Some(socket.map_err(|source| InheritedSocketError::NotUdp { index, source }))
        };
        (0..inherited).filter_map(take).collect::<Result<Vec<_>, _>>().and_then(Self::new)
    }

    fn new(sockets: Vec<UdpSocket>) -> Result<Self, InheritedSocketError> {
        let checked = |(index, socket): (usize, UdpSocket)| {
            let not_udp = |source| InheritedSocketError::NotUdp { index, source };
            let address = socket.local_addr().map_err(not_udp)?;
            if address.is_ipv6() && !SockRef::from(&socket).only_v6().map_err(not_udp)? {
                return Err(InheritedSocketError::DualStack(address));
            }
            Ok((address, socket))
        };
        sockets.into_iter().enumerate().map(checked).collect::<Result<_, _>>().map(Self)
    }

    /// Takes out the sockets of `address`: one, or more for more workers.
    pub fn take(&mut self, address: SocketAddr) -> Vec<UdpSocket> {
        let (of_address, others) = self.0.drain(..).partition(|(bound, _)| *bound == address);
        self.0 = others;
        let of_address: Vec<_> = of_address;
        of_address.into_iter().map(|(_, socket)| socket).collect()
    }

    /// Checks that each of them has one of the addresses in `configured`.
    ///
    /// # Errors
    /// The first one that has not.
    pub fn check(&self, configured: &[SocketAddr]) -> Result<(), InheritedSocketError> {
        let other = self.0.iter().find(|(address, _)| !configured.contains(address));
        other.map_or(Ok(()), |(address, _)| Err(InheritedSocketError::NotConfigured(*address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(address: &str) -> UdpSocket {
        UdpSocket::bind(address).expect("loopback")
    }

    #[test]
    fn sockets_are_taken_by_their_address() {
        let (one, other) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let (address, left) =
            (one.local_addr().expect("bound"), other.local_addr().expect("bound"));
        let mut sockets = InheritedSockets::new(vec![one, other]).expect("two of IPv4");
        sockets.check(&[address, left]).expect("both are configured");
        let error = sockets.check(&[address]).expect_err("one is not").to_string();
        assert!(error.contains(&left.to_string()) && error.contains("tunnel.listen"), "{error}");
        assert_eq!(sockets.take(address).len(), 1);
        assert_eq!(sockets.take(address).len(), 0);
        assert_eq!(sockets.take(left).len(), 1);
    }

    #[test]
    fn socket_of_both_families_is_refused() {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None);
        let socket = socket.expect("IPv6");
        socket.set_only_v6(false).expect("dual stack");
        let any: SocketAddr = "[::]:0".parse().expect("an address");
        socket.bind(&any.into()).expect("a port");
        let error = InheritedSockets::new(vec![socket.into()]).expect_err("both families");
        assert!(error.to_string().contains("BindIPv6Only"), "{error}");
    }
}
