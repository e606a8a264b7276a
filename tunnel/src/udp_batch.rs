//! Several UDP messages with one system call, each of datagrams of one size (`UDP_SEGMENT` of udp(7)).

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr;

use socket2::SockAddr;

/// Control data of a message: its source and the size of its datagrams, at most 32 and 24 bytes.
const CONTROL_BYTES: usize = 64;

/// A message to one destination.
pub(crate) struct BatchMessage<'a> {
    pub(crate) destination: SocketAddr,
    /// The address that it leaves from, where the socket has a choice.
    pub(crate) source: Option<IpAddr>,
    /// Bytes of each datagram but the last, where there are several.
    pub(crate) segment: Option<u16>,
    /// The contents, in parts.
    pub(crate) parts: &'a [IoSlice<'a>],
}

/// Buffer of control data, aligned as `cmsghdr` is.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlData([u8; CONTROL_BYTES]);

/// Sends messages in their order (sendmmsg(2)). Returns how many have left: fewer than all when the next one fails.
///
/// # Errors
/// That of the first message, as sendmsg(2).
pub(crate) fn send_batch(fd: RawFd, messages: &[BatchMessage<'_>]) -> io::Result<usize> {
    let addresses: Vec<SockAddr> =
        messages.iter().map(|message| SockAddr::from(message.destination)).collect();
    let mut controls = vec![ControlData([0; CONTROL_BYTES]); messages.len()];
    let mut headers: Vec<libc::mmsghdr> = messages
        .iter()
        .zip(&addresses)
        .zip(&mut controls)
        .map(|((message, address), control)| header(message, address, control))
        .collect();
    // SAFETY: the headers point to addresses, parts and control data that outlive the call, with their lengths; the
    // kernel writes to `msg_len` only.
    let sent = unsafe {
        libc::sendmmsg(fd, headers.as_mut_ptr(), headers.len() as libc::c_uint, libc::MSG_DONTWAIT)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

fn header(
    message: &BatchMessage<'_>,
    address: &SockAddr,
    control: &mut ControlData,
) -> libc::mmsghdr {
    // SAFETY: all bytes zero is a valid message header without address, parts or control data.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let inner = &mut header.msg_hdr;
    inner.msg_name = address.as_ptr().cast_mut().cast();
    inner.msg_namelen = address.len();
    // `IoSlice` has the layout of `iovec`; sending does not write to it.
    inner.msg_iov = message.parts.as_ptr().cast_mut().cast();
    inner.msg_iovlen = message.parts.len();
    if message.source.is_some() || message.segment.is_some() {
        inner.msg_control = control.0.as_mut_ptr().cast();
        inner.msg_controllen = CONTROL_BYTES;
        inner.msg_controllen = fill_control(inner, message);
    }
    header
}

/// Writes the control data; the bytes that it takes.
fn fill_control(header: &libc::msghdr, message: &BatchMessage<'_>) -> usize {
    let mut used = 0;
    // SAFETY: `msg_control` has `CONTROL_BYTES`, more than all entries take.
    let mut entry = unsafe { libc::CMSG_FIRSTHDR(header) };
    if let Some(segment) = message.segment {
        // SAFETY: as above.
        (entry, used) =
            unsafe { put(header, entry, libc::SOL_UDP, libc::UDP_SEGMENT, segment, used) };
    }
    match message.source {
        Some(IpAddr::V4(source)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            // SAFETY: as above.
            (_, used) =
                unsafe { put(header, entry, libc::IPPROTO_IP, libc::IP_PKTINFO, info, used) };
        }
        Some(IpAddr::V6(source)) => {
            let info = libc::in6_pktinfo {
                ipi6_ifindex: 0,
                ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
            };
            // SAFETY: as above.
            (_, used) =
                unsafe { put(header, entry, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info, used) };
        }
        None => {}
    }
    used
}

/// Writes one entry of control data. Returns the place of the next one, and the bytes used.
///
/// # Safety
/// `entry` is a place in the control data of `header` with room for `value`.
unsafe fn put<T: Copy>(
    header: &libc::msghdr,
    entry: *mut libc::cmsghdr,
    level: libc::c_int,
    kind: libc::c_int,
    value: T,
    used: usize,
) -> (*mut libc::cmsghdr, usize) {
    let len = size_of::<T>() as libc::c_uint;
    // SAFETY: the caller's promise.
    unsafe {
        (*entry).cmsg_level = level;
        (*entry).cmsg_type = kind;
        (*entry).cmsg_len = libc::CMSG_LEN(len) as _;
        ptr::write_unaligned(libc::CMSG_DATA(entry).cast::<T>(), value);
        (libc::CMSG_NXTHDR(header, entry), used + libc::CMSG_SPACE(len) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    fn receiver() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }

    fn receive(socket: &UdpSocket) -> (Vec<u8>, IpAddr) {
        let mut bytes = [0; 2000];
        let (len, from) = socket.recv_from(&mut bytes).unwrap();
        (bytes[..len].to_vec(), from.ip())
    }

    #[test]
    fn messages_to_two_destinations_arrive_in_segments_from_their_source() {
        let (a, b) = (receiver(), receiver());
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        let source = IpAddr::from([127, 0, 0, 9]);
        let parts = [IoSlice::new(&[1; 700]), IoSlice::new(&[2; 300]), IoSlice::new(&[3; 400])];
        let messages = [
            BatchMessage {
                destination: a.local_addr().unwrap(),
                source: Some(source),
                segment: Some(1000),
                parts: &parts,
            },
            BatchMessage {
                destination: b.local_addr().unwrap(),
                source: None,
                segment: None,
                parts: &parts[2..],
            },
        ];
        assert_eq!(send_batch(sender.as_raw_fd(), &messages).unwrap(), 2);
        let (first, from) = receive(&a);
        assert_eq!((first.len(), first[699], first[700], from), (1000, 1, 2, source));
        assert_eq!(receive(&a), (vec![3; 400], source));
        assert_eq!(receive(&b).0, vec![3; 400]);
    }

    #[test]
    fn messages_before_one_that_fails_have_left() {
        let a = receiver();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let parts = [IoSlice::new(&[1; 100])];
        let large = vec![0; 70_000];
        let too_large = [IoSlice::new(&large)];
        let message = |parts| BatchMessage {
            destination: a.local_addr().unwrap(),
            source: None,
            segment: None,
            parts,
        };
        let messages = [message(&parts), message(&too_large), message(&parts)];
        assert_eq!(send_batch(sender.as_raw_fd(), &messages).unwrap(), 1);
        let error = send_batch(sender.as_raw_fd(), &messages[1..]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
