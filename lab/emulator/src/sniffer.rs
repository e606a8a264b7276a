//! Captures the datagrams to one UDP port of an interface, each with the kernel's receive time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::time::ClockId;
use socket2::SockFilter;

use super::clock::clock_ns;
use super::frame::{FramePool, ReceivedFrame};
use super::port::packet::PacketSocket;

/// What goes to one UDP port of an interface's host.
#[derive(Debug)]
pub struct Sniffer {
    socket: PacketSocket,
    pool: FramePool,
}

impl Sniffer {
    /// On the interface `name` of the calling thread's network namespace. Datagrams are seen from now on.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel has no packet sockets for us.
    pub fn open(name: &str, port: u16) -> Result<Self> {
        let socket = PacketSocket::filtered(name, &to_udp_port(port)).with_context(|| {
            format!("listening in on {name} (it takes packet sockets and CAP_NET_RAW)")
        })?;
        Ok(Self { socket, pool: FramePool::default() })
    }

    /// Hands the waiting datagrams to `each`, with their receive time. Answers how many were read.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn read(&mut self, mut each: impl FnMut(Instant, &[u8])) -> Result<usize> {
        let mut received = Vec::new();
        self.socket.receive(&mut self.pool, &mut received)?;
        let (now, wall_ns) = (Instant::now(), clock_ns(ClockId::CLOCK_REALTIME)?);
        let count = received.len();
        for ReceivedFrame { wall_ns: stamp_ns, frame } in received {
            let age = Duration::from_nanos(wall_ns.saturating_sub(stamp_ns));
            if let Some(payload) = frame.udp_payload() {
                each(now.checked_sub(age).unwrap_or(now), payload);
            }
            self.pool.put(frame);
        }
        Ok(count)
    }

    /// Datagrams that the kernel dropped because the socket buffer was full.
    ///
    /// # Errors
    /// None in practice.
    pub fn missed(&self) -> io::Result<u64> {
        self.socket.kernel_drops()
    }
}

impl AsFd for Sniffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whole datagrams (no fragments) to `port`, of either version of IP and without extension headers, as
/// `tcpdump -d` would have it.
fn to_udp_port(port: u16) -> [SockFilter; 16] {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF_BEHIND_X: u16 = 0x48;
    const X_IS_IPV4_HEADER: u16 = 0xb1;
    const JUMP: u16 = 0x05;
    const EQUAL: u16 = 0x15;
    const ANY_BIT: u16 = 0x45;
    const ANSWER: u16 = 0x06;
    const UDP: u32 = 17;
    let load = |code, at| SockFilter::new(code, 0, 0, at);
    // Instructions to skip if the test passes, and if it fails.
    let skip = |code, value, so, not| SockFilter::new(code, so, not, value);
    [
        load(LOAD_HALF, 12),
        skip(EQUAL, 0x0800, 0, 7),
        load(LOAD_BYTE, 23),
        skip(EQUAL, UDP, 0, 10),
        load(LOAD_HALF, 20),
        // More fragments, or not the first.
        skip(ANY_BIT, 0x3fff, 8, 0),
        load(X_IS_IPV4_HEADER, 14),
        load(LOAD_HALF_BEHIND_X, 16),
        SockFilter::new(JUMP, 0, 0, 4),
        skip(EQUAL, 0x86dd, 0, 4),
        load(LOAD_BYTE, 20),
        skip(EQUAL, UDP, 0, 2),
        load(LOAD_HALF, 56),
        skip(EQUAL, u32::from(port), 1, 0),
        SockFilter::new(ANSWER, 0, 0, 0),
        SockFilter::new(ANSWER, 0, 0, u32::from(u16::MAX)),
    ]
}
