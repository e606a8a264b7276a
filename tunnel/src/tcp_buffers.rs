//! Bounds the kernel memory of a flow's TCP connection.
//!
//! All TCP connections of a host share `net.ipv4.tcp_mem`. Above it the kernel closes the receive windows of
//! all of them. The kernel sizes a buffer for the fastest phase of its connection and never shrinks it, so
//! that a flow that was fast and then pauses holds several MB:
//!
//! - Send buffer: `TCP_NOTSENT_LOWAT` (tcp(7)) bounds the unsent data to what the reader takes in some turns of
//!   the event loop.
//! - Receive buffer: the kernel's estimate of the round trip includes the time that a slow reader takes
//!   (`tcp_rcv_rtt_measure`), so that the buffer grows although the reader cannot use it. `SO_BUF_LOCK`
//!   (socket(7), Linux 5.14) holds its size except while its window can be what limits the flow.
//!
//! Four downloads over 100 Mbit/s, 50 ms, that each move 4 MiB and pause, held 2.3 MB each in receive buffers
//! of the server and as much in send buffers of the client. With the bounds each buffer holds 0.25 MB.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::tcp_info::tcp_info;

/// Unsent data in the send buffer of a flow that is slow, or that has just begun.
const MIN_UNSENT_BYTES: usize = 128 << 10;
/// Unsent data in the send buffer of the fastest flows. With 128 KiB every flow writes several times a turn, which
/// costs CPU time.
const MAX_UNSENT_BYTES: usize = 512 << 10;
/// The unsent data lasts for this time at the flow's rate: some turns of an event loop with ten busy flows.
const UNSENT_TIME: Duration = Duration::from_millis(4);
/// The rate of a flow is averaged over so many bytes written.
const SEND_DECISION_BYTES: usize = 1 << 20;
/// The first decision comes after half of a connection's first window (`net.ipv4.tcp_rmem`).
const FIRST_DECISION_BYTES: usize = 32 << 10;
/// The interval doubles, as the window does in slow start, up to this.
const MAX_DECISION_INTERVAL_BYTES: usize = 1 << 20;
/// The receive buffer can grow when the reader takes this fraction of its window in a round trip. Slow start
/// reaches it two round trips before it reaches the window.
const MIN_WINDOW_FRACTION_PER_RTT: f64 = 0.25;
/// Windows below this can also grow when the reader takes that fraction of them in `TURN_TIME`: an event loop does not
/// come back to the flow before. Eight flows of 0.8 Gbit/s took 2.5 times as many reads without that (`make bench`).
const MAX_TURN_WINDOW_BYTES: usize = 1 << 20;
/// A turn of an event loop with ten busy flows.
const TURN_TIME: Duration = Duration::from_millis(2);
/// Rates are averaged over at least this: buffered data is read in one go.
const MIN_RATE_SPAN: Duration = Duration::from_millis(2);
/// Flag of `SO_BUF_LOCK`: the receive buffer keeps its size.
const SOCK_RCVBUF_LOCK: libc::c_int = 2;

/// A TCP connection with bounded kernel buffers.
#[derive(Debug)]
pub struct BoundedTcp {
    stream: TcpStream,
    receive: ReceiveBufferTuner,
    send: SendBufferTuner,
}

/// Decides how much unsent data a send buffer may hold.
#[derive(Debug)]
struct SendBufferTuner {
    /// The first write since the last decision.
    since: Option<Instant>,
    /// Bytes written since the last decision.
    bytes: usize,
    max_unsent_bytes: usize,
}

/// Decides when a receive buffer may grow.
#[derive(Debug)]
struct ReceiveBufferTuner {
    /// The first read since the last decision.
    since: Option<Instant>,
    /// Bytes read since the last decision.
    bytes: usize,
    /// A read since the last decision has found no data.
    was_empty: bool,
    next_decision_bytes: usize,
    may_grow: bool,
}

/// The kernel's state of a receive buffer.
#[derive(Clone, Copy, Debug)]
struct ReceiveState {
    rtt: Duration,
    window_bytes: usize,
}

impl SendBufferTuner {
    fn new() -> Self {
        Self { since: None, bytes: 0, max_unsent_bytes: MIN_UNSENT_BYTES }
    }

    /// Counts written bytes. Returns the new limit of unsent data when it changes.
    fn observe(&mut self, written: usize, now: impl Fn() -> Instant) -> Option<usize> {
        let since = *self.since.get_or_insert_with(&now);
        self.bytes += written;
        if self.bytes < SEND_DECISION_BYTES {
            return None;
        }
        let span = now().saturating_duration_since(since).max(Duration::from_micros(1));
        let turns = UNSENT_TIME.as_secs_f64() / span.as_secs_f64();
        let wanted = (self.bytes as f64 * turns) as usize;
        let max_unsent_bytes = wanted.clamp(MIN_UNSENT_BYTES, MAX_UNSENT_BYTES).next_power_of_two();
        let has_changed = max_unsent_bytes != self.max_unsent_bytes;
        *self = Self { max_unsent_bytes, ..Self::new() };
        has_changed.then_some(max_unsent_bytes)
    }
}

