//! Real frames through the emulated link: one thread, two interfaces.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use anyhow::{Context, Result};
use millrace_sim::Bottleneck;
use millrace_sim::link::{Pipe, PipeCounters, Verdict};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::time::ClockId;

use super::clock::{both_clocks, clock_ns, monotonic_ns};
use super::course::{Packet, Watch};
use super::driver::{Finished, Orders};
use super::frame::{Frame, Pool, Received};
use super::plan::Plan;
use super::port::{Access, Port};
use super::reading::Reading;
use super::sched;
use super::stats::{Durations, PipeReport, Report, Transports};

/// One direction beside its pipe.
#[derive(Default)]
struct Direction {
    waited: Durations,
    transports: Transports,
    first_arrival_ns: Option<u64>,
    last_due_ns: u64,
}

impl Direction {
    fn report(&self, counters: PipeCounters, inside_packets: u64) -> PipeReport {
        let busy_ns = self.last_due_ns.saturating_sub(self.first_arrival_ns.unwrap_or(0));
        PipeReport {
            counters,
            transports: self.transports,
            inside_packets,
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
/// `n`, so direction 0 is down, from server to client.
pub(super) struct Forwarder {
    plan: Plan,
    ports: [Port; 2],
    down: Bottleneck<Packet>,
    up: Pipe<Packet>,
    directions: [Direction; 2],
    /// Packets on a flow's own further way, by flow, with the moment at which they have it behind
    /// them.
    beyond: Vec<VecDeque<(u64, Packet)>>,
    watch: Watch,
    /// Frames and orders.
    epoll: Epoll,
    /// Orders only.
    deaf: Epoll,
    reading: Reading,
    orders: Arc<Orders>,
    pool: Pool,
    received: Vec<Received>,
    leaving: Vec<Frame>,
    due: Vec<u64>,
    /// When something last left.
    released_ns: u64,
    /// Least time between two releases.
    step_ns: u64,
    lateness: Durations,
    read_delay: Durations,
    oversize: u64,
    send_errors: u64,
    started_ns: u64,
    has_begun: bool,
}

const DOWN: usize = 0;
const UP: usize = 1;
const ORDERS: u64 = 2;

/// Least time between two releases on a fast link. Each of them wakes a receiving host, of a virtual
/// machine by a call to the one that it runs on: half of the thread's time at 1 Gbit/s.
const FAST_STEP_NS: u64 = 50_000;

/// The way up draws its losses from a seed of its own.
const UP_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl Forwarder {
    pub(super) fn new(ports: [Port; 2], plan: Plan, orders: Arc<Orders>) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (token, port) in (0..).zip(&ports) {
            epoll.add(port.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        }
        let deaf = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for epoll in [&epoll, &deaf] {
            epoll.add(orders.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, ORDERS))?;
        }
        let started_ns = monotonic_ns()?;
        let down = match plan.loss_seed {
            Some(seed) => Bottleneck::with_losses(&plan.setup, seed, started_ns),
            None => Bottleneck::new(&plan.setup, started_ns),
        };
        let up = plan.back(down.link(), down.pipe.config().rate_bps);
        Ok(Self {
            reading: Reading::new(ports[DOWN].access()),
            ports,
            up: Pipe::new(up, plan.setup.seed ^ UP_SEED),
            down,
            directions: Default::default(),
            beyond: plan.flows.iter().map(|_| VecDeque::new()).collect(),
            watch: Watch::new(plan.clone()),
            epoll,
            deaf,
            orders,
            pool: Pool::default(),
            received: Vec::new(),
            leaving: Vec::new(),
            due: Vec::new(),
            released_ns: 0,
            step_ns: if plan.is_fast() { FAST_STEP_NS } else { 0 },
            lateness: Durations::default(),
            read_delay: Durations::default(),
            oversize: 0,
            send_errors: 0,
            started_ns,
            has_begun: false,
            plan,
        })
    }

    pub(super) fn run(mut self) -> Result<Finished> {
        let access = self.ports[DOWN].access();
        // With a call for each frame, a real-time thread would starve the hosts it serves.
        let realtime = access == Access::Packet || !self.plan.is_fast();
        let priority = sched::raise(realtime);
        let _awake = sched::Awake::hold();
        let mut events = [EpollEvent::empty(); 3];
        self.reading.adapt(self.least_delay_ns());
        while !self.orders.must_stop() {
            self.release()?;
            let ready = self.wait(&mut events)?;
            if events[..ready].iter().any(|event| event.data() == ORDERS) {
                self.take_orders();
            }
            self.read(&events[..ready])?;
        }
        self.report(priority)
    }

    /// Reads the ports that have something, or both when it is time to look.
    fn read(&mut self, events: &[EpollEvent]) -> Result<()> {
        let now_ns = monotonic_ns()?;
        let looking = self.reading.next_ns();
        if looking.is_some_and(|next_ns| now_ns < next_ns) {
            return Ok(());
        }
        let mut most_found = 0;
        for (token, index) in (0..).zip([DOWN, UP]) {
            if looking.is_some() || events.iter().any(|event| event.data() == token) {
                most_found = most_found.max(self.receive(index)?);
            }
        }
        self.reading.looked(now_ns, most_found);
        Ok(())
    }

    fn take_orders(&mut self) {
        self.orders.woken();
        if let Some(begin_ns) = self.orders.begin_ns().filter(|_| !self.has_begun) {
            self.has_begun = true;
            self.watch.begin(begin_ns, &mut self.down);
        }
    }

    /// Does what the run's course has for the time until `now_ns`.
    fn advance(&mut self, now_ns: u64) {
        if self.watch.next_ns().is_none_or(|next_ns| now_ns < next_ns) {
            return;
        }
        if self.watch.on_time(now_ns, &mut self.down) {
            let rate_bps = self.down.pipe.config().rate_bps;
            self.up.reconfigure(now_ns, self.plan.back(self.down.link(), rate_bps));
            self.reading.adapt(self.least_delay_ns());
        }
    }

    fn least_delay_ns(&self) -> u64 {
        self.down.pipe.config().delay_ns.min(self.up.config().delay_ns)
    }

    /// Hands over everything that is due.
    fn release(&mut self) -> Result<()> {
        for index in [DOWN, UP] {
            let now_ns = monotonic_ns()?;
            self.advance(now_ns);
            match index {
                DOWN => self.collect_down(now_ns),
                _ => self.collect_up(now_ns),
            }
            if self.leaving.is_empty() {
                continue;
            }
            self.send_errors += self.ports[index].send(&self.leaving) as u64;
            let sent_ns = monotonic_ns()?;
            self.released_ns = sent_ns;
            for due_ns in self.due.drain(..) {
                self.lateness.record(sent_ns.saturating_sub(due_ns));
            }
            for frame in self.leaving.drain(..) {
                self.pool.put(frame);
            }
        }
        Ok(())
    }

    fn collect_down(&mut self, now_ns: u64) {
        while let Some(released) = self.down.pipe.pop_due(now_ns) {
            self.watch.released(true, &released);
            let direction = &mut self.directions[DOWN];
            direction.waited.record(released.waited_ns);
            self.leave(DOWN, released.due_ns, released.packet.frame);
        }
    }

    fn collect_up(&mut self, now_ns: u64) {
        while let Some(released) = self.up.pop_due(now_ns) {
            self.watch.released(false, &released);
            self.directions[UP].waited.record(released.waited_ns);
            let flow = released.packet.flow;
            match self.watch.extra_ns(flow) {
                0 => self.leave(UP, released.due_ns, released.packet.frame),
                extra_ns => {
                    let due_ns = released.due_ns + extra_ns;
                    self.beyond[flow as usize].push_back((due_ns, released.packet));
                }
            }
        }
        for flow in 0..self.beyond.len() {
            let is_due = |front: &mut (u64, Packet)| front.0 <= now_ns;
            while let Some((due_ns, packet)) = self.beyond[flow].pop_front_if(is_due) {
                self.leave(UP, due_ns, packet.frame);
            }
        }
    }

    fn leave(&mut self, index: usize, due_ns: u64, frame: Frame) {
        let direction = &mut self.directions[index];
        direction.transports.count(frame.protocol());
        direction.last_due_ns = due_ns;
        self.due.push(due_ns);
        self.leaving.push(frame);
    }

    /// When there is something to do next, `u64::MAX` if never.
    fn next_ns(&self) -> u64 {
        let pipes = [
            self.down.pipe.next_due_ns(),
            self.up.next_due_ns(),
            self.watch.next_ns(),
            self.reading.next_ns(),
        ];
        let beyond = self.beyond.iter().filter_map(|queue| queue.front().map(|(due, _)| *due));
        pipes.into_iter().flatten().chain(beyond).min().unwrap_or(u64::MAX)
    }

    /// Sleeps until a frame arrives, something is due, or the owner wants something.
    fn wait(&self, events: &mut [EpollEvent; 3]) -> Result<usize> {
        /// So long at most, for a timeout that the kernel takes.
        const MOST_NS: u64 = 10_000_000_000;
        let next_ns = self.next_ns().max(self.released_ns + self.step_ns);
        let left_ns = next_ns.saturating_sub(monotonic_ns()?).min(MOST_NS);
        let timeout = libc::timespec {
            tv_sec: (left_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as libc::c_long,
        };
        let epoll = if self.reading.next_ns().is_some() { &self.deaf } else { &self.epoll };
        // epoll_wait counts in milliseconds; epoll_pwait2 (Linux 5.11) in nanoseconds.
        // SAFETY: EpollEvent is a transparent epoll_event; all pointers outlive the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll.0.as_raw_fd(),
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

    /// Takes in what port `index` has received; it leaves by the other one. Answers how many frames
    /// those were.
    fn receive(&mut self, index: usize) -> Result<usize> {
        let mut received = std::mem::take(&mut self.received);
        let oversize = self.ports[index].receive(&mut self.pool, &mut received)?;
        self.oversize += oversize as u64;
        let found = received.len();
        let (now_ns, wall_ns) = both_clocks()?;
        let downwards = index == UP;
        for Received { wall_ns: stamp_ns, frame } in received.drain(..) {
            // The stamp is of the wall clock, which may be set; its distance to now is what counts.
            let age_ns = if stamp_ns == 0 { 0 } else { wall_ns.saturating_sub(stamp_ns) };
            let at_ns = now_ns.saturating_sub(age_ns);
            self.read_delay.record(age_ns);
            self.advance(at_ns);
            let flow = self.watch.flow_of(&frame, downwards);
            let packet = Packet { frame, flow };
            let (direction, pipe) = match downwards {
                true => (&mut self.directions[DOWN], &mut self.down.pipe),
                false => (&mut self.directions[UP], &mut self.up),
            };
            direction.first_arrival_ns.get_or_insert(at_ns);
            let verdict = pipe.arrive(at_ns, packet);
            self.watch.arrived(flow, downwards, &verdict);
            match verdict {
                Verdict::Accepted => {}
                Verdict::Lost(packet) | Verdict::Dropped(packet) => self.pool.put(packet.frame),
            }
        }
        self.received = received;
        Ok(found)
    }

    fn report(self, priority: &'static str) -> Result<Finished> {
        let mut kernel_drops = 0;
        for port in &self.ports {
            kernel_drops += port
                .kernel_drops()
                .with_context(|| format!("kernel's drop count of {}", port.name()))?;
        }
        let [down, up] = &self.directions;
        let mut report = Report {
            duration_s: (monotonic_ns()? - self.started_ns) as f64 / 1e9,
            down: down.report(self.down.pipe.counters(), self.down.pipe.inside_packets()),
            up: up.report(self.up.counters(), self.up.inside_packets()),
            lateness: self.lateness.summary(),
            read_delay: self.read_delay.summary(),
            kernel_drops,
            send_errors: self.send_errors,
            oversize_frames: self.oversize,
            cpu_s: clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)? as f64 / 1e9,
            priority,
            access: self.ports[DOWN].access(),
            invalid: Vec::new(),
        };
        report.judge();
        Ok((report, self.watch.course()))
    }
}
