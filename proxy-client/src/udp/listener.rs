//! Listeners of mode `udp`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_tunnel::address_sharing::AddressSharing;
use millrace_tunnel::udp::{PortOptions, UdpPort};
use millrace_wire::Destination;

/// A UDP socket of the client that takes datagrams, with the settings of its `[[listen]]`.
#[derive(Debug)]
pub struct UdpListener {
    pub(crate) port: Arc<UdpPort>,
    pub(crate) destination: Destination,
    pub(crate) group: usize,
    /// Whether datagrams may be waiting.
    pub(crate) readable: bool,
}

impl UdpListener {
    /// Binds `address`. Workers may share it: all datagrams of one source go to the same worker.
    ///
    /// # Errors
    /// As bind(2).
    pub fn bind(
        address: SocketAddr,
        sharing: AddressSharing,
        destination: Destination,
        group: usize,
    ) -> io::Result<Self> {
        let port = UdpPort::bind(address, PortOptions { sharing, mark: None })?;
        Ok(Self { port: Arc::new(port), destination, group, readable: false })
    }

    /// The address that it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.port.local()
    }
}
