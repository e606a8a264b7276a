//! Finds TCP peers that have disappeared without FIN or RST, by the time since their last ACK.
//!
//! `TCP_USER_TIMEOUT` can't tell a peer that is gone from one that is paused: the kernel's
//! zero-window timer ends both, also when the probes are answered. `TCP_INFO` tells them apart. Idle
//! connections, to which nothing is under way, are left to the kernel's keep-alive.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use millrace_config::TcpTimeouts;
use socket2::{SockRef, TcpKeepalive};

use crate::socket::Socket;
use crate::tcp_info::tcp_info;
use crate::tick::TICK;

/// Checks of each flow within the shorter time-out.
const CHECKS_PER_TIMEOUT: u32 = 20;
/// Longest interval between two checks of a flow.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// The last probe's answer may still be under way.
const MIN_UNANSWERED_PROBES: u8 = 2;
/// Silence of an idle connection before its first keep-alive probe.
const MAX_KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Unanswered keep-alive probes that end a connection.
const MAX_KEEPALIVE_PROBES: u32 = 4;

/// What the kernel knows of the data that is on its way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SendState {
    /// Segments have been sent and not acknowledged.
    unacknowledged: bool,
    /// Bytes wait to be sent.
    unsent: bool,
    /// The peer's receive window is closed.
    zero_window: bool,
    /// Zero-window probes, or retransmissions, since the last ACK.
    unanswered_probes: u8,
    since_last_ack: Duration,
}

impl SendState {
    /// `None` where the kernel does not say, as for a Unix socket.
    fn of(socket: &Socket) -> Option<Self> {
        let Socket::Tcp(tcp) = socket else { return None };
        let info = tcp_info(tcp.as_raw_fd())?;
        Some(Self {
            unacknowledged: info.tcpi_unacked > 0,
            unsent: info.tcpi_notsent_bytes > 0,
            zero_window: info.tcpi_snd_wnd == 0,
            unanswered_probes: info.tcpi_probes.max(info.tcpi_retransmits),
            since_last_ack: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        })
    }
}

/// One TCP peer, from check to check.
#[derive(Debug, Default)]
pub struct TcpLiveness {
    /// Since when it has owed an ACK without sending one.
    owes_ack_since: Option<Instant>,
}

impl TcpLiveness {
    /// Whether the peer of `socket` has disappeared.
    pub fn has_vanished(&mut self, socket: &Socket, round: &CheckRound, now: Instant) -> bool {
        SendState::of(socket).is_some_and(|state| self.observe(state, round.timeouts, now))
    }

    fn observe(&mut self, state: SendState, timeouts: TcpTimeouts, now: Instant) -> bool {
        let paused = state.zero_window || !state.unacknowledged;
        if !state.unacknowledged && !state.unsent {
            self.owes_ack_since = None;
            return false;
        }
        // An ACK may be older than the data that it is waited for now.
        let since = match (self.owes_ack_since, now.checked_sub(state.since_last_ack)) {
            (Some(since), Some(last_ack)) => since.max(last_ack),
            (Some(since), None) => since,
            (None, _) => now,
        };
        self.owes_ack_since = Some(since);
        let silence = now.saturating_duration_since(since);
        match paused {
            true => silence >= timeouts.probe && state.unanswered_probes >= MIN_UNANSWERED_PROBES,
            false => silence >= timeouts.user,
        }
    }
}

/// Spreads the checks of an event loop's flows over its ticks.
#[derive(Debug)]
pub struct TcpLivenessChecks {
    timeouts: TcpTimeouts,
    turn: usize,
}

/// The flows that are checked at one tick.
#[derive(Clone, Copy, Debug)]
pub struct CheckRound {
    timeouts: TcpTimeouts,
    turn: usize,
    turns: usize,
}

impl CheckRound {
    /// Whether the flow of this number has its turn.
    pub fn includes(&self, number: usize) -> bool {
        number % self.turns == self.turn
    }
}

impl TcpLivenessChecks {
    /// With these time-outs.
    pub fn new(timeouts: TcpTimeouts) -> Self {
        Self { timeouts, turn: 0 }
    }

    /// Changes the time-outs; keep-alive of connections that exist stays as it is.
    pub fn set_timeouts(&mut self, timeouts: TcpTimeouts) {
        self.timeouts = timeouts;
    }

