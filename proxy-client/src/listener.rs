//! A listener of one worker. It accepts connections, and can refuse them while no server takes flows.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_config::{FailMode, TrustedProxies};
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::socket::Socket;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Token};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};
use std::os::fd::AsRawFd;

use crate::intercept::{BACKLOG, Mode, UnixSocket};

/// A listening socket of this worker.
#[derive(Debug)]
pub enum ListeningSocket {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a Unix socket, which all workers share.
    Unix(UnixListener, Arc<SharedSocket>),
}

/// The file of a Unix socket that the workers share. It is published while at least one worker accepts connections.
#[derive(Debug)]
pub struct SharedSocket(Mutex<SharedSocketState>);

#[derive(Debug)]
struct SharedSocketState {
    socket: UnixSocket,
    workers: usize,
    withdrawn: bool,
}

impl SharedSocket {
    /// The socket file before any worker accepts connections.
    pub fn new(socket: UnixSocket) -> Self {
        Self(Mutex::new(SharedSocketState { socket, workers: 0, withdrawn: false }))
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

/// A socket of the client that accepts TCP flows, with the settings of its `[[listen]]`.
#[derive(Debug)]
pub struct Listener {
    /// Where connections arrive.
    pub socket: ListeningSocket,
    /// How their destination is learnt.
    pub mode: Mode,
    /// Number of its `[[listen]]`.
    pub number: usize,
    /// The address that it is bound to; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// What to do with new flows while no server takes them.
    fail_mode: FailMode,
    /// Where PROXY headers may come from.
    trusted_proxies: TrustedProxies,
    /// Whether it accepts connections.
    open: bool,
    /// Whether a failure to open or close it has been logged.
    failure_logged: bool,
}

/// Settings of a listener that its flows need after it has been closed.
#[derive(Clone, Debug)]
pub struct ListenerView {
    /// How their destination is learnt.
    pub mode: Mode,
    /// Number of its `[[listen]]`.
    pub number: usize,
    fail_mode: FailMode,
}

impl ListenerView {
    /// Whether flows bypass the tunnel while no server takes them.
    pub fn may_bypass(&self) -> bool {
        self.fail_mode == FailMode::Open
    }
}

impl Listener {
    /// A listener that does not accept connections until [`Listener::set_open`].
    pub fn new(
        socket: ListeningSocket,
        mode: Mode,
        number: usize,
        address: Option<SocketAddr>,
        fail_mode: FailMode,
    ) -> Self {
        Self {
            socket,
            mode,
            number,
            address,
            fail_mode,
            trusted_proxies: TrustedProxies::default(),
            open: false,
            failure_logged: false,
        }
    }

    /// Accepts PROXY headers from these networks.
    pub fn with_trusted_proxies(self, trusted_proxies: TrustedProxies) -> Self {
        Self { trusted_proxies, ..self }
    }

    /// What its flows need after it has been closed.
    pub fn view(&self) -> ListenerView {
        let Self { mode, number, fail_mode, .. } = self;
        ListenerView { mode: mode.clone(), number: *number, fail_mode: *fail_mode }
    }

    /// Whether a connection from `peer` may name its client and destination in a PROXY header. A peer on a Unix
    /// socket has no address and is trusted.
    pub fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        let Some(peer) = peer.filter(|_| self.mode == Mode::ProxyProtocol) else { return true };
        self.trusted_proxies.contain(peer.ip())
    }

    /// Whether it refuses connections while no server is usable: a proxy in front of it then uses its
    /// backup.
    pub fn withdraws(&self) -> bool {
        let behind_a_proxy =
            matches!(self.socket, ListeningSocket::Unix(..)) || self.mode == Mode::ProxyProtocol;
        behind_a_proxy && self.fail_mode == FailMode::Closed
    }

    /// Whether it accepts connections.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Accepts connections from now on, or refuses them.
    pub fn set_open(&mut self, core: &Core, token: Token, open: bool) {
        if open == self.open {
            return;
        }
        match self.change(core, token, open) {
            Ok(()) => (self.open, self.failure_logged) = (open, false),
            Err(error) if !self.failure_logged => {
                self.failure_logged = true;
                let listener = self.address.map(tracing::field::display);
                tracing::error!(open, listener, %error, "failed to change listener state");
            }
            Err(_) => {}
        }
    }

    fn change(&mut self, core: &Core, token: Token, open: bool) -> io::Result<()> {
        let registry = core.registry();
        match (&mut self.socket, open) {
            (ListeningSocket::Tcp(listener), true) => {
                // Again after a shutdown; else it changes nothing.
                listen(listener, Backlog::new(BACKLOG)?)?;
                registry.register(listener, token, Interest::READABLE)
            }
            (ListeningSocket::Tcp(listener), false) => {
                registry.deregister(listener)?;
                // It keeps its port, and the kernel answers with resets.
                Ok(shutdown(listener.as_raw_fd(), Shutdown::Read)?)
            }
            (ListeningSocket::Unix(listener, shared), true) => {
                registry.register(listener, token, Interest::READABLE)?;
                shared.change(true)
            }
            (ListeningSocket::Unix(listener, shared), false) => {
                shared.change(false)?;
                registry.deregister(listener)
            }
        }
    }

    /// Leaves the loop for good.
    pub fn close(mut self, core: &Core) {
        if self.open {
            // A failure means that the loop does not watch it any more, or that the file stays.
            let _ = match &mut self.socket {
                ListeningSocket::Tcp(it) => core.registry().deregister(it),
                ListeningSocket::Unix(it, shared) => {
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
        match &self.socket {
            ListeningSocket::Tcp(listener) => {
                listener.accept().map(|(it, peer)| (Socket::tcp(it), Some(peer)))
            }
            ListeningSocket::Unix(listener, _) => {
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
