//! One interface of the emulator: a packet socket that reads and writes whole Ethernet frames in
//! batches, with the kernel's receive time of each.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use millrace_sim::link::queue::LinkSized;
use nix::net::if_::if_nametoindex;

/// Frames per system call.
pub const BATCH: usize = 64;

/// Ethernet header before the network-layer packet.
const ETHERNET_HEADER: usize = 14;

/// Room for a frame of a 1500-byte MTU with a margin; a longer one is counted, not carried.
const FRAME_ROOM: usize = 2048;

/// Socket buffers: a quarter of a second at 1 Gbit/s, counting the kernel's overhead.
const SOCKET_BUFFER_BYTES: libc::c_int = 64 << 20;

/// Not in libc for every target.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// One Ethernet frame.
#[derive(Debug)]
pub struct Frame {
    room: Box<[u8; FRAME_ROOM]>,
    len: usize,
}

impl Frame {
    fn empty() -> Self {
        Self { room: Box::new([0; FRAME_ROOM]), len: 0 }
    }
}

/// Ethernet type of IPv4.
const IPV4: [u8; 2] = [0x08, 0x00];
/// Ethernet type of IPv6.
const IPV6: [u8; 2] = [0x86, 0xdd];

impl Frame {
    /// The number of the transport protocol (6 TCP, 17 UDP): IPv4's protocol or IPv6's first next
    /// header; `None` when the frame is neither.
    pub fn protocol(&self) -> Option<u8> {
        let at = match [self.room[12], self.room[13]] {
            IPV4 => ETHERNET_HEADER + 9,
            IPV6 => ETHERNET_HEADER + 6,
            _ => return None,
        };
        (at < self.len).then(|| self.room[at])
    }

    /// The last four bytes of the source's and of the destination's address; `None` when the frame is
    /// not IP.
    pub fn addresses(&self) -> Option<[u32; 2]> {
        let ends = match [self.room[12], self.room[13]] {
            IPV4 => [16, 20],
            IPV6 => [24, 40],
            _ => return None,
        };
        let word = |end: usize| {
            let at = ETHERNET_HEADER + end - 4;
            let bytes = self.room.get(at..at + 4)?.try_into().ok()?;
            (at + 4 <= self.len).then_some(u32::from_be_bytes(bytes))
        };
        Some([word(ends[0])?, word(ends[1])?])
    }
}

impl LinkSized for Frame {
    fn link_bytes(&self) -> u64 {
        self.len.saturating_sub(ETHERNET_HEADER) as u64
    }
}

#[cfg(test)]
impl Frame {
    /// An IPv4 packet of so many bytes.
    pub fn ipv4(from: u32, to: u32, bytes: usize) -> Self {
        let mut frame = Self { len: ETHERNET_HEADER + bytes, ..Self::empty() };
        frame.room[12..14].copy_from_slice(&IPV4);
        frame.room[ETHERNET_HEADER + 12..][..4].copy_from_slice(&from.to_be_bytes());
        frame.room[ETHERNET_HEADER + 16..][..4].copy_from_slice(&to.to_be_bytes());
        frame
    }

    /// An IPv6 packet of so many bytes, from and to addresses that end so.
    pub fn ipv6(from: u32, to: u32, bytes: usize) -> Self {
        let mut frame = Self { len: ETHERNET_HEADER + bytes, ..Self::empty() };
        frame.room[12..14].copy_from_slice(&IPV6);
        frame.room[ETHERNET_HEADER + 20..][..4].copy_from_slice(&from.to_be_bytes());
        frame.room[ETHERNET_HEADER + 36..][..4].copy_from_slice(&to.to_be_bytes());
        frame
    }
}

/// Frames to use again, so that the steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Pool(Vec<Frame>);

impl Pool {
    /// Keeps at most this many idle (8 MiB).
    const MOST: usize = 4096;

    fn take(&mut self) -> Frame {
        self.0.pop().unwrap_or_else(Frame::empty)
    }

    /// Gives a frame back.
    pub fn put(&mut self, frame: Frame) {
        if self.0.len() < Self::MOST {
            self.0.push(frame);
        }
    }
}

/// Aligned room for the one control message: a `timespec`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

/// A frame as read: when the kernel received it (nanoseconds of the wall clock) and the frame.
pub struct Received {
    /// Wall-clock nanoseconds since 1970, zero when the kernel gave none.
    pub wall_ns: u64,
    /// The frame.
    pub frame: Frame,
}

/// A packet socket bound to one interface.
pub struct Port {
    socket: OwnedFd,
    name: String,
}

