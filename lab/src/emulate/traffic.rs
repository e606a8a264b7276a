//! The traffic of a scenario's flows: TCP between player and origin, direct or through the tunnel.
//!
//! The player requests with eight bytes, big-endian: the number of bytes that the origin is to send, [`UNLIMITED_BYTES`]
//! without a limit, or [`UPLOAD`] to receive instead.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::{Domain, SockRef, Socket, Type};

use super::address_plan::FlowAddresses;
use crate::interrupt::{self, is_pause};
use crate::netns::Namespace;
use crate::scenario::{App, FlowGroup};
use crate::tcp_info::TcpInfo;

const UNLIMITED_BYTES: u64 = u64::MAX;
const UPLOAD: u64 = 0;

/// How long a call on a socket blocks before the thread checks whether the run is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Suffices for a link of 2 s round trip that loses every other packet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Per call.
const CHUNK_BYTES: usize = 1 << 18;

/// A segment of an on/off flow that has arrived whole.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// When its last byte arrived, since the beginning of the run.
    pub completed_s: f64,
    /// How long it took.
    pub took: Duration,
}

/// Counters of a flow that other threads read while it runs.
#[derive(Debug, Default)]
pub struct FlowProbe {
    received_bytes: AtomicU64,
    sender: Mutex<Option<OwnedFd>>,
    receiver: Mutex<Option<OwnedFd>>,
    segments: Mutex<Vec<Segment>>,
}

impl FlowProbe {
    /// Payload that has arrived.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// `TCP_INFO` of the sender and of the receiver, once they are connected. A tunnelled flow has two
    /// different connections there.
    pub fn tcp(&self) -> Option<(TcpInfo, TcpInfo)> {
        let info = |end: &Mutex<Option<OwnedFd>>| {
            let end = end.lock().unwrap_or_else(PoisonError::into_inner);
            TcpInfo::of(end.as_ref()?.as_fd()).ok()
        };
        Some((info(&self.sender)?, info(&self.receiver)?))
    }

    /// Segments that have arrived.
    pub fn segments(&self) -> Vec<Segment> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn attach(&self, end: &Mutex<Option<OwnedFd>>, stream: &TcpStream) -> Result<()> {
        let own = stream.as_fd().try_clone_to_owned()?;
        *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(own);
        Ok(())
    }

    fn count(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// One flow of a run.
#[derive(Debug)]
pub struct EmulatedFlow<'a> {
    /// Its settings.
    pub group: &'a FlowGroup,
    /// Its addresses.
    pub addresses: &'a FlowAddresses,
    /// Where its origin runs.
    pub origin: &'a Namespace,
    /// Its counters.
    pub probe: &'a FlowProbe,
    /// Set when the run is over.
    pub over: &'a AtomicBool,
}

impl EmulatedFlow<'_> {
    fn must_end(&self) -> bool {
        self.over.load(Ordering::Relaxed) || interrupt::check().is_err()
    }

    /// Opens the origin's socket in its namespace; accepted connections use the kernel's congestion control of
    /// the scenario.
    ///
    /// # Errors
    /// When the kernel does not have it, or the address is in use.
    pub fn listen(&self) -> Result<TcpListener> {
        self.origin.inside(|| {
            let origin = self.addresses.origin;
            let socket = Socket::new(Domain::for_address(origin), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&origin.into())?;
            // Fails here if the kernel does not have it; it is set on each connection again.
            set_congestion_control(&SockRef::from(&socket), self.group)?;
            socket.listen(16)?;
            // Bounds accept() too.
            socket.set_read_timeout(Some(CHECK_INTERVAL))?;
            Ok(TcpListener::from(socket))
        })
    }

    /// The origin: answers until the run is over. A tunnel may open connections that carry nothing, so each
    /// has a thread of its own.
    ///
    /// # Errors
    /// When accepting fails.
    pub fn serve(&self, listener: &TcpListener) -> Result<()> {
        std::thread::scope(|scope| {
            while !self.must_end() {
                match listener.accept() {
                    Ok((stream, _)) => {
                        scope.spawn(move || self.answer(stream));
                    }
                    Err(error) if is_pause(&error) => {}
                    Err(error) => return Err(error).context("origin"),
                }
            }
            Ok(())
        })
    }

    /// One connection of the origin, until its peer closes.
    fn answer(&self, mut stream: TcpStream) -> Result<()> {
        self.prepare(&stream)?;
        let upwards = self.group.upwards;
        let own = if upwards { &self.probe.receiver } else { &self.probe.sender };
        let data = vec![0x5a; CHUNK_BYTES];
        loop {
            let mut wanted = [0; 8];
            if !self.read_whole(&mut stream, &mut wanted)? {
                return Ok(());
            }
            self.probe.attach(own, &stream)?;
            let mut left = u64::from_be_bytes(wanted);
            if upwards {
                return self.drain(&mut stream, None).map(|_| ());
            }
            while left > 0 && !self.must_end() {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                match stream.write(&data[..most]) {
                    Ok(written) if left != UNLIMITED_BYTES => left -= written as u64,
                    Ok(_) => {}
                    Err(error) if is_pause(&error) => {}
                    // The player has closed.
                    Err(_) => return Ok(()),
                }
            }
        }
    }