impl ReceiveBufferTuner {
    fn new() -> Self {
        Self {
            since: None,
            bytes: 0,
            was_empty: false,
            next_decision_bytes: FIRST_DECISION_BYTES,
            may_grow: false,
        }
    }

    /// Counts a read. Returns whether a decision is due.
    fn observe(&mut self, read: &io::Result<usize>, now: impl FnOnce() -> Instant) -> bool {
        match read {
            Ok(bytes) => {
                self.since.get_or_insert_with(now);
                self.bytes += bytes;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.was_empty = true,
            Err(_) => {}
        }
        self.bytes >= self.next_decision_bytes
    }

    /// Returns whether the receive buffer may grow, if that changes.
    fn decide(
        &mut self,
        state: impl FnOnce() -> Option<ReceiveState>,
        now: Instant,
    ) -> Option<bool> {
        let span = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let bytes_per_s = self.bytes as f64 / span.max(MIN_RATE_SPAN).as_secs_f64();
        let uses_window = |state: ReceiveState| {
            let turn = match state.window_bytes < MAX_TURN_WINDOW_BYTES {
                true => TURN_TIME,
                false => Duration::ZERO,
            };
            bytes_per_s * state.rtt.max(turn).as_secs_f64()
                >= MIN_WINDOW_FRACTION_PER_RTT * state.window_bytes as f64
        };
        let may_grow = self.was_empty && state().is_some_and(uses_window);
        let has_changed = may_grow != self.may_grow;
        let next_decision_bytes = match has_changed {
            true => FIRST_DECISION_BYTES,
            false => (2 * self.next_decision_bytes).min(MAX_DECISION_INTERVAL_BYTES),
        };
        *self = Self { may_grow, next_decision_bytes, ..Self::new() };
        has_changed.then_some(may_grow)
    }
}

impl BoundedTcp {
    /// Bounds the buffers of `stream`. A kernel that lacks an option keeps its own sizes.
    pub fn new(stream: TcpStream) -> Self {
        set_max_unsent(&stream, MIN_UNSENT_BYTES);
        set_growth(&stream, false);
        Self { stream, receive: ReceiveBufferTuner::new(), send: SendBufferTuner::new() }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The socket, for the registration with an event loop.
    pub fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl AsRawFd for BoundedTcp {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl Read for BoundedTcp {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buf);
        if self.receive.observe(&read, Instant::now)
            && let Some(may_grow) =
                self.receive.decide(|| receive_state(&self.stream), Instant::now())
        {
            set_growth(&self.stream, may_grow);
        }
        read
    }
}

impl Write for BoundedTcp {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(buf)?;
        if let Some(max_unsent_bytes) = self.send.observe(written, Instant::now) {
            set_max_unsent(&self.stream, max_unsent_bytes);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn receive_state(stream: &TcpStream) -> Option<ReceiveState> {
    let info = tcp_info(stream.as_raw_fd())?;
    Some(ReceiveState {
        rtt: Duration::from_micros(info.tcpi_rtt.max(info.tcpi_rcv_rtt).into()),
        window_bytes: info.tcpi_rcv_ssthresh as usize,
    })
}

/// How much unsent data the kernel takes.
fn set_max_unsent(stream: &TcpStream, bytes: usize) {
    set(stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes as libc::c_int);
}

/// Whether the kernel may grow the receive buffer.
fn set_growth(stream: &TcpStream, may_grow: bool) {
    let lock = if may_grow { 0 } else { SOCK_RCVBUF_LOCK };
    set(stream, libc::SOL_SOCKET, libc::SO_BUF_LOCK, lock);
}

/// Sets an option. An error means that the connection has ended or that the kernel lacks the option.
fn set(stream: &TcpStream, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which `value` has.
    let _ = unsafe {
        libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream as StdStream};

    const MIB: usize = 1 << 20;

    /// One end as a flow has it, and its peer; neither blocks.
    fn pair() -> (BoundedTcp, StdStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let peer = StdStream::connect(listener.local_addr().expect("bound")).expect("open");
        let (socket, _) = listener.accept().expect("a connection");
        for end in [&socket, &peer] {
            end.set_nonblocking(true).expect("nonblocking");
        }
        (BoundedTcp::new(TcpStream::from_std(socket)), peer)
    }

    /// Bytes that `to` takes until it has taken none for a while.
    fn fill(to: &mut impl Write) -> usize {
        let (mut total, mut moved) = (0, Instant::now());
        while moved.elapsed() < Duration::from_millis(200) {
            match to.write(&[0; 65_536]) {
                Ok(bytes) => (total, moved) = (total + bytes, Instant::now()),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        total
    }

    fn receive_buffer(socket: &BoundedTcp) -> usize {
        socket2::SockRef::from(socket.stream()).recv_buffer_size().expect("open")
    }

    /// The receive buffer of a reader that has taken 256 MiB as fast as they came.
    fn receive_buffer_of_a_fast_reader() -> usize {
        let (mut socket, mut peer) = pair();
        peer.set_nonblocking(false).expect("blocking");
        let sender = std::thread::spawn(move || while peer.write_all(&[0; 65_536]).is_ok() {});
        let (mut buf, mut read) = (vec![0; MIB], 0);
        while read < 256 * MIB {
            match socket.read(&mut buf) {
                Ok(bytes) => read += bytes,
                Err(_) => std::thread::yield_now(),
            }
        }
        let bytes = receive_buffer(&socket);
        drop(socket);
        sender.join().expect("it ends with its connection");
        bytes
    }

    #[test]
    fn receive_buffer_of_a_fast_reader_on_a_short_path_stays_small() {
        // The kernel by itself has 4 to 33 MB here. Other work on the machine makes round trips of milliseconds, for which
        // a larger buffer is right: the smallest of several counts.
        let bytes = (0..5).map(|_| receive_buffer_of_a_fast_reader()).min();
        // A buffer is about twice its window (tcp_adv_win_scale, tcp(7)).
        assert!(bytes <= Some(2 * MAX_TURN_WINDOW_BYTES), "{bytes:?} bytes");
    }

    #[test]
    fn unsent_data_is_bounded_while_the_peer_does_not_read() {
        let (mut socket, peer) = pair();
        let peer_buffer = socket2::SockRef::from(&peer).recv_buffer_size().expect("open");
        let waiting = fill(&mut socket);
        // What is on its way fits into the peer's window.
        assert!(waiting <= peer_buffer + 2 * MIN_UNSENT_BYTES, "{waiting}");
        assert!(waiting >= MIN_UNSENT_BYTES / 2, "{waiting}");
    }

    #[test]
    fn unsent_data_follows_the_rate_of_the_flow() {
        let start = Instant::now();
        let mut tuner = SendBufferTuner::new();
        // The decision after 1 MiB that took `ms`.
        let mut decide = |ms| {
            assert_eq!(tuner.observe(SEND_DECISION_BYTES / 2, || start), None);
            tuner.observe(SEND_DECISION_BYTES / 2, || start + Duration::from_millis(ms))
        };
        assert_eq!(decide(80), None, "100 Mbit/s");
        assert_eq!(decide(8), Some(512 << 10), "1 Gbit/s");
        assert_eq!(decide(1), None, "8 Gbit/s");
        assert_eq!(decide(20), Some(256 << 10), "400 Mbit/s");
        assert_eq!(decide(8000), Some(128 << 10), "1 Mbit/s");
    }

    #[test]
    fn receive_buffer_may_grow_only_while_the_reader_uses_its_window() {
        let (empty, rtt) = (Err(io::Error::from(ErrorKind::WouldBlock)), Duration::from_millis(10));
        let (mut tuner, start) = (ReceiveBufferTuner::new(), Instant::now());
        // The decision after `bytes` in four round trips.
        let decide = |tuner: &mut ReceiveBufferTuner, bytes| {
            assert!(tuner.observe(&Ok(bytes), || start));
            let state = || Some(ReceiveState { rtt, window_bytes: 100_000 });
            tuner.decide(state, start + 4 * rtt)
        };
        assert!(!tuner.observe(&empty, || start));
        assert_eq!(decide(&mut tuner, 99_000), None, "less than a quarter in a round trip");
        assert!(!tuner.observe(&Ok(FIRST_DECISION_BYTES), || start), "the interval has doubled");
        assert_eq!(decide(&mut tuner, 500_000), None, "the buffer was never empty");
        tuner.observe(&empty, || start);
        assert_eq!(decide(&mut tuner, 500_000), Some(true));
        tuner.observe(&empty, || start);
        assert_eq!(decide(&mut tuner, 100_000), None, "no change");
        assert_eq!(decide(&mut tuner, 500_000), Some(false));
    }

    #[test]
    fn small_receive_buffer_may_grow_for_a_reader_that_empties_it_in_a_turn() {
        let (empty, rtt) = (Err(io::Error::from(ErrorKind::WouldBlock)), Duration::from_micros(50));
        // 64 KiB a millisecond: 0.5 Gbit/s.
        let decide = |window_bytes| {
            let (mut tuner, start) = (ReceiveBufferTuner::new(), Instant::now());
            assert!(!tuner.observe(&empty, || start));
            assert!(tuner.observe(&Ok(4 * (64 << 10)), || start));
            let state = || Some(ReceiveState { rtt, window_bytes });
            tuner.decide(state, start + Duration::from_millis(4))
        };
        assert_eq!(decide(64 << 10), Some(true));
        assert_eq!(decide(MAX_TURN_WINDOW_BYTES / 2), Some(true));
        assert_eq!(decide(MAX_TURN_WINDOW_BYTES), None, "only a long path needs that much");
    }
}
