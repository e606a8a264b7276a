//! The receiver: opens flows, asks for bytes, and counts them without copying them out of the
//! kernel.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_lab::netns::Namespace;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// How long a connect or a small answer may take.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// What one call discards at most.
const DISCARD_BYTES: usize = 4 << 20;
/// How long the thread may sleep before it looks whether it should end.
const CHECK_INTERVAL_MS: u16 = 50;

/// Opens a flow from `host` to `listener` and asks the origin behind it for `bytes`.
///
/// # Errors
/// When the connection fails.
pub fn open(host: &Namespace, listener: SocketAddr, bytes: u64) -> Result<TcpStream> {
    let mut stream = host.inside(|| {
        TcpStream::connect_timeout(&listener, IO_TIMEOUT)
            .with_context(|| format!("connect to {listener}"))
    })?;
    stream.set_nodelay(true)?;
    stream.write_all(&bytes.to_le_bytes()).context("request")?;
    Ok(stream)
}

/// Reads exactly `bytes` and leaves the flow open.
///
/// # Errors
/// When the flow ends early, is reset, or says nothing for five seconds.
pub fn read_exactly(stream: &mut TcpStream, bytes: usize) -> Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    let mut buffer = vec![0; bytes.clamp(1, 64 << 10)];
    let mut left = bytes;
    while left > 0 {
        let wanted = left.min(buffer.len());
        let read = stream.read(&mut buffer[..wanted]).context("answer of the origin")?;
        if read == 0 {
            bail!("the flow ended with {left} of {bytes} bytes to come");
        }
        left -= read;
    }
    Ok(())
}

/// Endless flows being counted by a thread, until dropped.
#[derive(Debug)]
pub struct Bulk {
    counts: Arc<[AtomicU64]>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Bulk {
    /// Counts what arrives on `streams`.
    ///
    /// # Errors
    /// When they can't be watched.
    pub fn start(streams: Vec<TcpStream>) -> Result<Self> {
        let counts: Arc<[AtomicU64]> = streams.iter().map(|_| AtomicU64::new(0)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, stream) in streams.iter().enumerate() {
            stream.set_nonblocking(true)?;
            epoll.add(stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        }
        let (counting, stopped) = (counts.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("sink".to_owned())
            .spawn(move || count(&epoll, &streams, &counting, &stopped))?;
        Ok(Self { counts, stop, thread: Some(thread) })
    }

    /// Bytes received so far, by flow.
    pub fn received(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Stops counting and closes the flows.
    ///
    /// # Errors
    /// When a flow had ended or failed before: then the counts mean nothing.
    pub fn finish(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => bail!("the sink's thread panicked"),
            None => Ok(()),
        }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn count(
    epoll: &Epoll,
    streams: &[TcpStream],
    counts: &[AtomicU64],
    stop: &AtomicBool,
) -> Result<()> {
    let mut events = [EpollEvent::empty(); 64];
    while !stop.load(Ordering::Relaxed) {
        let ready = match epoll.wait(&mut events, EpollTimeout::from(CHECK_INTERVAL_MS)) {
            Err(nix::errno::Errno::EINTR) => continue,
            ready => ready.context("epoll")?,
        };
        for event in &events[..ready] {
            let index = usize::try_from(event.data()).context("token")?;
            match discard(&streams[index]) {
                Ok(0) => bail!("flow {index} ended while it was measured"),
                Ok(bytes) => {
                    counts[index].fetch_add(bytes as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("flow {index} while measured"));
                }
            }
        }
    }
    Ok(())
}

/// Takes what has arrived off the socket without copying it (tcp(7), `MSG_TRUNC`).
///
/// # Errors
/// Those of recv(2).
pub fn discard(stream: &TcpStream) -> std::io::Result<usize> {
    // SAFETY: with MSG_TRUNC the kernel's TCP writes nothing to the buffer, so that it may be null.
    let received = unsafe {
        libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), DISCARD_BYTES, libc::MSG_TRUNC)
    };
    usize::try_from(received).map_err(|_| std::io::Error::last_os_error())
}