    /// The player: connects when the flow starts and resets the connection when it stops. The calling thread is
    /// in the player's namespace.
    ///
    /// # Errors
    /// When the flow can't be opened or ends before its time.
    pub fn play(&self, began: Instant) -> Result<()> {
        let stop = began + Duration::from_secs_f64(self.group.stop_s);
        if !self.sleep_until(began + Duration::from_secs_f64(self.addresses.start_s)) {
            return Ok(());
        }
        let mut stream = self.connect()?;
        self.prepare(&stream)?;
        // At the stop time the connection is reset, not closed, so that no more data of it cross the link.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        match (self.group.app, self.group.upwards) {
            (App::Bulk, false) => {
                self.probe.attach(&self.probe.receiver, &stream)?;
                stream.write_all(&UNLIMITED_BYTES.to_be_bytes())?;
                let whole = self.drain(&mut stream, Some(stop)).context("receiving")?;
                if !whole && !self.must_end() {
                    bail!("the flow ended before its time");
                }
                Ok(())
            }
            (App::Bulk, true) => {
                self.probe.attach(&self.probe.sender, &stream)?;
                stream.write_all(&UPLOAD.to_be_bytes())?;
                self.fill(&mut stream, stop).context("sending")
            }
            (App::OnOff { segment_bytes, every_s }, false) => {
                self.probe.attach(&self.probe.receiver, &stream)?;
                let every = Duration::from_secs_f64(every_s);
                self.fetch_segments(&mut stream, segment_bytes, every, began, stop)
            }
            (App::OnOff { .. } | App::Encoder { .. } | App::Dash { .. } | App::Rtsp { .. }, _) => {
                bail!("this kind of flow can't be emulated")
            }
        }
    }

    /// Prepares a connection of either end. The route's congestion control replaces what a socket had
    /// before it was connected, and what a listening one would hand on.
    fn prepare(&self, stream: &TcpStream) -> Result<()> {
        set_congestion_control(&SockRef::from(stream), self.group)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CHECK_INTERVAL))?;
        stream.set_write_timeout(Some(CHECK_INTERVAL))?;
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream> {
        let entry = self.addresses.entry;
        let socket = Socket::new(Domain::for_address(entry), Type::STREAM, None)?;
        socket
            .connect_timeout(&entry.into(), CONNECT_TIMEOUT)
            .with_context(|| entry.to_string())?;
        Ok(socket.into())
    }

    /// Reads until `stop`, or the end. Answers whether it was `stop`.
    fn drain(&self, stream: &mut TcpStream, stop: Option<Instant>) -> Result<bool> {
        let mut buffer = vec![0; CHUNK_BYTES];
        while !self.must_end() {
            if stop.is_some_and(|stop| Instant::now() >= stop) {
                return Ok(true);
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => self.probe.count(read),
                Err(error) if is_pause(&error) => {}
                Err(error) if stop.is_none() && error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    fn fill(&self, stream: &mut TcpStream, stop: Instant) -> Result<()> {
        let data = vec![0x5a; CHUNK_BYTES];
        while Instant::now() < stop && !self.must_end() {
            match stream.write(&data) {
                Ok(_) => {}
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Fetches each segment when it is due and the previous one has arrived.
    fn fetch_segments(
        &self,
        stream: &mut TcpStream,
        segment_bytes: u64,
        every: Duration,
        began: Instant,
        stop: Instant,
    ) -> Result<()> {
        let first = Instant::now();
        let mut buffer = vec![0; CHUNK_BYTES];
        for number in 0_u32.. {
            if !self.sleep_until((first + every * number).min(stop)) || Instant::now() >= stop {
                return Ok(());
            }
            let asked = Instant::now();
            stream.write_all(&segment_bytes.to_be_bytes()).context("asking for a segment")?;
            let mut left = segment_bytes;
            while left > 0 {
                if Instant::now() >= stop || self.must_end() {
                    return Ok(());
                }
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                match stream.read(&mut buffer[..most]) {
                    Ok(0) => bail!("the flow ended before its time"),
                    Ok(read) => {
                        self.probe.count(read);
                        left -= read as u64;
                    }
                    Err(error) if is_pause(&error) => {}
                    Err(error) => return Err(error).context("receiving"),
                }
            }
            let segment =
                Segment { completed_s: began.elapsed().as_secs_f64(), took: asked.elapsed() };
            self.probe.segments.lock().unwrap_or_else(PoisonError::into_inner).push(segment);
        }
        Ok(())
    }

    /// `false` when the run ended first.
    pub fn sleep_until(&self, at: Instant) -> bool {
        while !self.must_end() {
            match at.checked_duration_since(Instant::now()) {
                None | Some(Duration::ZERO) => return true,
                Some(left) => std::thread::sleep(left.min(CHECK_INTERVAL)),
            }
        }
        false
    }

    /// `false` when the connection ended instead of a request.
    fn read_whole(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() && !self.must_end() {
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return Ok(false),
                Ok(read) => filled += read,
                Err(error) if is_pause(&error) => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(filled == buffer.len())
    }
}

fn set_congestion_control(socket: &SockRef<'_>, group: &FlowGroup) -> Result<()> {
    let Some(name) = group.kernel_cc() else { return Ok(()) };
    socket
        .set_tcp_congestion(name.as_bytes())
        .with_context(|| format!("the kernel's congestion control {name}"))
}
