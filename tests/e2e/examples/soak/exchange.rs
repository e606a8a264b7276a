//! One end of a flow: bytes out and in at the same time, each that comes compared, and how it ended.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_e2e::data::Pattern;
use millrace_e2e::tcp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::Socket;

use crate::{stuck, vanish};

const BLOCK_BYTES: usize = 8192;
/// Nothing moves for this long only in a flow that hangs: pauses are 3 s at most, a cut-off server
/// is found out after the idle time-out of 10 s, and TCP's retransmission time-out may have doubled
/// a few times after a flap of 3 s.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// Longest wait in one go, so that the end of the soak is noticed.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The bytes of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Of their pattern, in which every position differs.
    pub seed: u64,
    /// How many before the end.
    pub bytes: u64,
}

/// What one end does.
#[derive(Clone, Debug)]
pub struct Plan {
    pub send: Way,
    pub receive: Way,
    /// Of sending.
    pub bytes_per_s: u64,
    /// Ends its direction once all is sent; otherwise only when all has come, too.
    pub half_close: bool,
    /// Sends nothing before the peer's end.
    pub after_peer: bool,
    /// Resets after so many bytes in both directions together.
    pub reset_at: Option<u64>,
    /// Disappears in place of that reset, from this network namespace.
    pub vanishes_from: Option<String>,
    /// After so many received bytes it reads nothing for a time. In order.
    pub pauses: Vec<(u64, Duration)>,
    /// Sends one wrong byte at this place, to prove that this is found out.
    pub wrong_at: Option<u64>,
}

/// How it ended without anything wrong in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both directions, in order, with all of their bytes.
    Whole,
    /// By this end's own reset.
    Reset,
    /// By the peer's, or by an error.
    Cut(ErrorKind),
}

/// What an end has seen.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    pub ending: Ending,
    pub received: u64,
    /// Whether it has ended its own direction.
    pub said_end: bool,
}

/// Carries `plan` out.
///
/// # Errors
/// What must never be: a wrong byte, an orderly end before the last byte, or silence.
pub fn exchange(socket: Socket, plan: &Plan, stop: &AtomicBool) -> Result<Course, String> {
    if socket.set_nonblocking(true).is_err() {
        return Err("O_NONBLOCK is refused".to_owned());
    }
    let (outgoing, incoming) = (Bytes::new(plan.send), Bytes::new(plan.receive));
    let now = Instant::now();
    let mut end = End {
        plan,
        outgoing,
        incoming,
        said_end: false,
        heard_end: false,
        started: now,
        moved: now,
        paused_until: now,
        pauses: 0,
        told: false,
    };
    let ending = end.run(&socket, stop).map_err(|problem| {
        let (sent, received) = (end.outgoing.done, end.incoming.done);
        format!("{problem} (sent {sent}, received {received}, {plan:?})")
    })?;
    match (ending, &plan.vanishes_from) {
        (Ending::Reset, Some(namespace)) if !stop.load(Ordering::Relaxed) => {
            vanish::vanish(socket, namespace);
        }
        (Ending::Reset, _) => tcp::reset(socket),
        _ => {}
    }
    Ok(Course { ending, received: end.incoming.done, said_end: end.said_end })
}

struct End<'a> {
    plan: &'a Plan,
    outgoing: Bytes,
    incoming: Bytes,
    said_end: bool,
    heard_end: bool,
    started: Instant,
    moved: Instant,
    paused_until: Instant,
    pauses: usize,
    told: bool,
}

