//! Listeners that take datagrams.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_config::FailMode;
use millrace_tunnel::address_sharing::AddressSharing;
use millrace_tunnel::datagrams::LocalSocket;
use millrace_tunnel::udp::{PortOptions, UdpPort};
use millrace_wire::Destination;
use mio::{Interest, Registry, Token};

use super::reply_ports::ReplyPorts;
use crate::intercept::{InterceptingUdpSocket, is_listener};

/// A UDP socket of the client that takes datagrams, with the settings of its `[[listen]]`.
#[derive(Debug)]
pub struct UdpListener {
    pub(crate) socket: DatagramSocket,
    pub(crate) group: usize,
    /// Whether datagrams may be waiting.
    pub(crate) readable: bool,
    replies: ReplyPorts,
    fail_mode: FailMode,
    /// Whether datagrams are led to it.
    open: bool,
    /// Whether a failure to open or close it has been logged.
    failure_logged: bool,
}

/// Where datagrams arrive, and how the destination of their flow is learnt.
#[derive(Clone, Debug)]
pub(crate) enum DatagramSocket {
    /// All go to the same destination.
    Static(Arc<UdpPort>, Destination),
    /// The kernel tells the destination of each.
    Intercepting(Arc<InterceptingUdpSocket>),
}

/// A datagram can't begin a flow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoUdpFlow {
    /// It was not intercepted.
    #[error("it was sent to the listener itself")]
    Loop,
    /// Its destination can't be named.
    #[error("no datagram can go to its destination")]
    Destination,
    /// There is no socket that sends from its destination.
    #[error("can't send from its destination: {0}")]
    ReplyPort(io::Error),
}

impl UdpListener {
    /// Binds `address` for datagrams to one destination. Workers may share it: all datagrams of one source go to the
    /// same worker.
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
        let socket = DatagramSocket::Static(Arc::new(port), destination);
        Ok(Self::new(socket, address, group, None, FailMode::Closed))
    }

    /// Binds `address` for datagrams that nftables `tproxy` leads there. `mark` is that of the answers. With
    /// [`FailMode::Open`] the packet filter's rules decide on datagrams while no server is usable.
    ///
    /// # Errors
    /// As bind(2); it needs `CAP_NET_ADMIN`.
    pub fn bind_intercepting(
        address: SocketAddr,
        sharing: AddressSharing,
        group: usize,
        mark: Option<u32>,
        fail_mode: FailMode,
    ) -> io::Result<Self> {
        let socket = InterceptingUdpSocket::bind(address, true, sharing)?;
        let socket = DatagramSocket::Intercepting(Arc::new(socket));
        Ok(Self::new(socket, address, group, mark, fail_mode))
    }

    fn new(
        socket: DatagramSocket,
        address: SocketAddr,
        group: usize,
        mark: Option<u32>,
        fail_mode: FailMode,
    ) -> Self {
        Self {
            socket,
            group,
            readable: false,
            replies: ReplyPorts::new(address.is_ipv4(), mark),
            fail_mode,
            open: true,
            failure_logged: false,
        }
    }

    /// The address that it is bound to.
    pub fn local(&self) -> SocketAddr {
        match &self.socket {
            DatagramSocket::Static(port, _) => port.local(),
            DatagramSocket::Intercepting(socket) => socket.local(),
        }
    }

    /// Registers it with an event loop, before it takes datagrams.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        const ALONE: &str = "no flow has it yet";
        match &mut self.socket {
            DatagramSocket::Static(port, _) => {
                let port = Arc::get_mut(port).expect(ALONE);
                registry.register(port.source(), token, Interest::READABLE)
            }
            DatagramSocket::Intercepting(socket) => {
                let socket = Arc::get_mut(socket).expect(ALONE);
                registry.register(socket.source(), token, Interest::READABLE)
            }
        }
    }

    /// Says whether a server is usable.
    pub(crate) fn on_servers(&mut self, usable: bool) {
        let DatagramSocket::Intercepting(socket) = &self.socket else { return };
        let open = usable || self.fail_mode == FailMode::Closed;
        if open == self.open {
            return;
        }
        match socket.set_transparent(open) {
            Ok(()) => (self.open, self.failure_logged) = (open, false),
            Err(error) if !self.failure_logged => {
                self.failure_logged = true;
                let listener = socket.local();
                tracing::error!(open, %listener, %error, "failed to change listener state");
            }
            Err(_) => {}
        }
    }

    /// What of a datagram's destination makes its flow another one than those of the same source.
    pub(crate) fn original_destination(&self, to: SocketAddr) -> Option<SocketAddr> {
        matches!(self.socket, DatagramSocket::Intercepting(_)).then_some(to)
    }

    /// Where the flow of a datagram goes, and where its answers leave.
    pub(crate) fn begin_flow(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<(Destination, LocalSocket), NoUdpFlow> {
        let (destination, port) = match &self.socket {
            DatagramSocket::Static(port, destination) => (destination.clone(), port.clone()),
            DatagramSocket::Intercepting(socket) => {
                if is_listener(to, socket.local()) {
                    return Err(NoUdpFlow::Loop);
                }
                let destination =
                    Destination::from_address(to).map_err(|_| NoUdpFlow::Destination)?;
                (destination, self.replies.of(to).map_err(NoUdpFlow::ReplyPort)?)
            }
        };
        Ok((destination, LocalSocket::Shared { port, peer: from, local: to.ip() }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn datagrams_to_the_listener_itself_begin_no_flow() {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let socket = InterceptingUdpSocket::bind(any, false, AddressSharing::Alone).unwrap();
        let own = socket.local();
        let socket = DatagramSocket::Intercepting(Arc::new(socket));
        let mut listener = UdpListener::new(socket, own, 0, None, FailMode::Closed);
        let from = (Ipv4Addr::LOCALHOST, 1).into();
        assert!(matches!(listener.begin_flow(from, own), Err(NoUdpFlow::Loop)));
        let no_port = (Ipv4Addr::LOCALHOST, 0).into();
        assert!(matches!(listener.begin_flow(from, no_port), Err(NoUdpFlow::Destination)));
    }

    #[test]
    fn only_an_intercepting_listener_tells_flows_apart_by_their_destination() {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let to = (Ipv4Addr::LOCALHOST, 443).into();
        let fixed = UdpListener::bind(
            any,
            AddressSharing::Alone,
            Destination::from_address(to).unwrap(),
            0,
        );
        assert_eq!(fixed.unwrap().original_destination(to), None);
        let socket = InterceptingUdpSocket::bind(any, false, AddressSharing::Alone).unwrap();
        let socket = DatagramSocket::Intercepting(Arc::new(socket));
        let intercepting = UdpListener::new(socket, any, 0, None, FailMode::Closed);
        assert_eq!(intercepting.original_destination(to), Some(to));
    }
}
