//! A UDP socket with segmentation and receive offload.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use crate::error_queue;
use crate::error_queue::{ErrorQueueEntry, TooBig};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use crate::address_sharing::AddressSharing;
use crate::local_resources::bind_source;
use crate::udp_batch::{self, BatchMessage};

/// Messages taken with one system call; with receive offload each can hold many datagrams.
const RECV_BATCH_MESSAGES: usize = 16;
/// Largest message with receive offload: the kernel never joins more.
const RECV_MESSAGE_BYTES: usize = 65_536;
/// Asked of the kernel for each direction; it grants at most `net.core.{r,w}mem_max`.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;
/// Buffer size asked of the kernel for the socket of one flow: what arrives while an event loop is
/// busy elsewhere.
const FLOW_BUFFER_BYTES: usize = 1 << 20;
/// Largest message with segmentation offload: the largest UDP payload over IPv4.
pub const SEND_MESSAGE_BYTES: usize = 65_507;

/// Attempts of [`UdpPort::send_despite_reports`]: reports may come in between.
const MAX_SEND_ATTEMPTS: usize = 3;

/// Where sockets are bound that send from other addresses: addresses that no host has, so that no datagrams come to
/// these sockets. The dummy addresses of IANA's special-purpose registries (RFC 7600 for IPv4, RFC 9780 for IPv6).
const DUMMY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
const DUMMY_V6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 0);

/// Buffers that the sockets of one worker share.
pub struct RecvBuffers {
    bytes: Vec<u8>,
    meta: [RecvMeta; RECV_BATCH_MESSAGES],
}

impl Default for RecvBuffers {
    fn default() -> Self {
        Self {
            bytes: vec![0; RECV_BATCH_MESSAGES * RECV_MESSAGE_BYTES],
            meta: [RecvMeta::default(); RECV_BATCH_MESSAGES],
        }
    }
}

/// How a socket is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortOptions {
    /// Which other sockets may have the same address.
    pub sharing: AddressSharing,
    /// `SO_MARK`, by which firewall rules leave the tunnel's own packets alone.
    pub mark: Option<u32>,
}

/// The outcome of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    /// It has left, or is as good as lost on the way: a route is away for a moment.
    Sent,
    /// The socket has no room.
    NoRoom,
    /// It is lost, as its datagrams may be too large for the interface.
    Refused,
}

/// A bound UDP socket.
#[derive(Debug)]
pub struct UdpPort {
    socket: mio::net::UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    /// Whether datagrams may leave from addresses that it is not bound to.
    any_source: bool,
    /// Reports of routers that were taken since the last tick.
    pub(crate) reports_taken: usize,
}

impl UdpPort {
    /// Binds `address`.
    ///
    /// # Errors
    /// As the system says; setting a mark needs `CAP_NET_ADMIN`.
    pub fn bind(address: SocketAddr, options: PortOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if let Some(mark) = options.mark {
            socket.set_mark(mark)?;
        }
        options.sharing.bind(&socket, address)?;
        Self::for_tunnel(socket)
    }

