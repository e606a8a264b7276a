//! The thread that opens flows, asks for what the load has, and counts what comes.
//!
//! A flow that fails or ends is counted and does not end the run.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use millrace_lab::netns::NamespaceHandle;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::plan::SweepLoad;
use super::segments::{SEGMENT_INTERVAL, SegmentTime};
use super::viewer_settings::{Arrivals, ViewerSettings};
use crate::origin::UNLIMITED_BYTES;
use crate::sink::discard;

/// Flows that may wait for their first byte at a time.
const MAX_WAITING: usize = 32;
/// When so long no flow came up, those that are missing count as refused.
const OPENING_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Segments that one viewer may wait for at a time; further ones are late without a request.
const MAX_OUTSTANDING: usize = 64;
/// Longest sleep of the thread.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// What the thread tells and is told.
#[derive(Debug)]
pub struct ViewerState {
    /// Bytes by flow.
    pub received: Vec<AtomicU64>,
    /// Flows through which a byte has come.
    pub up: AtomicUsize,
    /// Those of them that have ended.
    pub ended: AtomicUsize,
    /// All have come up or failed.
    pub is_open: AtomicBool,
    /// The load is to start.
    pub begin: AtomicBool,
    /// The thread is to end.
    pub stop: AtomicBool,
}

impl ViewerState {
    /// Before the first of so many flows.
    pub fn of(count: usize) -> Self {
        Self {
            received: (0..count).map(|_| AtomicU64::new(0)).collect(),
            up: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            is_open: AtomicBool::new(false),
            begin: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }
}

#[derive(Debug, Default)]
struct ViewerFlow {
    stream: Option<TcpStream>,
    is_up: bool,
    received: u64,
    requested: u64,
    /// When each segment was due, how late its request was, and the count of bytes with which it is complete.
    outstanding: VecDeque<(Instant, Duration, u64)>,
}

/// The thread's flows and what has come of them.
#[derive(Debug)]
pub struct ViewerThread {
    settings: ViewerSettings,
    state: Arc<ViewerState>,
    epoll: Epoll,
    flows: Vec<ViewerFlow>,
    failed: usize,
    progress: Instant,
    begun: Option<Instant>,
    /// Requests for segments since then.
    requests: u64,
    segments: Vec<SegmentTime>,
}

impl ViewerThread {
    /// Enters the namespace.
    ///
    /// # Errors
    /// When that is not allowed.
    pub fn new(
        host: &NamespaceHandle,
        settings: ViewerSettings,
        state: Arc<ViewerState>,
    ) -> Result<Self> {
        host.enter()?;
        Ok(Self {
            settings,
            state,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            flows: Vec::new(),
            failed: 0,
            progress: Instant::now(),
            begun: None,
            requests: 0,
            segments: Vec::new(),
        })
    }

    /// Runs until it is told to stop, and answers the times of the segments.
    ///
    /// # Errors
    /// When epoll fails.
    pub fn run(mut self) -> Result<Vec<SegmentTime>> {
        let mut events = [EpollEvent::empty(); 256];
        while !self.state.stop.load(Ordering::Relaxed) {
            if !self.state.is_open.load(Ordering::Relaxed) {
                self.open_more();
            } else if self.begun.is_none() && self.state.begin.load(Ordering::Relaxed) {
                self.begin();
            }
            let sleep = self.request_segments();
            let sleep_ms = u16::try_from(sleep.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(sleep_ms)) {
                Err(nix::errno::Errno::EINTR) => continue,
                ready => ready.context("epoll")?,
            };
            for event in &events[..ready] {
                self.receive(usize::try_from(event.data()).context("token")?);
            }
        }
        for flow in &self.flows {
            let open = flow.outstanding.iter();
            self.segments.extend(open.map(|(due, request_delay, _)| SegmentTime {
                due: *due,
                took: None,
                request_delay: *request_delay,
            }));
        }
        Ok(self.segments)
    }