impl End<'_> {
    fn run(&mut self, socket: &Socket, stop: &AtomicBool) -> Result<Ending, String> {
        loop {
            let both = self.outgoing.done + self.incoming.done;
            let resets = self.plan.reset_at.is_some_and(|at| both >= at);
            if resets || stop.load(Ordering::Relaxed) {
                return Ok(Ending::Reset);
            }
            if !self.said_end && self.may_end() {
                if let Err(error) = socket.shutdown(Shutdown::Write) {
                    return Ok(Ending::Cut(error.kind()));
                }
                self.said_end = true;
            }
            if self.said_end && self.heard_end {
                return Ok(Ending::Whole);
            }
            if !self.told && self.moved.elapsed() > HANGS_AFTER / 2 {
                self.told = true;
                let ends = (socket.local_addr(), socket.peer_addr());
                let ends = [ends.0, ends.1].map(|end| end.ok().and_then(|it| it.as_socket()));
                let port = ends.iter().flatten().map(std::net::SocketAddr::port).max();
                stuck::tell(&format!("{:x} {ends:?}", self.plan.send.seed >> 1), port.unwrap_or(0));
            }
            if self.moved.elapsed() > HANGS_AFTER {
                return Err(format!("nothing has moved for {HANGS_AFTER:?}"));
            }
            self.wait(socket);
            if self.reads()
                && let Some(ending) = self.receive(socket)?
            {
                return Ok(ending);
            }
            if let Some(ending) = self.send(socket) {
                return Ok(ending);
            }
        }
    }

    fn may_end(&self) -> bool {
        self.outgoing.is_done()
            && (!self.plan.after_peer || self.heard_end)
            && (self.plan.half_close || self.incoming.is_done())
    }

    fn reads(&self) -> bool {
        !self.heard_end && Instant::now() >= self.paused_until
    }

    /// How much may be sent now, by the rate.
    fn sendable(&self) -> u64 {
        if self.plan.after_peer && !self.heard_end {
            return 0;
        }
        let due = self.started.elapsed().as_secs_f64() * self.plan.bytes_per_s as f64;
        let due = due as u64 + BLOCK_BYTES as u64;
        due.min(self.outgoing.way.bytes).saturating_sub(self.outgoing.done)
    }

    /// Until something can be done, or is to be.
    fn wait(&self, socket: &Socket) {
        let sendable = self.sendable();
        let mut flags = PollFlags::empty();
        let mut at_most = CHECK_INTERVAL;
        if self.reads() {
            flags |= PollFlags::POLLIN;
        } else if !self.heard_end {
            at_most = at_most.min(self.paused_until.saturating_duration_since(Instant::now()));
        }
        if sendable > 0 {
            flags |= PollFlags::POLLOUT;
        } else if !self.outgoing.is_done() && (self.heard_end || !self.plan.after_peer) {
            // A block's worth, in small steps for high rates.
            let ms = BLOCK_BYTES as u64 * 1000 / self.plan.bytes_per_s.max(1);
            at_most = at_most.min(Duration::from_millis(ms.clamp(10, 500)));
        }
        if flags.is_empty() {
            // poll(2) would report a pending error at once, again and again.
            return sleep(at_most);
        }
        let mut fds = [PollFd::new(socket.as_fd(), flags)];
        let at_most = PollTimeout::try_from(at_most.as_millis()).unwrap_or(PollTimeout::ZERO);
        poll(&mut fds, at_most).ok();
    }

    fn receive(&mut self, mut socket: &Socket) -> Result<Option<Ending>, String> {
        let mut chunk = [0; BLOCK_BYTES];
        let most = match self.plan.pauses.get(self.pauses) {
            Some((at, _)) => at.saturating_sub(self.incoming.done).clamp(1, BLOCK_BYTES as u64),
            None => BLOCK_BYTES as u64,
        };
        match socket.read(&mut chunk[..most as usize]) {
            Ok(0) if self.incoming.is_done() => self.heard_end = true,
            Ok(0) => return Err("an orderly end before the last byte".to_owned()),
            Ok(read) => {
                self.incoming.compare(&chunk[..read])?;
                if let Some((at, pause)) = self.plan.pauses.get(self.pauses)
                    && self.incoming.done >= *at
                {
                    self.paused_until = Instant::now() + *pause;
                    self.pauses += 1;
                }
            }
            Err(error) if is_transient(error.kind()) => return Ok(None),
            Err(error) => return Ok(Some(Ending::Cut(error.kind()))),
        }
        self.moved = Instant::now();
        Ok(None)
    }

    fn send(&mut self, mut socket: &Socket) -> Option<Ending> {
        let sendable = self.sendable();
        if sendable == 0 {
            return None;
        }
        let at = self.outgoing.done;
        let mut chunk = [0; BLOCK_BYTES];
        let mut most = self.outgoing.next(sendable).len();
        chunk[..most].copy_from_slice(self.outgoing.next(sendable));
        if let Some(wrong_at) = self.plan.wrong_at
            && (at..at + most as u64).contains(&wrong_at)
        {
            chunk[(wrong_at - at) as usize] ^= 1;
            // Alone, so that it can't be sent a second time as it should be.
            most = (wrong_at - at) as usize + 1;
        }
        match socket.write(&chunk[..most]) {
            Ok(written) => {
                self.outgoing.advance(written);
                self.moved = Instant::now();
                None
            }
            Err(error) if is_transient(error.kind()) => None,
            Err(error) => Some(Ending::Cut(error.kind())),
        }
    }
}

fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A direction's bytes, made as they are needed.
struct Bytes {
    way: Way,
    pattern: Pattern,
    block: [u8; BLOCK_BYTES],
    done: u64,
}

impl Bytes {
    fn new(way: Way) -> Self {
        let mut pattern = Pattern::new(way.seed);
        let mut block = [0; BLOCK_BYTES];
        pattern.fill(&mut block);
        Self { way, pattern, block, done: 0 }
    }

    fn is_done(&self) -> bool {
        self.done == self.way.bytes
    }

    /// The next ones, at most `most` and to the block's end.
    fn next(&self, most: u64) -> &[u8] {
        let at = (self.done % BLOCK_BYTES as u64) as usize;
        let left = most.min(self.way.bytes - self.done).min((BLOCK_BYTES - at) as u64);
        &self.block[at..at + left as usize]
    }

    fn advance(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if bytes > 0 && self.done.is_multiple_of(BLOCK_BYTES as u64) {
            self.pattern.fill(&mut self.block);
        }
    }

    fn compare(&mut self, mut got: &[u8]) -> Result<(), String> {
        while !got.is_empty() {
            let expected = self.next(got.len() as u64);
            if expected.is_empty() {
                return Err(format!("more than {} bytes came", self.way.bytes));
            }
            let same = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
            if same < expected.len() {
                let at = self.done + same as u64;
                return Err(format!("byte {at} of {} is wrong", self.way.bytes));
            }
            self.advance(same);
            got = &got[same..];
        }
        Ok(())
    }
}
