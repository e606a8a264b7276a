//! What routers report of packets that a UDP socket has sent, from the socket's error queue
//! (`IP_RECVERR` of ip(7), `IPV6_RECVERR` of ipv6(7)).

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

/// Bytes of a quoted packet that are of use: the first byte of a short header and the longest
/// connection ID (RFC 9000, Section 17.3.1).
const QUOTED_BYTES: usize = 1 + 20;
/// Room for `sock_extended_err`, the address of the router and the packet's own information.
const CONTROL_BYTES: usize = 512;
/// "Fragmentation needed" (RFC 1191, Section 4): type and code.
const ICMP_TOO_BIG: (u8, u8) = (3, 4);
/// "Packet too big" (RFC 4443, Section 3.2): type and code.
const ICMPV6_TOO_BIG: (u8, u8) = (2, 0);

/// IPv4 header without options, and UDP header.
const IPV4_UDP_HEADER_BYTES: usize = 20 + 8;
/// IPv6 header without extensions, and UDP header.
const IPV6_UDP_HEADER_BYTES: usize = 40 + 8;

/// The UDP payload that an IP packet of `mtu_bytes` to `destination` has room for.
pub(crate) fn udp_payload_bytes(destination: SocketAddr, mtu_bytes: usize) -> usize {
    mtu_bytes.saturating_sub(match destination {
        SocketAddr::V4(_) => IPV4_UDP_HEADER_BYTES,
        SocketAddr::V6(_) => IPV6_UDP_HEADER_BYTES,
    })
}

/// A report that a packet was too large for a link on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBig {
    /// Where the packet was sent to.
    pub(crate) destination: SocketAddr,
    /// What the link carries: UDP payload.
    pub(crate) payload_bytes: usize,
    quoted: [u8; QUOTED_BYTES],
    quoted_bytes: usize,
}

impl TooBig {
    /// The bytes of the packet where a short header has its connection ID; `None` when the router
    /// quotes less, or a packet with a long header.
    pub(crate) fn quoted_connection_id(&self) -> Option<&[u8]> {
        match &self.quoted[..self.quoted_bytes] {
            [first, id @ ..] if first & 0x80 == 0 && !id.is_empty() => Some(id),
            _ => None,
        }
    }
}

/// An entry of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorQueueEntry {
    /// A packet was too large.
    TooBig(TooBig),
    /// Anything else.
    Other,
}

/// Takes the oldest entry; `None` when there is none.
///
/// # Errors
/// As the system says.
pub(crate) fn take(socket: RawFd) -> io::Result<Option<ErrorQueueEntry>> {
    let mut quoted = [0_u8; QUOTED_BYTES];
    // SAFETY: all three are plain data for which all zeros are valid.
    let (mut name, mut message): (libc::sockaddr_storage, libc::msghdr) =
        unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
    // Aligned as a `cmsghdr` has to be.
    let mut control = [0_u64; CONTROL_BYTES / size_of::<u64>()];
    let mut part = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: quoted.len() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of_val(&name) as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the header points to buffers of the lengths that it says, which live longer.
    let read =
        unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    let Ok(quoted_bytes) = usize::try_from(read) else {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    };
    let Some((report, destination)) = report(&message).zip(address(&name)) else {
        return Ok(Some(ErrorQueueEntry::Other));
    };
    let kind = (report.ee_type, report.ee_code);
    let is_too_big = match report.ee_origin {
        libc::SO_EE_ORIGIN_ICMP => kind == ICMP_TOO_BIG,
        libc::SO_EE_ORIGIN_ICMP6 => kind == ICMPV6_TOO_BIG,
        _ => false,
    };
    if !is_too_big {
        return Ok(Some(ErrorQueueEntry::Other));
    }
    let payload_bytes = udp_payload_bytes(destination, report.ee_info as usize);
    Ok(Some(ErrorQueueEntry::TooBig(TooBig {
        destination,
        payload_bytes,
        quoted,
        quoted_bytes: quoted_bytes.min(QUOTED_BYTES),
    })))
}

/// The error among the control messages.
fn report(message: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: the kernel has filled the header in: the control messages lie one after another in
    // the buffer that it points to.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: not null, so that a whole header is there.
        let header = unsafe { next.read_unaligned() };
        let is_error = matches!(
            (header.cmsg_level, header.cmsg_type),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        // SAFETY: only computes a length.
        let least = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as libc::c_uint) };
        if is_error && header.cmsg_len >= least as usize {
            // SAFETY: as long as the message's length says.
            return Some(unsafe {
                libc::CMSG_DATA(next).cast::<libc::sock_extended_err>().read_unaligned()
            });
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let start = (&raw const *name).cast::<u8>();
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: a `sockaddr_storage` has room for it, and its family says that it is one.
            let name = unsafe { start.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { start.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;

    fn too_big(quoted: &[u8]) -> TooBig {
        let mut bytes = [0; QUOTED_BYTES];
        bytes[..quoted.len()].copy_from_slice(quoted);
        TooBig {
            destination: SocketAddr::from(([192, 0, 2, 1], 4433)),
            payload_bytes: 1252,
            quoted: bytes,
            quoted_bytes: quoted.len(),
        }
    }

    #[test]
    fn quoted_connection_id_needs_a_short_header() {
        assert_eq!(too_big(&[0x40, 1, 2]).quoted_connection_id(), Some(&[1, 2][..]));
        assert_eq!(too_big(&[0xc0, 1, 2]).quoted_connection_id(), None);
        assert_eq!(too_big(&[0x40]).quoted_connection_id(), None);
        assert_eq!(too_big(&[]).quoted_connection_id(), None);
    }

    #[test]
    fn payload_is_what_the_headers_leave() {
        let four = SocketAddr::from(([192, 0, 2, 1], 1));
        let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 1));
        assert_eq!((udp_payload_bytes(four, 1280), udp_payload_bytes(six, 1280)), (1252, 1232));
        assert_eq!(udp_payload_bytes(six, 0), 0);
    }

    #[test]
    fn empty_queue_has_no_entry() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(take(socket.as_raw_fd()).unwrap(), None);
    }

    #[test]
    fn reports_of_another_kind_are_no_sizes() {
        let port =
            crate::udp::UdpPort::bind("127.0.0.1:0".parse().unwrap(), Default::default()).unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        port.send(closed, port.local().ip(), b"?", 1).unwrap();
        // Loopback delivers the report before the call returns.
        let mut seen = 0;
        port.take_reports(8, |report| panic!("{report:?}"), &mut seen);
        assert_eq!(seen, 1);
    }
}
