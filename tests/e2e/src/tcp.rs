//! TCP sockets with the ends that a test needs: time-outs on everything, resets on demand.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

/// Timeout of one read or write, longer than any working flow needs.
pub const IO_TIMEOUT: Duration = Duration::from_secs(30);

/// Connects within [`IO_TIMEOUT`].
///
/// # Errors
/// As `connect`.
pub fn connect(to: SocketAddr) -> io::Result<Socket> {
    connect_within(to, IO_TIMEOUT)
}

/// Connects within a time.
///
/// # Errors
/// As `connect`; [`ErrorKind::TimedOut`].
pub fn connect_within(to: SocketAddr, at_most: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.connect_timeout(&to.into(), at_most)?;
    prepare(&socket)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// Connects to a Unix socket.
///
/// # Errors
/// As `connect`.
pub fn connect_unix(path: &std::path::Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    prepare(&socket)?;
    Ok(socket)
}

/// Gives reads and writes of a socket their time-outs.
///
/// # Errors
/// As `setsockopt`.
pub fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_read_timeout(Some(IO_TIMEOUT))?;
    socket.set_write_timeout(Some(IO_TIMEOUT))
}

/// Closes with a RST (`SO_LINGER` of zero).
///
/// # Panics
/// When the socket option is refused, which Linux does not do.
pub fn reset(socket: Socket) {
    socket.set_linger(Some(Duration::ZERO)).expect("SO_LINGER can be set on any socket");
    drop(socket);
}

/// How a stream ended for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order (FIN).
    Eof,
    /// By a reset (RST).
    Reset,
    /// Not within [`IO_TIMEOUT`].
    Never,
}

impl End {
    /// What a read's outcome means.
    ///
    /// # Panics
    /// For errors that say something else.
    #[must_use]
    pub fn of(error: Option<&io::Error>) -> Self {
        match error.map(io::Error::kind) {
            None => Self::Eof,
            // EPIPE is what a second write after a reset gets.
            Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Self::Reset,
            Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => Self::Never,
            Some(_) => panic!("neither an end nor a reset: {error:?}"),
        }
    }
}

/// Reads to the end, whatever it is, and answers the bytes before it. Stops at 1 MiB.
pub fn drain(from: impl Read) -> (Vec<u8>, End) {
    let mut bytes = Vec::new();
    let error = from.take(1 << 20).read_to_end(&mut bytes).err();
    (bytes, End::of(error.as_ref()))
}

/// A child that starts has the sockets of all threads until it executes its program: a port that has just been
/// looked at would be in use for so long.
pub(crate) static NO_CHILD_STARTS: Mutex<()> = Mutex::new(());

/// An unused port of 127.0.0.1 and ::1. It lies below the range from which the kernel
/// takes ports for outgoing connections, so that none of those comes by it.
///
/// # Panics
/// When no port is free.
#[must_use]
pub fn unused_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    let _no_child = NO_CHILD_STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let start = (std::process::id() as u16).wrapping_mul(97) % COUNT;
    for _ in 0..COUNT {
        let next =
            (u32::from(start) + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u32::from(COUNT);
        let port = FIRST + next as u16;
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let free = TcpListener::bind(v4).is_ok()
            && std::net::UdpSocket::bind(v4).is_ok()
            && TcpListener::bind(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port))).is_ok();
        if free {
            return port;
        }
    }
    panic!("no port is free");
}

/// [`unused_port`] on an address.
#[must_use]
pub fn unused(ip: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(ip.into(), unused_port())
}
