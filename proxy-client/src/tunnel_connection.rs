//! A QUIC connection to a server, with the state that the pool keeps about it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::ClientTunnel;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;

use crate::probing::Probing;

/// Least time for an answer of the server, in round trips.
pub const ANSWER_TIMEOUT_ROUND_TRIPS: u32 = 3;
/// Health timeouts that a connection may be silent while its server sends on other connections: a server that
/// accepts many connections at once answers the existing ones late.
const BUSY_FACTOR: u32 = 4;
/// How long to wait for a connection's session ticket. A server sends it at the end of the handshake, if at all.
const SESSION_TIMEOUT: Duration = Duration::from_secs(5);
/// Packets that answer a PING or a keepalive, with one that was in flight. More than these are traffic.
const MAX_ANSWER_PACKETS: usize = 2;
/// Probe intervals between two probes on a connection without flows.
const IDLE_FACTOR: u32 = 3;

/// A QUIC connection to a server, with its flows and its health.
#[derive(Debug)]
pub struct TunnelConnection {
    /// Number of the server.
    pub server: usize,
    /// Address of the server.
    pub address: SocketAddr,
    /// The connection group that it serves; `None` with one connection per flow.
    pub group: Option<usize>,
    /// Streams can be opened, possibly as early data.
    pub open: bool,
    /// The handshake is complete.
    pub established: bool,
    /// Flows and pending requests on it.
    pub flows: usize,
    /// When the newest flow began.
    pub last_flow: Instant,
    /// When the connection attempt began.
    pub started: Instant,
    /// Takes no new flows: the server is going away, or the connection is about to be closed.
    pub retired: bool,
    /// An attempt without an answer in time. It stays open in case the answer comes.
    pub overdue: bool,
    /// Its session ticket has been stored.
    pub has_session: bool,
    /// No packet has come within the health timeout.
    silent: bool,
    /// Health probes of the connection.
    probing: Probing,
    /// When the last known packet came.
    heard: Instant,
    /// When the server was asked first and last since then.
    asked: Option<(Instant, Instant)>,
    /// Whether the server has been asked since the traffic paused.
    is_asked_after_traffic: bool,
    /// Packets received until the last check.
    packets_heard: usize,
    /// When to check again, if that is before the next tick.
    next_check: Option<Instant>,
}

/// Result of [`TunnelConnection::watch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchOutcome {
    /// The connection has just exceeded the health timeout.
    pub is_lost: bool,
    /// It has migrated to another local address.
    pub has_moved: bool,
}

impl TunnelConnection {
    /// A connection attempt that begins `now`.
    pub fn new(server: usize, group: Option<usize>, address: SocketAddr, now: Instant) -> Self {
        Self {
            server,
            address,
            group,
            open: false,
            established: false,
            flows: 0,
            last_flow: now,
            started: now,
            retired: false,
            overdue: false,
            has_session: false,
            silent: false,
            probing: Probing::new(now),
            heard: now,
            asked: None,
            is_asked_after_traffic: false,
            packets_heard: 0,
            next_check: None,
        }
    }

    /// Whether it is established and takes new flows.
    pub fn is_healthy(&self) -> bool {
        self.established && self.takes_flows()
    }

    /// Whether it is an attempt that is neither overdue nor retired.
    pub fn is_fresh_attempt(&self) -> bool {
        !self.established && !self.overdue && !self.retired
    }

    /// Whether it takes new flows, as soon as it is open.
    pub fn takes_flows(&self) -> bool {
        !self.retired && !self.silent
    }

    /// Whether it needs no maintenance `now` beyond carrying its flows.
    pub fn only_carries_flows(&self, now: Instant) -> bool {
        let session_is_settled = self.has_session || now - self.started > SESSION_TIMEOUT;
        self.established && session_is_settled && self.flows > 0
    }

    /// Whether it is an attempt whose flows have waited for the first answer for at least `timeout`.
    pub fn is_unanswered_attempt(&self, now: Instant, timeout: Duration) -> bool {
        let waited = now.saturating_duration_since(self.started);
        !self.established && self.flows > 0 && waited >= timeout
    }

