//! Sockets from which the clients of intercepted UDP flows are answered.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use millrace_tunnel::udp::UdpPort;

/// Sockets of one listener at one worker. Each is for all destinations with one port: a packet filter that leads more
/// ports than these here is better given several listeners.
const MAX_REPLY_PORTS: usize = 256;

/// The sockets of one listener, one for each port of the destinations of its flows. A socket lives as long as a flow
/// has it.
#[derive(Debug)]
pub(crate) struct ReplyPorts {
    ports: HashMap<u16, Weak<UdpPort>>,
    is_ipv4: bool,
    mark: Option<u32>,
}

impl ReplyPorts {
    /// For the flows of a listener of one family. `mark` lets packet filter rules tell the answers from intercepted
    /// packets.
    pub(crate) fn new(is_ipv4: bool, mark: Option<u32>) -> Self {
        Self { ports: HashMap::new(), is_ipv4, mark }
    }

    /// The socket that sends from `destination`.
    ///
    /// # Errors
    /// As [`UdpPort::sender_from_any_address`], and when there are too many ports.
    pub(crate) fn of(&mut self, destination: SocketAddr) -> io::Result<Arc<UdpPort>> {
        let (is_ipv4, mark) = (self.is_ipv4, self.mark);
        self.of_port(destination.port(), |port| {
            UdpPort::sender_from_any_address(port, is_ipv4, mark)
        })
    }

    fn of_port(
        &mut self,
        port: u16,
        make: impl FnOnce(u16) -> io::Result<UdpPort>,
    ) -> io::Result<Arc<UdpPort>> {
        if let Some(socket) = self.ports.get(&port).and_then(Weak::upgrade) {
            return Ok(socket);
        }
        self.ports.retain(|_, socket| socket.strong_count() > 0);
        if self.ports.len() >= MAX_REPLY_PORTS {
            let problem = format!("flows to {MAX_REPLY_PORTS} destination ports run already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, problem));
        }
        let socket = Arc::new(make(port)?);
        self.ports.insert(port, Arc::downgrade(&socket));
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_tunnel::udp::PortOptions;

    use super::*;

    fn any_port(_: u16) -> io::Result<UdpPort> {
        UdpPort::bind((Ipv4Addr::LOCALHOST, 0).into(), PortOptions::default())
    }

    #[test]
    fn flows_to_one_port_share_a_socket_that_ends_with_the_last() {
        let mut ports = ReplyPorts::new(true, None);
        let first = ports.of_port(443, any_port).unwrap();
        let second = ports.of_port(443, |_| panic!("there is one")).unwrap();
        let local = first.local();
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(ports.of_port(443, |_| panic!("there is one")).unwrap().local(), local);
        drop(second);
        let mut made = false;
        let _third = ports.of_port(443, |port| {
            made = true;
            any_port(port)
        });
        assert!(made);
    }

    #[test]
    fn their_number_is_bounded_by_those_in_use() {
        let mut ports = ReplyPorts::new(true, None);
        let most = u16::try_from(MAX_REPLY_PORTS).unwrap();
        let mut used: Vec<_> =
            (0..most).map(|port| ports.of_port(port, any_port).unwrap()).collect();
        let refused = ports.of_port(most, |_| panic!("it is one too many")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        used.pop();
        ports.of_port(most, any_port).unwrap();
    }
}
