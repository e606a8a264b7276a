//! Programs behind the tunnel, as threads of the test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};

use crate::{data, tcp, wait};

/// Small, so that thousands fit.
const STACK_BYTES: usize = 256 * 1024;

/// A listener whose connections each get a thread. Stops listening when dropped; running
/// connections end by themselves.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Listens on a port of 127.0.0.1 and does `serve` with each connection.
    ///
    /// # Panics
    /// When it can't listen.
    pub fn start(serve: impl Fn(Socket) + Send + Sync + 'static) -> Self {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), serve)
    }

    /// Listens on `address`.
    ///
    /// # Panics
    /// When it can't.
    pub fn start_on(address: SocketAddr, serve: impl Fn(Socket) + Send + Sync + 'static) -> Self {
        let listener = listen(address, 4096);
        Self::serve(listener, serve)
    }

    /// Takes connections from `listener`.
    ///
    /// # Panics
    /// When it can't tell where it listens.
    pub fn serve(listener: TcpListener, serve: impl Fn(Socket) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("a listener has an address");
        let (accepted, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped, serve) = (accepted.clone(), stop.clone(), Arc::new(serve));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                if poll(&mut fds, PollTimeout::from(50_u8)) != Ok(1) {
                    continue;
                }
                let Ok((stream, _)) = listener.accept() else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                let (stream, serve) = (Socket::from(stream), serve.clone());
                tcp::prepare(&stream).expect("time-outs can be set");
                let named = std::thread::Builder::new().stack_size(STACK_BYTES);
                named.spawn(move || serve(stream)).expect("a thread for each connection");
            }
        });
        Self { address, accepted, stop, thread: Some(thread) }
    }

    /// Sends back what comes, and ends when the client does.
    #[must_use]
    pub fn echo() -> Self {
        Self::start(echo)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has taken.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
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

/// A TCP listener.
///
/// # Panics
/// When `address` can't be listened on.
#[must_use]
pub fn listen(address: SocketAddr, backlog: i32) -> TcpListener {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok::<_, std::io::Error>(socket.into())
    };
    wait::for_free_address(open).unwrap_or_else(|error| panic!("listen on {address}: {error}"))
}

/// The next connection; `None` when none comes within `at_most`.
///
/// # Panics
/// When the listener fails.
#[must_use]
pub fn accept_within(listener: &TcpListener, at_most: Duration) -> Option<TcpStream> {
    let at_most = PollTimeout::try_from(at_most).expect("milliseconds of 32 bits");
    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, at_most).expect("a listener can be waited for") == 0 {
        return None;
    }
    Some(listener.accept().expect("a connection that waits").0)
}

/// Serves one connection: everything comes back.
pub fn echo(mut stream: Socket) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
    stream.shutdown(std::net::Shutdown::Write).ok();
}

/// Serves one connection: reads to the end and answers with the SHA-256 in hexadecimal digits.
pub fn answer_with_hash(mut stream: Socket) {
    if let Ok(sum) = data::receive(&mut stream) {
        stream.write_all(sum.to_string().as_bytes()).ok();
    }
}

/// Serves one connection: sends `bytes` of a pattern, ends, and waits for the client's end.
pub fn source(seed: u64, bytes: u64) -> impl Fn(Socket) + Send + Sync + 'static {
    move |mut stream| {
        if data::send(&mut stream, seed, bytes).is_ok() {
            stream.shutdown(std::net::Shutdown::Write).ok();
            data::receive_until_error(&mut stream);
        }
    }
}

/// An address whose connection attempts are never answered: a listener whose queue is full, so that
/// the kernel drops every SYN.
#[derive(Debug)]
pub struct Blackhole {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<Socket>,
}

impl Blackhole {
    /// Opens it.
    ///
    /// # Panics
    /// When attempts are still answered after the queue should be full.
    #[must_use]
    pub fn open() -> Self {
        Self::open_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Opens it at `address`, which must be one of this namespace's own.
    ///
    /// # Panics
    /// As [`Self::open`].
    #[must_use]
    pub fn open_at(address: SocketAddr) -> Self {
        let listener = listen(address, 0);
        let address = listener.local_addr().expect("a listener has an address");
        let mut queued = Vec::new();
        for _ in 0..8 {
            match tcp::connect_within(address, std::time::Duration::from_millis(300)) {
                Ok(socket) => queued.push(socket),
                Err(_) => return Self { address, _listener: listener, _queued: queued },
            }
        }
        panic!("the kernel answers SYNs although the listener's queue is full");
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
