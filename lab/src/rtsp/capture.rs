//! Captures RTP over UDP at a player's host. (openRTSP prints sums only.)

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::rtp::{self, RtpPacket};
use crate::emulator::sniffer::Sniffer;

/// How long a call blocks before the thread checks whether it is over.
const CHECK_INTERVAL_MS: u8 = 100;
/// Half an hour at 95 Mbit/s; they are kept to be put in order.
const MAX_PACKETS: usize = 1 << 24;

/// Captures the packets to a player.
#[derive(Debug)]
pub struct Capture(Sniffer);

/// The captured packets.
#[derive(Debug, Default)]
pub struct Captured {
    /// In the order in which it came.
    pub packets: Vec<(Instant, RtpPacket)>,
    /// Datagrams that the kernel dropped.
    pub missed: u64,
}

impl Capture {
    /// Of the RTP packets that the interface `name` of the calling thread's network receives for this port.
    ///
    /// # Errors
    /// As [`Sniffer::open`].
    pub fn open(name: &str, port: u16) -> Result<Self> {
        Ok(Self(Sniffer::open(name, port)?))
    }

    /// Captures until it is `over`.
    ///
    /// # Errors
    /// When there are too many packets, or the interface is gone.
    pub fn record(mut self, over: &AtomicBool) -> Result<Captured> {
        let mut captured = Captured::default();
        while !over.load(Ordering::Relaxed) {
            let mut ready = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::from(CHECK_INTERVAL_MS))?;
            while self.0.read(|at, datagram| {
                captured.packets.extend(rtp::read(datagram).map(|packet| (at, packet)));
            })? > 0
            {
                if captured.packets.len() > MAX_PACKETS {
                    bail!("more than {MAX_PACKETS} RTP packets: too long a session over UDP");
                }
            }
        }
        captured.missed = self.0.missed()?;
        Ok(captured)
    }
}
