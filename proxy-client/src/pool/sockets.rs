//! The UDP sockets of a worker's connections.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use millrace_tunnel::address_sharing::AddressSharing;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::udp::{PortOptions, UdpPort};

/// One socket for each address family that the host supports.
#[derive(Debug, Default)]
pub(crate) struct TunnelSockets {
    /// Numbers of the event loop, by whether the socket is for IPv4.
    ports: HashMap<bool, usize>,
}

impl TunnelSockets {
    /// Binds the sockets.
    ///
    /// # Errors
    /// No socket can be bound, or the mark can't be set.
    pub(crate) fn bind(&mut self, core: &mut Core, mark: Option<u32>) -> io::Result<()> {
        let options = PortOptions { sharing: AddressSharing::Alone, mark };
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut failure = None;
        for ip in any {
            match UdpPort::bind(SocketAddr::new(ip, 0), options) {
                Ok(port) => {
                    self.ports.insert(ip.is_ipv4(), core.add_port(port)?);
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if self.ports.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// The number of the socket for connections to `address`.
    ///
    /// # Errors
    /// The host does not support its address family.
    pub(crate) fn of(&self, address: SocketAddr) -> io::Result<usize> {
        let no_family = || io::Error::other("no socket of the server's address family");
        self.ports.get(&address.is_ipv4()).copied().ok_or_else(no_family)
    }
}
