//! A packet socket: whole Ethernet frames in batches, with the kernel's receive time of each.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use socket2::{SockFilter, SockRef};

use super::system::{BATCH, check};
use crate::frame::{EthernetFrame, FramePool, MAX_FRAME_BYTES, ReceivedFrame};

/// Socket buffers: a quarter of a second at 1 Gbit/s, counting the kernel's overhead.
const SOCKET_BUFFER_BYTES: libc::c_int = 64 << 20;

/// A receiving end with a thread of its own has room for 256 frames, 3 ms at 1 Gbit/s. When it is full,
/// the rest of a batch waits for room in steps, in all no longer than would make the run invalid anyway.
const FULL_QUEUE_WAIT: Duration = Duration::from_micros(50);
const MAX_FULL_QUEUE_WAITS: u32 = 400;

/// Not in libc for every target.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Aligned room for the one control message: a `timespec`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; 64]);

/// A packet socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens the interface `name` of the calling thread's network namespace.
    pub fn open(name: &str) -> io::Result<Self> {
        let index = if_nametoindex(name)?;
        let port = Self::unbound()?;
        port.prepare()?;
        port.bind(index)?;
        Ok(port)
    }

    /// Opens `name` for those of its frames that `filter` takes, a program of the kernel's packet filter.
    pub fn filtered(name: &str, filter: &[SockFilter]) -> io::Result<Self> {
        let index = if_nametoindex(name)?;
        let port = Self::unbound()?;
        port.prepare()?;
        SockRef::from(&port.0).attach_filter(filter)?;
        port.bind(index)?;
        Ok(port)
    }

    /// One that receives nothing until it is bound, so that no frame of another interface gets in.
    pub fn unbound() -> io::Result<Self> {
        // SAFETY: plain values.
        let raw = check(unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0)
        })?;
        // SAFETY: `raw` has just been opened and belongs to nothing else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
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
                self.0.as_raw_fd(),
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
                self.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// As [`super::Port::receive`].
    pub fn receive(
        &self,
        pool: &mut FramePool,
        received: &mut Vec<ReceivedFrame>,
    ) -> io::Result<usize> {
        let mut frames: [EthernetFrame; BATCH] = std::array::from_fn(|_| pool.take());
        let mut controls = [ControlBuffer([0; 64]); BATCH];
        // SAFETY: all-zero is valid for both plain C structures.
        let mut vectors: [libc::iovec; BATCH] = unsafe { zeroed() };
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        for index in 0..BATCH {
            vectors[index].iov_base = frames[index].room.as_mut_ptr().cast();
            vectors[index].iov_len = MAX_FRAME_BYTES;
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
                self.0.as_raw_fd(),
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
            Err(error) => return Err(error),
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
                received.push(ReceivedFrame { wall_ns: stamp(&header.msg_hdr), frame });
            }
        }
        Ok(oversize)
    }

    /// As [`super::Port::send`].
    pub fn send(&self, frames: &[EthernetFrame]) -> usize {
        let mut refused = 0;
        let mut waits_left = MAX_FULL_QUEUE_WAITS;
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
                        self.0.as_raw_fd(),
                        headers.as_mut_ptr().add(sent),
                        (batch.len() - sent) as libc::c_uint,
                        libc::MSG_DONTWAIT,
                    )
                });
                match result {
                    Ok(count) => sent += count as usize,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && waits_left > 0 => {
                        waits_left -= 1;
                        std::thread::sleep(FULL_QUEUE_WAIT);
                    }
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

    /// As [`super::Port::kernel_drops`], once: reading clears the kernel's count.
    pub fn kernel_drops(&self) -> io::Result<u64> {
        // SAFETY: all-zero is a valid tpacket_stats.
        let mut stats: libc::tpacket_stats = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: both pointers describe live values; the length is that of `stats`.
        check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        })?;
        Ok(u64::from(stats.tp_drops))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