    /// Opens flows as long as few wait for their first byte.
    fn open_more(&mut self) {
        let up = self.state.up.load(Ordering::Relaxed);
        let mut waiting = self.flows.len() - up - self.failed;
        while self.flows.len() < self.settings.count && waiting < MAX_WAITING {
            match self.open() {
                Ok(flow) => {
                    self.flows.push(flow);
                    waiting += 1;
                }
                Err(_) => {
                    self.failed += 1;
                    self.flows.push(ViewerFlow::default());
                }
            }
        }
        let is_late = self.progress.elapsed() > OPENING_TIMEOUT;
        if is_late || up + self.failed == self.settings.count {
            for flow in self.flows.iter_mut().filter(|flow| !flow.is_up) {
                flow.stream = None;
            }
            self.state.is_open.store(true, Ordering::Relaxed);
        }
    }

    fn open(&self) -> Result<ViewerFlow> {
        let index = self.flows.len();
        let listener = self.settings.listeners[index % self.settings.listeners.len()];
        let mut stream = TcpStream::connect_timeout(&listener, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        let is_loaded =
            (self.settings.load, self.settings.arrivals) == (SweepLoad::Bulk, Arrivals::UnderLoad);
        let requested = if is_loaded { UNLIMITED_BYTES } else { 1 };
        stream.write_all(&requested.to_le_bytes())?;
        stream.set_nonblocking(true)?;
        self.epoll.add(stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        Ok(ViewerFlow { stream: Some(stream), requested, ..ViewerFlow::default() })
    }

    fn begin(&mut self) {
        self.begun = Some(Instant::now());
        if self.settings.load == SweepLoad::Bulk {
            for index in 0..self.flows.len() {
                if self.flows[index].requested != UNLIMITED_BYTES {
                    self.request(index, UNLIMITED_BYTES);
                }
            }
        }
    }

    /// Sends the requests that are due, of one viewer after the other, and answers the time to the next one.
    fn request_segments(&mut self) -> Duration {
        let Some(begun) = self.begun.filter(|_| self.settings.load == SweepLoad::Video) else {
            return CHECK_INTERVAL;
        };
        let count = self.flows.len() as u64;
        let interval = SEGMENT_INTERVAL / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        loop {
            let due = begun
                + SEGMENT_INTERVAL * u32::try_from(self.requests / count).unwrap_or(u32::MAX)
                + interval * u32::try_from(self.requests % count).unwrap_or(u32::MAX);
            let now = Instant::now();
            if due > now {
                return (due - now).min(CHECK_INTERVAL);
            }
            let index = usize::try_from(self.requests % count).unwrap_or_default();
            self.requests += 1;
            if self.flows[index].stream.is_none() {
                continue;
            }
            let request_delay = now - due;
            if self.flows[index].outstanding.len() >= MAX_OUTSTANDING {
                self.segments.push(SegmentTime { due, took: None, request_delay });
                continue;
            }
            self.request(index, self.settings.segment_bytes);
            let end = self.flows[index].requested;
            self.flows[index].outstanding.push_back((due, request_delay, end));
        }
    }

    fn request(&mut self, index: usize, bytes: u64) {
        let flow = &mut self.flows[index];
        flow.requested = flow.requested.saturating_add(bytes);
        let sent = flow.stream.as_mut().map(|stream| stream.write_all(&bytes.to_le_bytes()));
        if let Some(Err(_)) = sent {
            self.end(index);
        }
    }

    fn receive(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let Some(stream) = &flow.stream else { return };
        let bytes = match discard(stream) {
            Ok(0) => return self.end(index),
            Ok(bytes) => bytes as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => return self.end(index),
        };
        flow.received += bytes;
        self.state.received[index].store(flow.received, Ordering::Relaxed);
        if !flow.is_up {
            flow.is_up = true;
            self.progress = Instant::now();
            self.state.up.fetch_add(1, Ordering::Relaxed);
        }
        while let Some(&(due, request_delay, end)) = flow.outstanding.front() {
            if end > flow.received {
                break;
            }
            flow.outstanding.pop_front();
            self.segments.push(SegmentTime { due, took: Some(due.elapsed()), request_delay });
        }
    }

    /// The flow has failed, or has ended although nothing asked for it.
    fn end(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        flow.stream = None;
        if flow.is_up {
            self.state.ended.fetch_add(1, Ordering::Relaxed);
        } else {
            self.failed += 1;
        }
    }
}