    /// Takes over a socket that a service manager has bound.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn inherit(socket: std::net::UdpSocket, sharing: AddressSharing) -> io::Result<Self> {
        let socket = Socket::from(socket);
        socket.set_nonblocking(true)?;
        sharing.inherit(&socket)?;
        Self::for_tunnel(socket)
    }

    fn for_tunnel(socket: Socket) -> io::Result<Self> {
        // Granting less is no error; the start-up check has told the operator.
        socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
        let port = Self::new(socket)?;
        port.state.enable_transport_errors((&port.socket).into())?;
        Ok(port)
    }

    /// A socket that talks to `destination` only, from `source` where one is given.
    ///
    /// # Errors
    /// As the system says: there may be no route.
    pub fn connect(destination: SocketAddr, source: Option<IpAddr>) -> io::Result<Self> {
        let domain = Domain::for_address(destination);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_recv_buffer_size(FLOW_BUFFER_BYTES)?;
        socket.set_send_buffer_size(FLOW_BUFFER_BYTES)?;
        if let Some(source) = source {
            bind_source(&socket, source, destination)?;
        }
        socket.connect(&destination.into())?;
        Self::new(socket)
    }

    /// A socket for media, which may be connected later. Datagrams that are larger than the next link leave in IP
    /// fragments, as origins send them: RTP has no path MTU discovery. `transparent` lets the address be one that is not this
    /// machine's.
    ///
    /// # Errors
    /// As the system says; `transparent` needs `CAP_NET_ADMIN`.
    pub fn reserve(address: SocketAddr, transparent: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_recv_buffer_size(FLOW_BUFFER_BYTES)?;
        socket.set_send_buffer_size(FLOW_BUFFER_BYTES)?;
        match (transparent, address.is_ipv4()) {
            (true, true) => socket.set_ip_transparent_v4(true)?,
            (true, false) => socket.set_ip_transparent_v6(true)?,
            (false, _) => {}
        }
        socket.bind(&address.into())?;
        let port = Self::new(socket)?;
        allow_fragments(&port.socket, address)?;
        Ok(port)
    }

    /// A socket that only sends, from this port of any address of a family, this machine's or not: the `source` of
    /// [`UdpPort::send`]. Several can have the same port.
    ///
    /// # Errors
    /// As the system says; it needs `CAP_NET_ADMIN`, for a port below 1024 `CAP_NET_BIND_SERVICE` too.
    pub fn sender_from_any_address(
        port: u16,
        is_ipv4: bool,
        mark: Option<u32>,
    ) -> io::Result<Self> {
        let ip = if is_ipv4 { IpAddr::from(DUMMY_V4) } else { DUMMY_V6.into() };
        let address = SocketAddr::new(ip, port);
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
        if is_ipv4 {
            socket.set_ip_transparent_v4(true)?;
        } else {
            socket.set_ip_transparent_v6(true)?;
            socket.set_only_v6(true)?;
        }
        if let Some(mark) = mark {
            socket.set_mark(mark)?;
        }
        socket.bind(&address.into())?;
        Ok(Self { any_source: true, ..Self::new(socket)? })
    }

    /// Talks to `peer` only from now on. What others have sent before may still come.
    ///
    /// # Errors
    /// As the system says: there may be no route.
    pub fn connect_to(&self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(peer)
    }

    fn new(socket: Socket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let socket = mio::net::UdpSocket::from_std(socket.into());
        let local = socket.local_addr()?;
        Ok(Self { socket, state, local, any_source: local.ip().is_unspecified(), reports_taken: 0 })
    }

    /// The address it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Hands each packet to the one of `workers` sockets, in the order in which they were bound,
    /// that its connection ID names: by its first byte, modulo `workers`. A connection so stays
    /// with its worker when the peer's address changes. Applies to all sockets of the address.
    ///
    /// # Errors
    /// When the kernel does not take the program.
    pub fn steer_by_connection_id(&self, workers: u32) -> io::Result<()> {
        const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
        const JUMP_IF_SET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
        const MODULO: u16 = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_A) as u16;
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        // The UDP payload: a long header (RFC 8999, Section 5.1) has the length of the
        // destination ID at 5 and the ID at 6, a short one has it at 1.
        let mut program = [
            step(LOAD_BYTE, 0, 0, 0),
            step(JUMP_IF_SET, 0, 2, 0x80),
            step(LOAD_BYTE, 0, 0, 6),
            step((libc::BPF_JMP | libc::BPF_JA) as u16, 0, 0, 1),
            step(LOAD_BYTE, 0, 0, 1),
            step(MODULO, 0, 0, workers),
            step(RETURN, 0, 0, 0),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the option takes a sock_fprog and copies the program during the call.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                (&raw const filter).cast(),
                size_of_val(&filter) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// For registration with an event loop.
    pub fn source(&mut self) -> &mut mio::net::UdpSocket {
        &mut self.socket
    }

    /// Takes one batch and hands each datagram to `take` with its sender and the local
    /// address that it was sent to. `false` when nothing was waiting.
    ///
    /// # Errors
    /// As the system says.
    pub fn receive(
        &self,
        buffers: &mut RecvBuffers,
        mut take: impl FnMut(SocketAddr, SocketAddr, &mut [u8]),
    ) -> io::Result<bool> {
        let mut slices = buffers.bytes.chunks_mut(RECV_MESSAGE_BYTES).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; RECV_BATCH_MESSAGES] =
            std::array::from_fn(|_| slices.next().expect("as many chunks as RECV_BATCH_MESSAGES"));
        let messages = match self.state.recv((&self.socket).into(), &mut slices, &mut buffers.meta)
        {
            Ok(messages) => messages,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        for (message, meta) in slices.iter_mut().zip(&buffers.meta).take(messages) {
            let ip = meta.dst_ip.unwrap_or(self.local.ip());
            let to = SocketAddr::new(ip, self.local.port());
            if meta.len == 0 {
                take(meta.addr, to, &mut []);
            }
            for datagram in message[..meta.len].chunks_mut(meta.stride.max(1)) {
                take(meta.addr, to, datagram);
            }
        }
        Ok(messages > 0)
    }

    /// Sends `contents` as datagrams of `segment` bytes, the last one possibly shorter,
    /// from `source` where the socket can send from it: it is an address of this machine, or the socket is one of
    /// [`UdpPort::sender_from_any_address`].
    ///
    /// # Errors
    /// `WouldBlock` when the socket's buffer is full; otherwise as sendmsg(2).
    pub fn send(
        &self,
        destination: SocketAddr,
        source: IpAddr,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        self.state.try_send(
            (&self.socket).into(),
            &Transmit {
                destination,
                ecn: None,
                contents,
                segment_size: (segment < contents.len()).then_some(segment),
                src_ip: self.source_of(source),
            },
        )
    }

    /// The source of a message that the system has to be told, as in [`UdpPort::send`].
    pub(crate) fn source_of(&self, source: IpAddr) -> Option<IpAddr> {
        (!source.is_unspecified() && self.any_source).then_some(source)
    }

    /// Sends several messages. Returns how many have left: fewer than all when the next one fails.
    ///
    /// # Errors
    /// That of the first message, as for [`UdpPort::send`].
    pub(crate) fn send_batch(&self, messages: &[BatchMessage<'_>]) -> io::Result<usize> {
        udp_batch::send_batch(self.socket.as_raw_fd(), messages)
    }

    /// Sends a message of the tunnel. Recovery knows how to handle what is lost.
    pub(crate) fn send_message(
        &self,
        destination: SocketAddr,
        source: IpAddr,
        contents: &[u8],
        segment: usize,
    ) -> MessageOutcome {
        let Err(error) = self.send_despite_reports(destination, source, contents, segment) else {
            return MessageOutcome::Sent;
        };
        tracing::trace!(to = %destination, %error, "datagram not sent");
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::WouldBlock, _) => MessageOutcome::NoRoom,
            // The latter with segmentation offload.
            (_, Some(libc::EMSGSIZE | libc::EINVAL)) => MessageOutcome::Refused,
            _ => MessageOutcome::Sent,
        }
    }

    /// Sends as [`UdpPort::send`] and retries up to two times: an error may belong to an earlier
    /// datagram that a router has reported (`IP_RECVERR` of ip(7)).
    ///
    /// # Errors
    /// As for [`UdpPort::send`].
    pub fn send_despite_reports(
        &self,
        destination: SocketAddr,
        source: IpAddr,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let mut sent = self.send(destination, source, contents, segment);
        for _ in 1..MAX_SEND_ATTEMPTS {
            match &sent {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
                _ => break,
            }
            sent = self.send(destination, source, contents, segment);
        }
        sent
    }

    /// Passes at most `most` reports that a datagram was too large to `take`; `seen` counts all
    /// entries, including other ones.
    pub(crate) fn take_reports(&self, most: usize, mut take: impl FnMut(TooBig), seen: &mut usize) {
        // An error means that there is nothing to be had.
        while *seen < most
            && let Ok(Some(entry)) = error_queue::take(self.socket.as_raw_fd())
        {
            *seen += 1;
            if let ErrorQueueEntry::TooBig(report) = entry {
                take(report);
            }
        }
    }

    /// Whether reports of routers are taken. Those that wait go when they are not.
    pub(crate) fn receive_reports(&self, on: bool) {
        let (level, option) = match self.local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        let value = libc::c_int::from(on);
        // SAFETY: the option is an int, which is read during the call. It can't fail: the port's
        // first use has set it.
        unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
    }

    /// Uses segmentation offload again after a datagram was refused that was too large for the
    /// interface: the kernel does not tell that from a missing offload (EINVAL for both).
    pub(crate) fn renew_offload(&mut self) {
        if self.state.max_gso_segments() > 1 {
            return;
        }
        // With an error it stays as it is, which only costs system calls.
        if let Ok(state) = UdpSocketState::new((&self.socket).into()) {
            self.state = state;
        }
    }

    /// How many datagrams one message may hold.
    pub fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }
}

