//! One interface of the emulator, through which whole Ethernet frames come and go.

pub(super) mod packet;
mod tap;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use serde::Serialize;

use self::packet::PacketSocket;
use self::tap::Tap;
use super::frame::{Frame, Pool, Received};

/// Frames that are read or written at a time.
pub(super) const BATCH: usize = 64;

/// How the emulator gets at the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// A packet socket on the end of a cable: the kernel stamps each frame's arrival, and a batch
    /// takes one call.
    Packet,
    /// A TAP device in the edge's namespace. A frame has arrived when it is read, and each takes a
    /// call.
    Tap,
}

impl Access {
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
enum Kind {
    Packet(PacketSocket),
    Tap(Tap),
}

/// An interface, opened.
#[derive(Debug)]
pub struct Port {
    kind: Kind,
    name: String,
}

impl Port {
    /// Opens the interface `name` of the calling thread's network namespace.
    ///
    /// # Errors
    /// When there is none, it is of another kind, or a privilege is missing (`CAP_NET_RAW` for
    /// packet sockets, `CAP_NET_ADMIN` for TAP devices).
    pub fn open(name: &str, access: Access) -> io::Result<Self> {
        let opened = match access {
            Access::Packet => PacketSocket::open(name).map(Kind::Packet),
            Access::Tap => Tap::open(name).map(Kind::Tap),
        };
        let kind = opened.map_err(|error| about("open", name, &error))?;
        Ok(Self { kind, name: name.to_owned() })
    }

    /// The interface's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn access(&self) -> Access {
        match self.kind {
            Kind::Packet(_) => Access::Packet,
            Kind::Tap(_) => Access::Tap,
        }
    }

    /// Reads what is there, at most [`BATCH`] frames, into `received`. Answers how many of them were
    /// too long and thrown away.
    pub(super) fn receive(
        &self,
        pool: &mut Pool,
        received: &mut Vec<Received>,
    ) -> io::Result<usize> {
        let read = match &self.kind {
            Kind::Packet(socket) => socket.receive(pool, received),
            Kind::Tap(tap) => tap.receive(pool, received),
        };
        read.map_err(|error| about("read", &self.name, &error))
    }

    /// Writes `frames` in order. Answers how many the interface refused; refused ones are gone, as
    /// on a wire.
    pub(super) fn send(&self, frames: &[Frame]) -> usize {
        match &self.kind {
            Kind::Packet(socket) => socket.send(frames),
            Kind::Tap(tap) => tap.send(frames),
        }
    }

    /// Frames that the kernel had no room for since the interface was opened.
    pub(super) fn kernel_drops(&self) -> io::Result<u64> {
        match &self.kind {
            Kind::Packet(socket) => socket.kernel_drops(),
            Kind::Tap(tap) => tap.kernel_drops(),
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Packet(socket) => socket.as_fd(),
            Kind::Tap(tap) => tap.as_fd(),
        }
    }
}

fn about(what: &str, name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} interface {name}: {error}"))
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