    /// Lets the kernel probe a TCP connection while it is idle.
    pub fn watch(&self, socket: &Socket) {
        let Socket::Tcp(tcp) = socket else { return };
        let total = self.timeouts.probe;
        let second = Duration::from_secs(1);
        let idle = (total / (MAX_KEEPALIVE_PROBES + 1)).clamp(second, MAX_KEEPALIVE_IDLE);
        let interval = (total.saturating_sub(idle) / MAX_KEEPALIVE_PROBES).max(second);
        let keepalive = TcpKeepalive::new()
            .with_time(idle)
            .with_interval(interval)
            .with_retries(MAX_KEEPALIVE_PROBES);
        // A failure means that the connection is gone already.
        let _ = SockRef::from(tcp.stream()).set_tcp_keepalive(&keepalive);
    }

    /// To be called once every [`TICK`].
    pub fn next_round(&mut self) -> CheckRound {
        let timeouts = self.timeouts;
        let interval = timeouts.user.min(timeouts.probe) / CHECKS_PER_TIMEOUT;
        let interval = interval.clamp(TICK, MAX_CHECK_INTERVAL);
        let turns = (interval.as_millis() / TICK.as_millis()).max(1) as usize;
        self.turn = (self.turn + 1) % turns;
        CheckRound { timeouts, turn: self.turn, turns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    const TIMEOUTS: TcpTimeouts =
        TcpTimeouts { user: Duration::from_secs(60), probe: Duration::from_secs(300) };

    fn state() -> SendState {
        SendState {
            unacknowledged: true,
            unsent: true,
            zero_window: false,
            unanswered_probes: 5,
            since_last_ack: Duration::from_secs(3600),
        }
    }

    fn paused() -> SendState {
        SendState { unacknowledged: false, zero_window: true, ..state() }
    }

    /// When a peer whose state is `state(seconds since the beginning)` is given up.
    fn given_up_after(state: impl Fn(u64) -> SendState) -> Option<u64> {
        let (mut liveness, start) = (TcpLiveness::default(), Instant::now() + TIMEOUTS.probe);
        (0..1000)
            .step_by(5)
            .find(|s| liveness.observe(state(*s), TIMEOUTS, start + Duration::from_secs(*s)))
    }

    #[test]
    fn silent_peer_with_data_under_way_is_given_up_after_the_user_timeout() {
        assert_eq!(given_up_after(|_| state()), Some(60), "the idle time before does not count");
        let acked_until_100 = |s: u64| SendState {
            since_last_ack: Duration::from_secs(s.saturating_sub(100)),
            ..state()
        };
        assert_eq!(given_up_after(acked_until_100), Some(160));
    }

    #[test]
    fn paused_peer_that_answers_probes_stays() {
        let answers = |s: u64| SendState {
            unanswered_probes: 1,
            since_last_ack: Duration::from_secs(s % 120),
            ..paused()
        };
        assert_eq!(given_up_after(answers), None);
        // A window that has shrunk below what is under way: retransmissions serve as probes.
        let shrunk = |s: u64| SendState { unacknowledged: true, ..answers(s) };
        assert_eq!(given_up_after(shrunk), None);
    }

    #[test]
    fn paused_peer_that_answers_nothing_is_given_up_after_the_probe_timeout() {
        assert_eq!(given_up_after(|_| paused()), Some(300));
        let one_probe = |_| SendState { unanswered_probes: 1, ..paused() };
        assert_eq!(given_up_after(one_probe), None, "its answer may be under way");
    }

    #[test]
    fn idle_peer_is_left_to_keepalive() {
        let idle = |_| SendState { unacknowledged: false, unsent: false, ..state() };
        assert_eq!(given_up_after(idle), None);
    }

    #[test]
    fn every_flow_has_its_turn_within_the_check_interval() {
        let mut checks = TcpLivenessChecks::new(TIMEOUTS);
        let ticks = MAX_CHECK_INTERVAL.as_millis() / TICK.as_millis();
        let rounds: Vec<_> = (0..ticks).map(|_| checks.next_round()).collect();
        for number in 0..100 {
            let turns = rounds.iter().filter(|round| round.includes(number)).count();
            assert_eq!(turns, 1, "flow {number}");
        }
    }

    #[test]
    fn kernel_reports_a_reader_that_has_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let mut sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("open");
        let (_reader, _) = listener.accept().expect("a connection");
        sender.set_nonblocking(true).expect("nonblocking");
        while sender.write(&[0; 65_536]).is_ok() {}
        let socket = Socket::tcp(mio::net::TcpStream::from_std(sender));
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let state = SendState::of(&socket).expect("TCP_INFO");
            if state.zero_window && state.unsent && !state.unacknowledged {
                return;
            }
            assert!(Instant::now() < end, "{state:?}");
            std::thread::yield_now();
        }
    }
}
