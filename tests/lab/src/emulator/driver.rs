//! Real frames through the emulated link: one thread, two interfaces.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use millrace_sim::link::{LinkConfig, Pipe, PipeCounters, Verdict};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::time::{ClockId, clock_gettime};

use super::port::{Frame, Pool, Port, Received};
use super::sched;
use super::stats::{Durations, PipeReport, Report, Sample, Transports};
use crate::netns::Namespace;

const SAMPLE_NS: u64 = 100_000_000;

/// An hour of samples; a longer run keeps its totals.
const SAMPLES_MOST: usize = 36_000;

/// A running link. Dropping it stops it.
#[derive(Debug)]
pub struct Emulator {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Result<Report>>>,
}

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    wake: EventFd,
}

impl Emulator {
    /// Forwards every frame between the interfaces `client_side` and `server_side` of `namespace`
    /// until stopped. When this returns, both interfaces are open.
    ///
    /// # Errors
    /// An invalid `link`, a missing interface, or a missing privilege (packet sockets need
    /// `CAP_NET_RAW`).
    pub fn start(
        namespace: &Namespace,
        client_side: &str,
        server_side: &str,
        link: LinkConfig,
    ) -> Result<Self> {
        link.validate()?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), wake });
        let (ready, opened) = mpsc::channel();
        let (names, in_thread) = ((client_side.to_owned(), server_side.to_owned()), stop.clone());
        let enter = namespace.entrance()?;
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || {
            let loop_ =
                enter.enter().and_then(|()| Loop::open(&names.0, &names.1, link, in_thread));
            match loop_ {
                Ok(loop_) => {
                    ready.send(Ok(())).ok();
                    loop_.run()
                }
                Err(error) => {
                    ready.send(Err(error)).ok();
                    Err(anyhow!("the link never started"))
                }
            }
        })?;
        opened.recv().context("the link's thread ended before it opened its interfaces")??;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops the link and answers what it did.
    ///
    /// # Errors
    /// When the link failed while it ran.
    pub fn finish(mut self) -> Result<Report> {
        self.ask();
        let thread = self.thread.take().expect("finish consumes the emulator; drop has not run");
        thread.join().map_err(|_| anyhow!("the link's thread panicked"))?
    }

    fn ask(&self) {
        self.stop.asked.store(true, Ordering::Release);
        // Fails only when the counter is full, and then the thread is awake anyway.
        self.stop.wake.write(1).ok();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.ask();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// One direction with the port that its packets leave by.
struct Direction {
    pipe: Pipe<Frame>,
    waited: Durations,
    transports: Transports,
    first_arrival_ns: Option<u64>,
    last_due_ns: u64,
}

impl Direction {
    fn new(pipe: Pipe<Frame>) -> Self {
        Self {
            pipe,
            waited: Durations::default(),
            transports: Transports::default(),
            first_arrival_ns: None,
            last_due_ns: 0,
        }
    }

    fn report(&self) -> PipeReport {
        let counters = self.pipe.counters();
        let busy_ns = self.last_due_ns.saturating_sub(self.first_arrival_ns.unwrap_or(0));
        PipeReport {
            counters,
            transports: self.transports,
            inside_packets: self.pipe.inside_packets(),
            delivered_mbps: ratio(counters.delivered_bytes as f64 * 8e3, busy_ns as f64),
            loss_rate: ratio(counters.lost_packets as f64, counters.arrived_packets as f64),
            waited: self.waited.summary(),
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The thread's state. Port 0 faces the client, port 1 the server; direction `n` leaves by port
/// `n`, so direction 0 is the data's.
struct Loop {
    link: LinkConfig,
    ports: [Port; 2],
    directions: [Direction; 2],
    epoll: Epoll,
    stop: Arc<Stop>,
    pool: Pool,
    received: Vec<Received>,
    leaving: Vec<Frame>,
    due: Vec<u64>,
    lateness: Durations,
    read_delay: Durations,
    oversize: u64,
    send_errors: u64,
    started_ns: u64,
    series: Vec<Sample>,
    sampled: PipeCounters,
    sample_at_ns: u64,
}

const STOP_TOKEN: u64 = 2;

impl Loop {
    fn open(client: &str, server: &str, link: LinkConfig, stop: Arc<Stop>) -> Result<Self> {
        let ports = [Port::open(client)?, Port::open(server)?];
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (token, port) in (0..).zip(&ports) {
            epoll.add(port.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        }
        epoll.add(stop.wake.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, STOP_TOKEN))?;
        let now_ns = monotonic_ns()?;
        // Both directions draw from one seed; the constant keeps their draws apart.
        let directions = [
            Direction::new(Pipe::new(link.down, link.seed)),
            Direction::new(Pipe::new(link.up, link.seed ^ 0x9e37_79b9_7f4a_7c15)),
        ];
        Ok(Self {
            link,
            ports,
            directions,
            epoll,
            stop,
            pool: Pool::default(),
            received: Vec::new(),
            leaving: Vec::new(),
            due: Vec::new(),
            lateness: Durations::default(),
            read_delay: Durations::default(),
            oversize: 0,
            send_errors: 0,
            started_ns: now_ns,
            series: Vec::new(),
            sampled: PipeCounters::default(),
            sample_at_ns: now_ns + SAMPLE_NS,
        })
    }

    fn run(mut self) -> Result<Report> {
        let priority = sched::raise(self.link.down.rate_bps.max(self.link.up.rate_bps));
        let mut events = [EpollEvent::empty(); 3];
        while !self.stop.asked.load(Ordering::Acquire) {
            self.release()?;
            self.sample()?;
            let ready = self.wait(&mut events)?;
            for event in &events[..ready] {
                match event.data() {
                    0 => self.receive(0)?,
                    1 => self.receive(1)?,
                    _ => {}
                }
            }
        }
        self.report(priority)
    }

    /// Hands over everything that is due.
    fn release(&mut self) -> Result<()> {
        for index in 0..2 {
            let now_ns = monotonic_ns()?;
            let direction = &mut self.directions[index];
            while let Some(released) = direction.pipe.pop_due(now_ns) {
                direction.waited.record(released.waited_ns);
                direction.transports.count(released.packet.protocol());
                direction.last_due_ns = released.due_ns;
                self.due.push(released.due_ns);
                self.leaving.push(released.packet);
            }
            if self.leaving.is_empty() {
                continue;
            }
            self.send_errors += self.ports[index].send(&self.leaving) as u64;
            let sent_ns = monotonic_ns()?;
            for due_ns in self.due.drain(..) {
                self.lateness.record(sent_ns.saturating_sub(due_ns));
            }
            for frame in self.leaving.drain(..) {
                self.pool.put(frame);
            }
        }
        Ok(())
    }

    /// Sleeps until a frame arrives, one is due, a sample is due, or the end is asked for.
    fn wait(&self, events: &mut [EpollEvent; 3]) -> Result<usize> {
        let mut until_ns = self.sample_at_ns;
        for direction in &self.directions {
            until_ns = until_ns.min(direction.pipe.next_due_ns().unwrap_or(u64::MAX));
        }
        let left_ns = until_ns.saturating_sub(monotonic_ns()?);
        let timeout = libc::timespec {
            tv_sec: (left_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as libc::c_long,
        };
        // epoll_wait counts in milliseconds; epoll_pwait2 (Linux 5.11) in nanoseconds.
        // SAFETY: EpollEvent is a transparent epoll_event; all pointers outlive the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.0.as_raw_fd(),
                events.as_mut_ptr().cast::<libc::epoll_event>(),
                events.len() as libc::c_int,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error).context("epoll_pwait2"),
            },
        }
    }

    /// Takes in what port `index` has received; it leaves by the other one.
    fn receive(&mut self, index: usize) -> Result<()> {
        let mut received = std::mem::take(&mut self.received);
        let (_, oversize) = self.ports[index].receive(&mut self.pool, &mut received)?;
        self.oversize += oversize as u64;
        let (now_ns, wall_ns) = both_clocks()?;
        let direction = &mut self.directions[1 - index];
        for Received { wall_ns: stamp_ns, frame } in received.drain(..) {
            // The stamp is of the wall clock, which may be set; its distance to now is what counts.
            let age_ns = if stamp_ns == 0 { 0 } else { wall_ns.saturating_sub(stamp_ns) };
            let at_ns = now_ns.saturating_sub(age_ns);
            self.read_delay.record(age_ns);
            direction.first_arrival_ns.get_or_insert(at_ns);
            match direction.pipe.arrive(at_ns, frame) {
                Verdict::Accepted => {}
                Verdict::Lost(frame) | Verdict::Dropped(frame) => self.pool.put(frame),
            }
        }
        self.received = received;
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        let now_ns = monotonic_ns()?;
        while now_ns >= self.sample_at_ns {
            let counters = self.directions[0].pipe.counters();
            let bytes = counters.delivered_bytes - self.sampled.delivered_bytes;
            if self.series.len() < SAMPLES_MOST {
                self.series.push(Sample {
                    t_s: (self.sample_at_ns - self.started_ns) as f64 / 1e9,
                    delivered_mbps: bytes as f64 * 8e3 / SAMPLE_NS as f64,
                    queue_bytes: self.directions[0].pipe.queue_bytes(),
                    lost_packets: counters.lost_packets - self.sampled.lost_packets,
                    dropped_packets: counters.dropped_packets - self.sampled.dropped_packets,
                });
            }
            self.sampled = counters;
            self.sample_at_ns += SAMPLE_NS;
        }
        Ok(())
    }

    fn report(self, priority: &'static str) -> Result<Report> {
        let mut kernel_drops = 0;
        for port in &self.ports {
            kernel_drops += port
                .take_kernel_drops()
                .with_context(|| format!("kernel's drop count of {}", port.name()))?;
        }
        let mut report = Report {
            link: self.link,
            duration_s: (monotonic_ns()? - self.started_ns) as f64 / 1e9,
            down: self.directions[0].report(),
            up: self.directions[1].report(),
            lateness: self.lateness.summary(),
            read_delay: self.read_delay.summary(),
            kernel_drops,
            send_errors: self.send_errors,
            oversize_frames: self.oversize,
            cpu_s: clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)? as f64 / 1e9,
            priority,
            invalid: Vec::new(),
            series: self.series,
        };
        report.judge();
        Ok(report)
    }
}

/// The monotonic and the wall clock at the same moment, in nanoseconds. A thread that is stopped
/// between the two readings would shift the arrivals, so such a pair is read again.
fn both_clocks() -> Result<(u64, u64)> {
    const APART_AT_MOST_NS: u64 = 2_000;
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let before_ns = monotonic_ns()?;
        let wall_ns = clock_ns(ClockId::CLOCK_REALTIME)?;
        let apart_ns = monotonic_ns()? - before_ns;
        best = best.min((apart_ns, before_ns + apart_ns / 2, wall_ns));
        if apart_ns <= APART_AT_MOST_NS {
            break;
        }
    }
    Ok((best.1, best.2))
}

fn monotonic_ns() -> Result<u64> {
    clock_ns(ClockId::CLOCK_MONOTONIC)
}

fn clock_ns(clock: ClockId) -> Result<u64> {
    let time = clock_gettime(clock)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
