//! UDP sockets that take datagrams for other addresses.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use millrace_tunnel::address_sharing::AddressSharing;
use mio::net::UdpSocket;
use nix::cmsg_space;
use nix::sys::socket::sockopt::{Ipv4OrigDstAddr, Ipv6OrigDstAddr};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, setsockopt,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Asked of the kernel for what arrives while the event loop is busy elsewhere, of all flows together; it grants at
/// most `net.core.rmem_max`.
const RECV_BUFFER_BYTES: usize = 8 << 20;
/// Longer than any UDP payload.
const MAX_DATAGRAM_BYTES: usize = 65_536;

/// A UDP socket that tells the original destination of each datagram.
#[derive(Debug)]
pub struct InterceptingUdpSocket {
    socket: UdpSocket,
    local: SocketAddr,
}

/// What [`InterceptingUdpSocket::receive`] needs; sockets can share it.
#[derive(Debug)]
pub struct DatagramBuffer {
    payload: Vec<u8>,
    control: Vec<u8>,
}

impl Default for DatagramBuffer {
    fn default() -> Self {
        Self {
            payload: vec![0; MAX_DATAGRAM_BYTES],
            control: cmsg_space!(libc::sockaddr_in, libc::sockaddr_in6),
        }
    }
}

/// A datagram as its sender sent it.
#[derive(Debug, PartialEq, Eq)]
pub struct InterceptedDatagram<'a> {
    /// Its source.
    pub from: SocketAddr,
    /// Its original destination.
    pub to: SocketAddr,
    /// Its payload.
    pub payload: &'a [u8],
}

impl InterceptingUdpSocket {
    /// Binds `address`. An IPv6 socket is IPv6-only. Without `transparent` it tells its own address as the
    /// destination, as nothing else can arrive.
    ///
    /// # Errors
    /// As the system says; `transparent` needs `CAP_NET_ADMIN`.
    pub fn bind(
        address: SocketAddr,
        transparent: bool,
        sharing: AddressSharing,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        // Granting less is no error; the start-up check has told the operator.
        socket.set_recv_buffer_size(RECV_BUFFER_BYTES)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
            setsockopt(&socket, Ipv6OrigDstAddr, &true)?;
        } else {
            setsockopt(&socket, Ipv4OrigDstAddr, &true)?;
        }
        sharing.bind(&socket, address)?;
        let socket = UdpSocket::from_std(socket.into());
        let local = socket.local_addr()?;
        let socket = Self { socket, local };
        if transparent {
            socket.set_transparent(true)?;
        }
        Ok(socket)
    }

    /// Whether `tproxy` rules lead datagrams to it. Without, they go on as if the socket were closed, and those that
    /// wait are still received.
    ///
    /// # Errors
    /// As setsockopt(2): `true` needs `CAP_NET_ADMIN`.
    pub fn set_transparent(&self, transparent: bool) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        match self.local.is_ipv4() {
            true => socket.set_ip_transparent_v4(transparent),
            false => socket.set_ip_transparent_v6(transparent),
        }
    }

    /// The address that it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// For registration with an event loop.
    pub fn source(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }

    /// Takes one datagram; `None` for one whose destination the kernel does not tell.
    ///
    /// # Errors
    /// As recvmsg(2); `WouldBlock` when none is waiting.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut DatagramBuffer,
    ) -> io::Result<Option<InterceptedDatagram<'a>>> {
        let DatagramBuffer { payload, control } = buffer;
        let mut slices = [IoSliceMut::new(payload)];
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(control),
            MsgFlags::empty(),
        )?;
        let from = message.address.as_ref().and_then(socket_address);
        let to = message.cmsgs()?.find_map(|it| match it {
            ControlMessageOwned::Ipv4OrigDstAddr(address) => Some(SockaddrIn::from(address).into()),
            ControlMessageOwned::Ipv6OrigDstAddr(address) => {
                Some(SockaddrIn6::from(address).into())
            }
            _ => None,
        });
        let length = message.bytes;
        Ok(from.zip(to).map(|(from, to)| InterceptedDatagram {
            from,
            to,
            payload: &payload[..length],
        }))
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|it| SocketAddr::from(*it));
    v4.or_else(|| address.as_sockaddr_in6().map(|it| SocketAddr::from(*it)))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn datagrams_come_with_their_destination() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let any = SocketAddr::new(ip, 0);
            let socket = InterceptingUdpSocket::bind(any, false, AddressSharing::Alone).unwrap();
            let client = std::net::UdpSocket::bind(any).unwrap();
            let from = client.local_addr().unwrap();
            let mut buffer = DatagramBuffer::default();
            for payload in [&b"first"[..], b"", b"a longer one"] {
                // Over the loopback it has arrived when the call returns.
                client.send_to(payload, socket.local()).unwrap();
                let expected = InterceptedDatagram { from, to: socket.local(), payload };
                assert_eq!(socket.receive(&mut buffer).unwrap(), Some(expected));
            }
            let error = socket.receive(&mut buffer).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn both_families_share_a_port() {
        let any = (Ipv6Addr::UNSPECIFIED, 0).into();
        let v6 = InterceptingUdpSocket::bind(any, false, AddressSharing::Alone).unwrap();
        let same = (Ipv4Addr::UNSPECIFIED, v6.local().port()).into();
        InterceptingUdpSocket::bind(same, false, AddressSharing::Alone).unwrap();
    }
}
