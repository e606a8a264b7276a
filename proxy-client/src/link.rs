//! One connection to a server, as the pool sees it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::ClientTunnel;
use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::Core;

use crate::probing::Probing;

/// Round trips that a server gets for its answer, however short the configured time is.
pub const PATIENCE_ROUND_TRIPS: u32 = 3;
/// Health timeouts that a connection may be silent while its server is heard on others. A server that makes a
/// thousand connections at once on two processors answers the others two seconds late (measured with
/// `a_thousand_busy_flows_beside_idle_ones_with_ten_thousand_connections`).
const BUSY_FACTOR: u32 = 4;
/// How long a connection's session is waited for. A server sends it at the end of the handshake, if at all.
const SESSION_PATIENCE: Duration = Duration::from_secs(5);
/// Packets that answer a PING or a keepalive, with one that was on its way. More is traffic.
const MAX_ANSWER_PACKETS: usize = 2;
/// Intervals of probes between two on a connection without flows.
const IDLE_FACTOR: u32 = 3;

/// See the module.
#[derive(Debug)]
pub struct Link {
    /// The server's number.
    pub server: usize,
    /// The server's address that it leads to.
    pub address: SocketAddr,
    /// The lane that it is kept for; `None` with one connection for each flow.
    pub lane: Option<usize>,
    /// Streams can be opened, be it as early data.
    pub open: bool,
    /// The handshake is over.
    pub established: bool,
    /// Flows on it, and requests for them.
    pub flows: usize,
    /// When the newest of them began.
    pub last_flow: Instant,
    /// When connecting began.
    pub started: Instant,
    /// Takes no new flows: the server said so, or it is to be closed.
    pub retired: bool,
    /// An attempt that had no answer in time, and stays in case that one comes.
    pub overdue: bool,
    /// Its session is known.
    pub has_session: bool,
    /// Nothing has come for too long.
    silent: bool,
    /// Whether it carries what flows need.
    probing: Probing,
    /// When something came last, as far as is known.
    heard: Instant,
    /// The first question since then, and the last.
    asked: Option<(Instant, Instant)>,
    /// The server has been asked since its traffic paused.
    is_asked_after_traffic: bool,
    /// Packets that had come at the last look.
    packets_heard: usize,
    /// When to look again, if the regular ticks do not do.
    next_look: Option<Instant>,
}

/// What [`Link::watch`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchOutcome {
    /// The connection has just been silent for too long.
    pub is_lost: bool,
    /// It has moved to another address of this machine.
    pub has_moved: bool,
}

impl Link {
    /// An attempt to connect that begins `now`.
    pub fn new(server: usize, lane: Option<usize>, address: SocketAddr, now: Instant) -> Self {
        Self {
            server,
            address,
            lane,
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
            next_look: None,
        }
    }

    /// Whether the server is there, and takes new flows on it.
    pub fn healthy(&self) -> bool {
        self.established && self.takes_flows()
    }

    /// Whether it is an attempt that may still succeed and has not had its time yet.
    pub fn is_fresh_attempt(&self) -> bool {
        !self.established && !self.overdue && !self.retired
    }

    /// Whether it can have new flows, as soon as it is open.
    pub fn takes_flows(&self) -> bool {
        !self.retired && !self.silent
    }

    /// Whether there is nothing more to do `now` than to carry the flows that it has.
    pub fn only_carries_flows(&self, now: Instant) -> bool {
        let session_is_settled = self.has_session || now - self.started > SESSION_PATIENCE;
        self.established && session_is_settled && self.flows > 0
    }

    /// Whether flows have waited for the first answer of an attempt to connect for `patience`.
    pub fn is_unanswered_attempt(&self, now: Instant, patience: Duration) -> bool {
        let waited = now.saturating_duration_since(self.started);
        !self.established && self.flows > 0 && waited >= patience
    }

    /// Finds out when the last packet came; the time, if it is established.
    pub fn listen(&mut self, core: &mut Core, id: ConnId) -> Option<Instant> {
        if self.established
            && let Some(silence) = core.silence(id)
        {
            self.heard = core.now() - silence;
        }
        self.established.then_some(self.heard)
    }

    /// Asks the server whether it is there if it is silent. It may be silent for longer when the server is
    /// `heard_elsewhere`.
    pub fn watch(
        &mut self,
        core: &mut Core,
        id: ConnId,
        config: &ClientTunnel,
        heard_elsewhere: bool,
    ) -> WatchOutcome {
        let now = core.now();
        let mut outcome = WatchOutcome::default();
        self.next_look = None;
        if !self.established || self.retired {
            return outcome;
        }
        let silence = now.saturating_duration_since(self.heard);
        let answered = self.asked.is_some_and(|(first, _)| self.heard > first);
        if answered || silence < config.health_interval {
            self.asked = None;
            self.next_look = Some(self.heard + config.health_interval);
            if std::mem::take(&mut self.silent) {
                tracing::info!(conn = id.number(), "server heard again");
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
        let round_trips = PATIENCE_ROUND_TRIPS * core.rtt(id).unwrap_or(Duration::ZERO);
        let patience =
            round_trips.max(config.health_timeout.saturating_sub(config.health_interval));
        let timeout = config.health_timeout * if heard_elsewhere { BUSY_FACTOR } else { 1 };
        let verdict = (self.heard + timeout).max(first + patience);
        if now >= verdict {
            outcome.is_lost = !std::mem::replace(&mut self.silent, true);
        } else {
            self.next_look = Some(verdict.min(last + config.health_interval));
        }
        outcome
    }

    /// Asks the server once when the traffic of a connection that only carries flows has paused for `interval`: what
    /// stopped it may be a NAT that maps this end to another address, of which only a packet from here tells the
    /// server. Until the answer comes, the connection follows this machine's route to the server. Whether it has moved.
    pub fn ask_after_traffic(&mut self, core: &mut Core, id: ConnId, interval: Duration) -> bool {
        let (now, before) = (core.now(), self.heard);
        let Some(heard) = self.listen(core, id) else { return false };
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

    /// Something is to be done with it again: what has been asked meanwhile says nothing.
    pub fn activate(&mut self) {
        self.asked = None;
    }

    /// Probes whether more than small packets passes. `true` when that has turned out not to be so: then it
    /// takes no new flows any more, and goes when it has none.
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

    /// When something came last, as far as is known.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// When [`Link::watch`] has something to do before the next tick.
    pub fn next_look(&self) -> Option<Instant> {
        self.next_look
    }
}

/// Makes the server answer, from the address that this machine has now: the usual reason at a client for hearing
/// nothing is that its own is gone. Whether it is another one.
fn ask(core: &mut Core, id: ConnId) -> bool {
    core.ping(id);
    core.follow_route(id)
}