    /// Updates the time of the last packet. Returns it if the connection is established.
    pub fn update_heard(&mut self, core: &mut Core, id: ConnId) -> Option<Instant> {
        if self.established
            && let Some(silence) = core.silence(id)
        {
            self.heard = core.now() - silence;
        }
        self.established.then_some(self.heard)
    }

    /// Sends the server a PING while it is silent. The health timeout is longer when the server is
    /// `heard_elsewhere`, on another connection.
    pub fn watch(
        &mut self,
        core: &mut Core,
        id: ConnId,
        config: &ClientTunnel,
        heard_elsewhere: bool,
    ) -> WatchOutcome {
        let now = core.now();
        let mut outcome = WatchOutcome::default();
        self.next_check = None;
        if !self.established || self.retired {
            return outcome;
        }
        let silence = now.saturating_duration_since(self.heard);
        let answered = self.asked.is_some_and(|(first, _)| self.heard > first);
        if answered || silence < config.health_interval {
            self.asked = None;
            self.next_check = Some(self.heard + config.health_interval);
            if std::mem::take(&mut self.silent) {
                tracing::info!(conn = id.number(), "server responsive again");
            }
            return outcome;
        }
        let (first, last) = match self.asked {
            Some((first, last)) if now.duration_since(last) < config.health_interval => {
                (first, last)
            }
            asked => {
                outcome.has_moved = ask(core, id);
                (asked.map_or(now, |(first, _)| first), now)
            }
        };
        self.asked = Some((first, last));
        let round_trips = ANSWER_TIMEOUT_ROUND_TRIPS * core.rtt(id).unwrap_or(Duration::ZERO);
        let answer_timeout =
            round_trips.max(config.health_timeout.saturating_sub(config.health_interval));
        let timeout = config.health_timeout * if heard_elsewhere { BUSY_FACTOR } else { 1 };
        let deadline = (self.heard + timeout).max(first + answer_timeout);
        if now >= deadline {
            outcome.is_lost = !std::mem::replace(&mut self.silent, true);
        } else {
            self.next_check = Some(deadline.min(last + config.health_interval));
        }
        outcome
    }

    /// Sends the server one PING when the traffic of a connection that only carries flows has paused for `interval`.
    /// If a NAT rebinding stopped the traffic, only a packet from this end tells the server the new address. Until the
    /// answer comes, the connection follows the local route to the server. Returns whether it has migrated.
    pub fn ask_after_traffic(&mut self, core: &mut Core, id: ConnId, interval: Duration) -> bool {
        let (now, before) = (core.now(), self.heard);
        let Some(heard) = self.update_heard(core, id) else { return false };
        if heard > before {
            let packets = core.packets_heard(id);
            self.is_asked_after_traffic &=
                packets.saturating_sub(self.packets_heard) <= MAX_ANSWER_PACKETS;
            self.packets_heard = packets;
            (self.asked, self.silent) = (None, false);
        }
        if self.asked.is_some() {
            return core.follow_route(id);
        }
        if self.is_asked_after_traffic || now - heard < interval {
            return false;
        }
        (self.asked, self.is_asked_after_traffic) = (Some((now, now)), true);
        ask(core, id)
    }

    /// The connection needs maintenance again: PINGs sent meanwhile do not count as unanswered.
    pub fn activate(&mut self) {
        self.asked = None;
    }

    /// Probes whether full-size packets pass. Returns `true` when they do not: the connection then takes no new
    /// flows, and is closed once it has none.
    pub fn probe(
        &mut self,
        core: &mut Core,
        id: ConnId,
        config: &ClientTunnel,
        authority: &str,
    ) -> bool {
        let Some(interval) = config.probe_interval else { return false };
        if !self.established || self.retired {
            return false;
        }
        let interval = if self.flows > 0 { interval } else { IDLE_FACTOR * interval };
        self.retired = self.probing.is_stuck(core, id, interval, authority);
        self.retired
    }

    /// When the last known packet came.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// When [`TunnelConnection::watch`] has something to do before the next tick.
    pub fn next_check(&self) -> Option<Instant> {
        self.next_check
    }
}

/// Sends the server a PING from the current local address: the usual reason for silence is that the client's address
/// has changed. Returns whether the local address is another one.
fn ask(core: &mut Core, id: ConnId) -> bool {
    core.ping(id);
    core.follow_route(id)
}
