//! Real frames through the emulated link: one thread, two interfaces.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use anyhow::{Context, Result};
use millrace_sim::Bottleneck;
use millrace_sim::link::{ArrivalOutcome, Pipe, PipeCounters};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::time::ClockId;

use super::clock::{both_clocks, clock_ns, monotonic_ns};
use super::frame::{EthernetFrame, FramePool, ReceivedFrame};
use super::link_control::{LinkControl, LinkResult};
use super::link_trace::{LinkPacket, RunRecorder};
use super::plan::LinkPlan;
use super::port::{FrameIo, Port};
use super::read_schedule::ReadSchedule;
use super::sched;
use super::stats::{Durations, EmulatorReport, PipeReport, Transports};

/// One direction beside its pipe.
#[derive(Default)]
struct DirectionStats {
    waited: Durations,
    transports: Transports,
    first_arrival_ns: Option<u64>,
    last_due_ns: u64,
}

impl DirectionStats {
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

/// The forwarding thread. Port 0 faces the client, port 1 the server. Direction `n` leaves by port `n`, so
/// direction 0 is down, from server to client.
pub(super) struct Forwarder {
    plan: LinkPlan,
    ports: [Port; 2],
    down: Bottleneck<LinkPacket>,
    up: Pipe<LinkPacket>,
    directions: [DirectionStats; 2],
    /// Packets in a flow's extra propagation, by flow, with the time at which it ends.
    delayed: Vec<VecDeque<(u64, LinkPacket)>>,
    recorder: RunRecorder,
    /// Frames and commands.
    epoll: Epoll,
    /// Commands only.
    control_epoll: Epoll,
    read_schedule: ReadSchedule,
    control: Arc<LinkControl>,
    pool: FramePool,
    received: Vec<ReceivedFrame>,
    leaving: Vec<EthernetFrame>,
    due: Vec<u64>,
    /// When a frame last left.
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
const CONTROL: u64 = 2;

/// Least time between two releases on a fast link. Each of them wakes a receiving host, of a virtual
/// machine by a call to the one that it runs on: half of the thread's time at 1 Gbit/s.
const FAST_STEP_NS: u64 = 50_000;

/// The upward direction draws its losses from a seed of its own.
const UP_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl Forwarder {
    pub(super) fn new(ports: [Port; 2], plan: LinkPlan, control: Arc<LinkControl>) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (token, port) in (0..).zip(&ports) {
            epoll.add(port.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        }
        let control_epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for epoll in [&epoll, &control_epoll] {
            epoll.add(control.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, CONTROL))?;
        }
        let started_ns = monotonic_ns()?;
        let down = match plan.loss_seed {
            Some(seed) => Bottleneck::with_losses(&plan.setup, seed, started_ns),
            None => Bottleneck::new(&plan.setup, started_ns),
        };
        let up = plan.reverse_pipe(down.link(), down.pipe.config().rate_bps);
        Ok(Self {
            read_schedule: ReadSchedule::new(ports[DOWN].frame_io()),
            ports,
            up: Pipe::new(up, plan.setup.seed ^ UP_SEED),
            down,
            directions: Default::default(),
            delayed: plan.flows.iter().map(|_| VecDeque::new()).collect(),
            recorder: RunRecorder::new(plan.clone()),
            epoll,
            control_epoll,
            control,
            pool: FramePool::default(),
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

    pub(super) fn run(mut self) -> Result<LinkResult> {
        let frame_io = self.ports[DOWN].frame_io();
        // With a call for each frame, a real-time thread would starve the hosts it serves.
        let realtime = frame_io == FrameIo::Packet || !self.plan.is_fast();
        let priority = sched::raise(realtime);
        let _awake = sched::Awake::hold();
        let mut events = [EpollEvent::empty(); 3];
        self.read_schedule.adapt(self.min_delay_ns());
        while !self.control.must_stop() {
            self.release()?;
            let ready = self.wait(&mut events)?;
            if events[..ready].iter().any(|event| event.data() == CONTROL) {
                self.take_commands();
            }
            self.read(&events[..ready])?;
        }
        self.report(priority)
    }

    /// Reads the ports that have frames, or both when a read is due.
    fn read(&mut self, events: &[EpollEvent]) -> Result<()> {
        let now_ns = monotonic_ns()?;
        let looking = self.read_schedule.next_ns();
        if looking.is_some_and(|next_ns| now_ns < next_ns) {
            return Ok(());
        }
        let mut max_found = 0;
        for (token, index) in (0..).zip([DOWN, UP]) {
            if looking.is_some() || events.iter().any(|event| event.data() == token) {
                max_found = max_found.max(self.receive(index)?);
            }
        }
        self.read_schedule.on_read(now_ns, max_found);
        Ok(())
    }

    fn take_commands(&mut self) {
        self.control.woken();
        if let Some(begin_ns) = self.control.begin_ns().filter(|_| !self.has_begun) {
            self.has_begun = true;
            self.recorder.begin(begin_ns, &mut self.down);
        }
    }

    /// Handles the run's events up to `now_ns`.
    fn advance(&mut self, now_ns: u64) {
        if self.recorder.next_ns().is_none_or(|next_ns| now_ns < next_ns) {
            return;
        }
        if self.recorder.advance_to(now_ns, &mut self.down) {
            let rate_bps = self.down.pipe.config().rate_bps;
            self.up.reconfigure(now_ns, self.plan.reverse_pipe(self.down.link(), rate_bps));
            self.read_schedule.adapt(self.min_delay_ns());
        }
    }

    fn min_delay_ns(&self) -> u64 {
        self.down.pipe.config().delay_ns.min(self.up.config().delay_ns)
    }

    /// Sends everything that is due.
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
            self.recorder.released(true, &released);
            let direction = &mut self.directions[DOWN];
            direction.waited.record(released.waited_ns);
            self.leave(DOWN, released.due_ns, released.packet.frame);
        }
    }

    fn collect_up(&mut self, now_ns: u64) {
        while let Some(released) = self.up.pop_due(now_ns) {
            self.recorder.released(false, &released);
            self.directions[UP].waited.record(released.waited_ns);
            let flow = released.packet.flow;
            match self.recorder.extra_ns(flow) {
                0 => self.leave(UP, released.due_ns, released.packet.frame),
                extra_ns => {
                    let due_ns = released.due_ns + extra_ns;
                    self.delayed[flow as usize].push_back((due_ns, released.packet));
                }
            }
        }
        for flow in 0..self.delayed.len() {
            let is_due = |front: &mut (u64, LinkPacket)| front.0 <= now_ns;
            while let Some((due_ns, packet)) = self.delayed[flow].pop_front_if(is_due) {
                self.leave(UP, due_ns, packet.frame);
            }
        }
    }

    fn leave(&mut self, index: usize, due_ns: u64, frame: EthernetFrame) {
        let direction = &mut self.directions[index];
        direction.transports.count(frame.protocol());
        direction.last_due_ns = due_ns;
        self.due.push(due_ns);
        self.leaving.push(frame);
    }

    /// Time of the next event, `u64::MAX` without events.
    fn next_ns(&self) -> u64 {
        let pipes = [
            self.down.pipe.next_due_ns(),
            self.up.next_due_ns(),
            self.recorder.next_ns(),
            self.read_schedule.next_ns(),
        ];
        let delayed = self.delayed.iter().filter_map(|queue| queue.front().map(|(due, _)| *due));
        pipes.into_iter().flatten().chain(delayed).min().unwrap_or(u64::MAX)
    }

    /// Sleeps until a frame arrives, something is due, or a command comes.
    fn wait(&self, events: &mut [EpollEvent; 3]) -> Result<usize> {
        /// Bounds the timeout to what the kernel accepts.
        const MAX_WAIT_NS: u64 = 10_000_000_000;
        let next_ns = self.next_ns().max(self.released_ns + self.step_ns);
        let left_ns = next_ns.saturating_sub(monotonic_ns()?).min(MAX_WAIT_NS);
        let timeout = libc::timespec {
            tv_sec: (left_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as libc::c_long,
        };
        let epoll =
            if self.read_schedule.next_ns().is_some() { &self.control_epoll } else { &self.epoll };
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

    /// Takes the frames that port `index` has received; they leave by the other port. Answers their number.
    fn receive(&mut self, index: usize) -> Result<usize> {
        let mut received = std::mem::take(&mut self.received);
        let oversize = self.ports[index].receive(&mut self.pool, &mut received)?;
        self.oversize += oversize as u64;
        let found = received.len();
        let (now_ns, wall_ns) = both_clocks()?;
        let downwards = index == UP;
        for ReceivedFrame { wall_ns: stamp_ns, frame } in received.drain(..) {
            // The stamp is of the wall clock, which may be set; its distance to now is what counts.
            let age_ns = if stamp_ns == 0 { 0 } else { wall_ns.saturating_sub(stamp_ns) };
            let at_ns = now_ns.saturating_sub(age_ns);
            self.read_delay.record(age_ns);
            self.advance(at_ns);
            let flow = self.recorder.flow_of(&frame, downwards);
            let packet = LinkPacket { frame, flow };
            let (direction, pipe) = match downwards {
                true => (&mut self.directions[DOWN], &mut self.down.pipe),
                false => (&mut self.directions[UP], &mut self.up),
            };
            direction.first_arrival_ns.get_or_insert(at_ns);
            let verdict = pipe.arrive(at_ns, packet);
            self.recorder.arrived(flow, downwards, &verdict);
            match verdict {
                ArrivalOutcome::Accepted => {}
                ArrivalOutcome::Lost(packet) | ArrivalOutcome::Dropped(packet) => {
                    self.pool.put(packet.frame)
                }
            }
        }
        self.received = received;
        Ok(found)
    }

    fn report(self, priority: &'static str) -> Result<LinkResult> {
        let mut kernel_drops = 0;
        for port in &self.ports {
            kernel_drops += port
                .kernel_drops()
                .with_context(|| format!("kernel's drop count of {}", port.name()))?;
        }
        let [down, up] = &self.directions;
        let mut report = EmulatorReport {
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
            frame_io: self.ports[DOWN].frame_io(),
            invalid: Vec::new(),
        };
        report.judge();
        Ok((report, self.recorder.into_trace()))
    }
}
