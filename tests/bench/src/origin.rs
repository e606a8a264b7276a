//! The load generator: a TCP server that sends as many bytes as a client asks for.
//!
//! A request is eight bytes, the little-endian number of bytes wanted; then the connection stays
//! open and idle until the client closes it. One thread serves all connections.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use millrace_lab::netns::Namespace;
use millrace_lab::process::Running;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

/// A request for bytes without end.
pub const UNLIMITED_BYTES: u64 = u64::MAX;

/// Fits the second-level cache, so that sending costs the kernel's copy and little more.
const CHUNK_BYTES: usize = 128 << 10;
/// Token of the listener; those of connections are their descriptors, which are never this large.
const LISTENER: u64 = u64::MAX;
/// How long the thread may sleep before it looks whether it should end.
const CHECK_INTERVAL_MS: u16 = 50;

/// A running generator; it ends when this is dropped.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _process: Option<Running>,
}

impl Origin {
    /// Starts serving on a free port of `ip` in `host`.
    ///
    /// # Errors
    /// When the port can't be opened.
    pub fn start(host: &Namespace, ip: Ipv4Addr) -> Result<Self> {
        let listener = host.inside(|| listen(SocketAddrV4::new(ip, 0)))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let serving = Serving::new(listener, stop.clone())?;
        let thread = std::thread::Builder::new().name("origin".to_owned()).spawn(move || {
            if let Err(error) = serving.run() {
                eprintln!("millrace-bench: origin: {error:#}");
            }
        })?;
        Ok(Self { address, stop, thread: Some(thread), _process: None })
    }

    /// The same as a process of its own, for more flows than one process may have descriptors for
    /// at both their ends. Its log goes to `scratch`.
    ///
    /// # Errors
    /// When the process can't be started.
    pub fn start_apart(host: &Namespace, ip: Ipv4Addr, scratch: &Path) -> Result<Self> {
        // Nothing else listens in the namespace.
        let address = SocketAddrV4::new(ip, 8080);
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = host.command(&program.to_string_lossy());
        command.arg("origin").arg(address.to_string());
        let process = Running::start("origin", &mut command, &scratch.join("origin.log"))?;
        let stop = Arc::new(AtomicBool::new(false));
        Ok(Self { address: address.into(), stop, thread: None, _process: Some(process) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Serves at `address` until the process is ended: what [`Origin::start_apart`] starts.
///
/// # Errors
/// When the port can't be opened.
pub fn serve(address: SocketAddrV4) -> Result<()> {
    Serving::new(listen(address)?, Arc::default())?.run()
}

fn listen(address: SocketAddrV4) -> Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(address).into()).with_context(|| format!("bind to {address}"))?;
    socket.listen(4096)?;
    Ok(TcpListener::from(socket))
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    left: u64,
}

struct Serving {
    listener: TcpListener,
    epoll: Epoll,
    connections: HashMap<u64, Connection>,
    chunk: Vec<u8>,
    stop: Arc<AtomicBool>,
}

impl Serving {
    fn new(listener: TcpListener, stop: Arc<AtomicBool>) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        // Not zeros: what a compressing or hole-detecting path would make of those is no measure.
        let chunk = (0..CHUNK_BYTES).map(|i| (i * 131 + (i >> 8)) as u8).collect();
        Ok(Self { listener, epoll, connections: HashMap::new(), chunk, stop })
    }

    fn run(mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        while !self.stop.load(Ordering::Relaxed) {
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(CHECK_INTERVAL_MS)) {
                Err(nix::errno::Errno::EINTR) => continue,
                ready => ready.context("epoll")?,
            };
            for event in &events[..ready] {
                if event.data() == LISTENER {
                    self.accept()?;
                } else if self.serve(event.data()).is_err() {
                    self.connections.remove(&event.data());
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client has gone again.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error).context("accept"),
            };
            stream.set_nonblocking(true)?;
            let token = u64::try_from(stream.as_raw_fd()).context("descriptor")?;
            let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            self.epoll.add(stream.as_fd(), EpollEvent::new(interest, token))?;
            let request = Vec::with_capacity(8);
            self.connections.insert(token, Connection { stream, request, left: 0 });
        }
    }

    fn serve(&mut self, token: u64) -> std::io::Result<()> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let result = connection.read_request().and_then(|()| connection.send(&self.chunk));
        match result {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }
}

impl Connection {
    /// Reads requests; an error other than `WouldBlock` ends the connection.
    fn read_request(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 8];
        loop {
            let wanted = 8 - self.request.len();
            match self.stream.read(&mut bytes[..wanted]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.request.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if let Ok(request) = <[u8; 8]>::try_from(self.request.as_slice()) {
                self.left = self.left.saturating_add(u64::from_le_bytes(request));
                self.request.clear();
            }
        }
    }

    fn send(&mut self, chunk: &[u8]) -> std::io::Result<()> {
        while self.left > 0 {
            let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(chunk.len());
            let sent = self.stream.write(&chunk[..length])?;
            if self.left != UNLIMITED_BYTES {
                self.left -= sent as u64;
            }
        }
        Ok(())
    }
}