impl Port {
    /// Opens the interface `name` of the calling thread's network namespace.
    pub fn open(name: &str) -> io::Result<Self> {
        let describe = |error: io::Error| {
            io::Error::new(error.kind(), format!("packet socket on {name}: {error}"))
        };
        let index = if_nametoindex(name).map_err(|error| describe(error.into()))?;
        // SAFETY: plain values. Protocol 0 receives nothing until the bind below, so that no frame
        // of another interface gets in.
        let raw =
            check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
                .map_err(describe)?;
        // SAFETY: `raw` has just been opened and belongs to nothing else.
        let port = Self { socket: unsafe { OwnedFd::from_raw_fd(raw) }, name: name.to_owned() };
        port.prepare().map_err(describe)?;
        port.bind(index).map_err(describe)?;
        Ok(port)
    }

    fn prepare(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES)?;
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)?;
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // What this socket sends must not come back to it.
        self.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        // The emulator is the queue: straight to the device.
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the pointer and the length describe `value`, which outlives the call.
        check(unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: all-zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = i32::try_from(index).map_err(io::Error::other)?;
        // SAFETY: the pointer and the length describe `address`, which outlives the call.
        check(unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads what is there, at most [`BATCH`] frames, into `received`. Answers how many frames
    /// were read and how many of them were too long and thrown away.
    pub fn receive(
        &self,
        pool: &mut Pool,
        received: &mut Vec<Received>,
    ) -> io::Result<(usize, usize)> {
        let mut frames: [Frame; BATCH] = std::array::from_fn(|_| pool.take());
        let mut controls = [Control([0; 64]); BATCH];
        // SAFETY: all-zero is valid for both plain C structures.
        let mut vectors: [libc::iovec; BATCH] = unsafe { zeroed() };
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        for index in 0..BATCH {
            vectors[index].iov_base = frames[index].room.as_mut_ptr().cast();
            vectors[index].iov_len = FRAME_ROOM;
            let header = &mut headers[index].msg_hdr;
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = controls[index].0.len();
        }
        // SAFETY: every header points to one vector, one frame and one control buffer of its own,
        // all of which live until the end of this function and are not touched during the call.
        let count = check(unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        });
        let count = match count {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("read {}: {error}", self.name)));
            }
        };
        let mut oversize = 0;
        for (index, mut frame) in frames.into_iter().enumerate() {
            let header = &headers[index];
            if index >= count {
                pool.put(frame);
            } else if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                oversize += 1;
                pool.put(frame);
            } else {
                frame.len = header.msg_len as usize;
                received.push(Received { wall_ns: stamp(&header.msg_hdr), frame });
            }
        }
        Ok((count, oversize))
    }

    /// Writes `frames` in order. Answers how many the interface refused; refused ones are gone, as
    /// on a wire.
    pub fn send(&self, frames: &[Frame]) -> usize {
        let mut refused = 0;
        for batch in frames.chunks(BATCH) {
            // SAFETY: all-zero is valid for both plain C structures.
            let mut vectors: [libc::iovec; BATCH] = unsafe { zeroed() };
            let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
            for (index, frame) in batch.iter().enumerate() {
                vectors[index].iov_base = frame.room.as_ptr().cast_mut().cast();
                vectors[index].iov_len = frame.len;
                headers[index].msg_hdr.msg_iov = &raw mut vectors[index];
                headers[index].msg_hdr.msg_iovlen = 1;
            }
            let mut sent = 0;
            while sent < batch.len() {
                // SAFETY: headers sent..batch.len() point to vectors and frames that outlive the
                // call; the kernel only reads the frames.
                let result = check(unsafe {
                    libc::sendmmsg(
                        self.socket.as_raw_fd(),
                        headers.as_mut_ptr().add(sent),
                        (batch.len() - sent) as libc::c_uint,
                        libc::MSG_DONTWAIT,
                    )
                });
                match result {
                    Ok(count) => sent += count as usize,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        // The error is the first remaining frame's.
                        refused += 1;
                        sent += 1;
                    }
                }
            }
        }
        refused
    }

    /// Frames that the kernel dropped since the last call because this socket's buffer was full.
    pub fn take_kernel_drops(&self) -> io::Result<u64> {
        // SAFETY: all-zero is a valid tpacket_stats.
        let mut stats: libc::tpacket_stats = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: both pointers describe live values; the length is that of `stats`.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        })?;
        Ok(u64::from(stats.tp_drops))
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The kernel's receive time out of a message's control data.
fn stamp(header: &libc::msghdr) -> u64 {
    // SAFETY: `header` was filled in by recvmmsg and its control buffer is alive; the CMSG macros
    // stay inside it, and a SCM_TIMESTAMPNS message carries one timespec.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET
                && (*message).cmsg_type == libc::SCM_TIMESTAMPNS
            {
                let time: libc::timespec =
                    libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned();
                return time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    0
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
