//! The local socket of a flow.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::tcp_buffers::BoundedTcp;

/// The local socket of a flow.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection.
    Tcp(BoundedTcp),
    /// A connection on a Unix socket, from a local proxy.
    Unix(UnixStream),
}

impl Socket {
    /// Wraps a TCP connection.
    pub fn tcp(stream: TcpStream) -> Self {
        Self::Tcp(BoundedTcp::new(stream))
    }

    /// Registers for both directions; the readiness is edge-triggered.
    pub(crate) fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        known: bool,
    ) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match (self, known) {
            (Self::Tcp(tcp), false) => registry.register(tcp.stream_mut(), token, both),
            (Self::Tcp(tcp), true) => registry.reregister(tcp.stream_mut(), token, both),
            (Self::Unix(socket), false) => registry.register(socket, token, both),
            (Self::Unix(socket), true) => registry.reregister(socket, token, both),
        }
    }

    /// Watches a socket that is not a flow yet; the readiness is edge-triggered.
    ///
    /// # Errors
    /// When the loop can't take it.
    pub fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.register(registry, token, false)
    }

    /// The addresses of both ends, this one first, of a TCP connection.
    pub(crate) fn tcp_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Self::Tcp(tcp) => {
                Some((tcp.stream().local_addr().ok()?, tcp.stream().peer_addr().ok()?))
            }
            Self::Unix(_) => None,
        }
    }

    /// Sends the end of this side's data.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.stream().shutdown(Shutdown::Write),
            Self::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }

    /// Takes the pending error of the socket, if any.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Tcp(tcp) => tcp.stream().take_error(),
            Self::Unix(socket) => socket.take_error(),
        }
    }

    /// Closes so that a TCP peer sees a reset: an end that must not look like a complete one.
    pub fn reset(self) {
        self.abort_on_close(true);
    }

    /// Whether a TCP peer sees a reset when the socket is closed, be it by the kernel because the
    /// process was killed.
    pub fn abort_on_close(&self, abort: bool) {
        if let Self::Tcp(tcp) = self {
            // A failure means that the connection is gone already.
            let _ =
                socket2::SockRef::from(tcp.stream()).set_linger(abort.then_some(Duration::ZERO));
        }
    }

    /// Watches a socket under another token, as [`Socket::watch`].
    ///
    /// # Errors
    /// When the loop can't take it.
    pub fn watch_again(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.register(registry, token, true)
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.read(buf),
            Self::Unix(socket) => socket.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.write(buf),
            Self::Unix(socket) => socket.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
