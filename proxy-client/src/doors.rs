//! The listeners of one worker: accepting, and refusing while there is no use in it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_config::{OnFailure, TrustedProxies};
use millrace_tunnel::core::Core;
use millrace_tunnel::socket::Socket;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Token};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};
use std::os::fd::AsRawFd;

use crate::intercept::{BACKLOG, Mode, UnixSocket};

/// A listening socket of this worker.
#[derive(Debug)]
pub enum Listening {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a Unix socket, which all workers share.
    Unix(UnixListener, Arc<SharedSocket>),
}

/// A Unix socket's file, there for as long as some worker takes connections.
#[derive(Debug)]
pub struct SharedSocket(Mutex<Sharing>);

#[derive(Debug)]
struct Sharing {
    socket: UnixSocket,
    workers: usize,
    withdrawn: bool,
}

impl SharedSocket {
    /// No worker takes connections yet.
    pub fn new(socket: UnixSocket) -> Self {
        Self(Mutex::new(Sharing { socket, workers: 0, withdrawn: false }))
    }

    fn change(&self, opens: bool) -> io::Result<()> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let workers = if opens { shared.workers + 1 } else { shared.workers.saturating_sub(1) };
        match (workers == 0, shared.withdrawn) {
            (true, false) => shared.socket.withdraw()?,
            (false, true) => shared.socket.publish()?,
            _ => {}
        }
        shared.withdrawn = workers == 0;
        shared.workers = workers;
        Ok(())
    }
}

/// One way in.
#[derive(Debug)]
pub struct Door {
    /// Where connections arrive.
    pub listening: Listening,
    /// How they say where they want to go.
    pub mode: Mode,
    /// The number of their flows' lane.
    pub lane: usize,
    /// The listener's own address.
    pub address: Option<SocketAddr>,
    /// What becomes of flows without a server.
    pub on_failure: OnFailure,
    /// Where PROXY headers may come from.
    trusted_proxies: TrustedProxies,
    /// Whether it takes connections.
    open: bool,
    /// Whether trouble with opening or closing it has been logged.
    complained: bool,
}

impl Door {
    /// A door whose connections nobody takes yet; see [`Door::set_open`].
    pub fn new(
        listening: Listening,
        mode: Mode,
        lane: usize,
        address: Option<SocketAddr>,
        on_failure: OnFailure,
    ) -> Self {
        Self {
            listening,
            mode,
            lane,
            address,
            on_failure,
            trusted_proxies: TrustedProxies::default(),
            open: false,
            complained: false,
        }
    }

    /// Believes PROXY headers from these networks.
    pub fn with_trusted_proxies(self, trusted_proxies: TrustedProxies) -> Self {
        Self { trusted_proxies, ..self }
    }

    /// Whether a connection from `peer` may say where it comes from and wants to go. A Unix socket's
    /// peer has no address.
    pub fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        let Some(peer) = peer.filter(|_| self.mode == Mode::ProxyProtocol) else { return true };
        self.trusted_proxies.contain(peer.ip())
    }

    /// Whether it refuses connections while there is no server: where another proxy stands before
    /// it, which then goes on to its backup.
    pub fn withdraws(&self) -> bool {
        let behind_a_proxy =
            matches!(self.listening, Listening::Unix(..)) || self.mode == Mode::ProxyProtocol;
        behind_a_proxy && self.on_failure == OnFailure::Reset
    }

    /// Whether it takes connections.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Takes connections from now on, or refuses them.
    pub fn set_open(&mut self, core: &Core, token: Token, open: bool) {
        if open == self.open {
            return;
        }
        match self.change(core, token, open) {
            Ok(()) => (self.open, self.complained) = (open, false),
            Err(error) if !self.complained => {
                self.complained = true;
                tracing::error!(?open, listener = ?self.listening, %error, "a listener stays as it is");
            }
            Err(_) => {}
        }
    }

    fn change(&mut self, core: &Core, token: Token, open: bool) -> io::Result<()> {
        let registry = core.registry();
        match (&mut self.listening, open) {
            (Listening::Tcp(listener), true) => {
                // Again after a shutdown; else it changes nothing.
                listen(listener, Backlog::new(BACKLOG)?)?;
                registry.register(listener, token, Interest::READABLE)
            }
            (Listening::Tcp(listener), false) => {
                registry.deregister(listener)?;
                // It keeps its port, and the kernel answers with resets.
                Ok(shutdown(listener.as_raw_fd(), Shutdown::Read)?)
            }
            (Listening::Unix(listener, shared), true) => {
                registry.register(listener, token, Interest::READABLE)?;
                shared.change(true)
            }
            (Listening::Unix(listener, shared), false) => {
                shared.change(false)?;
                registry.deregister(listener)
            }
        }
    }

    /// Leaves the loop for good.
    pub fn close(mut self, core: &Core) {
        if self.open {
            // A failure means that the loop does not watch it any more, or that the file stays.
            let _ = match &mut self.listening {
                Listening::Tcp(it) => core.registry().deregister(it),
                Listening::Unix(it, shared) => {
                    shared.change(false).and_then(|()| core.registry().deregister(it))
                }
            };
        }
    }

    /// Takes one connection; the address is that of a TCP peer.
    ///
    /// # Errors
    /// As accept(2).
    pub fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match &self.listening {
            Listening::Tcp(listener) => {
                listener.accept().map(|(it, peer)| (Socket::tcp(it), Some(peer)))
            }
            Listening::Unix(listener, _) => {
                listener.accept().map(|(it, _)| (Socket::Unix(it), None))
            }
        }
    }
}

/// Errors of the connection that was to be accepted, not of the listener (accept(2)).
pub fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::PermissionDenied
    )
}
