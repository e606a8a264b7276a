//! One interface of the emulator, through which whole Ethernet frames come and go.

pub(super) mod packet;
pub(super) mod system;
mod tap;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use serde::Serialize;

use self::packet::PacketSocket;
use self::tap::Tap;
use super::frame::{EthernetFrame, FramePool, ReceivedFrame};

/// How the emulator sends and receives frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum FrameIo {
    /// A packet socket on a veth end: the kernel stamps each frame, and a batch takes one call
    Packet,
    /// A TAP device in the edge's namespace: a frame arrives when it is read, one call each
    Tap,
}

impl FrameIo {
    /// Packet sockets, or TAP devices where the kernel refuses those (built without them, or
    /// `CAP_NET_RAW` missing in a container).
    #[must_use]
    pub fn best() -> Self {
        match PacketSocket::unbound() {
            Ok(_) => Self::Packet,
            Err(_) => Self::Tap,
        }
    }
}

#[derive(Debug)]
enum PortKind {
    Packet(PacketSocket),
    Tap(Tap),
}

/// An interface, opened.
#[derive(Debug)]
pub struct Port {
    kind: PortKind,
    name: String,
}

impl Port {
    /// Opens the interface `name` of the calling thread's network namespace.
    ///
    /// # Errors
    /// When the interface is missing or of another kind, or without the privilege (`CAP_NET_RAW` for packet
    /// sockets, `CAP_NET_ADMIN` for TAP devices).
    pub fn open(name: &str, frame_io: FrameIo) -> io::Result<Self> {
        let opened = match frame_io {
            FrameIo::Packet => PacketSocket::open(name).map(PortKind::Packet),
            FrameIo::Tap => Tap::open(name).map(PortKind::Tap),
        };
        let kind = opened.map_err(|error| about("open", name, &error))?;
        Ok(Self { kind, name: name.to_owned() })
    }

    /// The interface's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn frame_io(&self) -> FrameIo {
        match self.kind {
            PortKind::Packet(_) => FrameIo::Packet,
            PortKind::Tap(_) => FrameIo::Tap,
        }
    }

    /// Reads at most [`BATCH`](system::BATCH) frames into `received`. Answers how many were too long and
    /// discarded.
    pub(super) fn receive(
        &self,
        pool: &mut FramePool,
        received: &mut Vec<ReceivedFrame>,
    ) -> io::Result<usize> {
        let read = match &self.kind {
            PortKind::Packet(socket) => socket.receive(pool, received),
            PortKind::Tap(tap) => tap.receive(pool, received),
        };
        read.map_err(|error| about("read", &self.name, &error))
    }

    /// Writes `frames` in order. Answers how many the interface refused; refused ones are gone, as
    /// on a wire.
    pub(super) fn send(&self, frames: &[EthernetFrame]) -> usize {
        match &self.kind {
            PortKind::Packet(socket) => socket.send(frames),
            PortKind::Tap(tap) => tap.send(frames),
        }
    }

    /// Frames that the kernel had no room for since the interface was opened.
    pub(super) fn kernel_drops(&self) -> io::Result<u64> {
        match &self.kind {
            PortKind::Packet(socket) => socket.kernel_drops(),
            PortKind::Tap(tap) => tap.kernel_drops(),
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            PortKind::Packet(socket) => socket.as_fd(),
            PortKind::Tap(tap) => tap.as_fd(),
        }
    }
}

fn about(what: &str, name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} interface {name}: {error}"))
}
