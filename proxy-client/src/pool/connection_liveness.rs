//! Whether the server answers on a connection: PINGs while it is silent, and how long it may be.

use std::time::{Duration, Instant};

use millrace_config::ClientTunnel;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;

/// Least time for an answer of the server, in round trips.
pub(crate) const MIN_ANSWER_TIMEOUT_ROUND_TRIPS: u32 = 3;
/// Health timeouts that a connection may be silent while its server sends on other connections: a server that
/// accepts many connections at once answers the existing ones late.
const BUSY_SERVER_HEALTH_TIMEOUTS: u32 = 4;
/// Packets that answer a PING or a keepalive, with one that was in flight. More than these are traffic.
const MAX_ANSWER_PACKETS: usize = 2;

/// When the last packet of a server came on a connection, and what it was asked since then.
#[derive(Debug)]
pub(crate) struct ConnectionLiveness {
    /// No packet has come within the health timeout.
    silent: bool,
    /// When the last known packet came.
    last_received: Instant,
    /// When the server was asked first and last since then.
    asked: Option<(Instant, Instant)>,
    /// Whether the server has been asked since the traffic paused.
    is_asked_after_traffic: bool,
    /// Packets received until the last check.
    received_packets: usize,
    /// When to check again, if that is before the next tick.
    next_check: Option<Instant>,
}

/// Result of [`ConnectionLiveness::check`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LivenessCheck {
    /// The connection has just exceeded the health timeout.
    pub(crate) is_lost: bool,
    /// It has migrated to another local address.
    pub(crate) has_moved: bool,
}

impl ConnectionLiveness {
    /// Of a connection attempt that begins `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            silent: false,
            last_received: now,
            asked: None,
            is_asked_after_traffic: false,
            received_packets: 0,
            next_check: None,
        }
    }

    /// Of a connection on which a packet came and which was asked then.
    #[cfg(test)]
    pub(crate) fn seen(last_received: Instant, asked: Option<Instant>) -> Self {
        Self { asked: asked.map(|at| (at, at)), ..Self::new(last_received) }
    }

    /// Whether no packet has come within the health timeout.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// When the last known packet came.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// When the server was asked first since then.
    pub(crate) fn first_asked(&self) -> Option<Instant> {
        self.asked.map(|(first, _)| first)
    }

    /// When [`ConnectionLiveness::check`] has something to do before the next tick.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.next_check
    }

    /// There is nothing to check until the next tick.
    pub(crate) fn skip_check(&mut self) {
        self.next_check = None;
    }

    /// Updates the time of the last packet of an established connection.
    pub(crate) fn update_last_received(&mut self, core: &mut Core, id: ConnId) {
        if let Some(silence) = core.silence(id) {
            self.last_received = core.now() - silence;
        }
    }

    /// Sends the server a PING while it is silent. The health timeout is longer when the server is
    /// `received_elsewhere`, on another connection.
    pub(crate) fn check(
        &mut self,
        core: &mut Core,
        id: ConnId,
        config: &ClientTunnel,
        received_elsewhere: bool,
    ) -> LivenessCheck {
        let now = core.now();
        let silence = now.saturating_duration_since(self.last_received);
        let answered = self.asked.is_some_and(|(first, _)| self.last_received > first);
        if answered || silence < config.health_interval {
            self.asked = None;
            self.next_check = Some(self.last_received + config.health_interval);
            if std::mem::take(&mut self.silent) {
                tracing::info!(conn = id.number(), "server responsive again");
            }
            return LivenessCheck::default();
        }
        let (first, last, has_moved) = self.ask_again(core, id, config.health_interval);
        let round_trips = MIN_ANSWER_TIMEOUT_ROUND_TRIPS * core.rtt(id).unwrap_or(Duration::ZERO);
        let answer_timeout =
            round_trips.max(config.health_timeout.saturating_sub(config.health_interval));
        let health_timeouts = if received_elsewhere { BUSY_SERVER_HEALTH_TIMEOUTS } else { 1 };
        let timeout = config.health_timeout * health_timeouts;
        let deadline = (self.last_received + timeout).max(first + answer_timeout);
        if now >= deadline {
            self.next_check = None;
            return LivenessCheck {
                is_lost: !std::mem::replace(&mut self.silent, true),
                has_moved,
            };
        }
        self.next_check = Some(deadline.min(last + config.health_interval));
        LivenessCheck { is_lost: false, has_moved }
    }

    /// Sends a PING when the last one is older than `interval`. Returns when the server was asked first and last, and
    /// whether the connection has migrated.
    fn ask_again(
        &mut self,
        core: &mut Core,
        id: ConnId,
        interval: Duration,
    ) -> (Instant, Instant, bool) {
        let now = core.now();
        let (first, last, has_moved) = match self.asked {
            Some((first, last)) if now.duration_since(last) < interval => (first, last, false),
            asked => {
                let has_moved = ask(core, id);
                (asked.map_or(now, |(first, _)| first), now, has_moved)
            }
        };
        self.asked = Some((first, last));
        (first, last, has_moved)
    }

    /// Sends the server one PING when the traffic of a connection that only carries flows has paused for `interval`.
    /// If a NAT rebinding stopped the traffic, only a packet from this end tells the server the new address. Until the
    /// answer comes, the connection follows the local route to the server. Returns whether it has migrated.
    pub(crate) fn ask_after_traffic(
        &mut self,
        core: &mut Core,
        id: ConnId,
        interval: Duration,
    ) -> bool {
        let (now, before) = (core.now(), self.last_received);
        self.update_last_received(core, id);
        if self.last_received > before {
            let packets = core.received_packets(id);
            self.is_asked_after_traffic &=
                packets.saturating_sub(self.received_packets) <= MAX_ANSWER_PACKETS;
            self.received_packets = packets;
            (self.asked, self.silent) = (None, false);
        }
        if self.asked.is_some() {
            return core.follow_route(id);
        }
        if self.is_asked_after_traffic || now - self.last_received < interval {
            return false;
        }
        (self.asked, self.is_asked_after_traffic) = (Some((now, now)), true);
        ask(core, id)
    }

    /// PINGs sent until now do not count as unanswered.
    pub(crate) fn forget_asked(&mut self) {
        self.asked = None;
    }
}

/// Sends the server a PING from the current local address: the usual reason for silence is that the client's address
/// has changed. Returns whether the local address is another one.
fn ask(core: &mut Core, id: ConnId) -> bool {
    core.ping(id);
    core.follow_route(id)
}