/// Lets the kernel and routers fragment what leaves by a socket; `UdpSocketState` forbids it.
fn allow_fragments(socket: &mio::net::UdpSocket, address: SocketAddr) -> io::Result<()> {
    let (level, option, value) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        SocketAddr::V6(_) => {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)
        }
    };
    // SAFETY: the option is an int, which is read during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> UdpPort {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        UdpPort::bind(any, PortOptions { sharing: AddressSharing::Alone, mark: None })
            .expect("loopback")
    }

    #[test]
    fn datagrams_keep_their_boundaries_through_offloads() {
        let (a, b) = (port(), port());
        a.send(b.local(), a.local().ip(), &[], 0).expect("send");
        let contents: Vec<u8> = (0..2500_u32).map(|i| (i / 1000) as u8).collect();
        a.send(b.local(), a.local().ip(), &contents, 1000).expect("send");
        let mut buffers = RecvBuffers::default();
        let mut seen = Vec::new();
        while seen.len() < 4 {
            b.receive(&mut buffers, |from, to, datagram| {
                assert_eq!((from, to), (a.local(), b.local()));
                seen.push((datagram.first().copied(), datagram.len()));
            })
            .expect("receive");
        }
        assert_eq!(seen, [(None, 0), (Some(0), 1000), (Some(1), 1000), (Some(2), 500)]);
    }
}
