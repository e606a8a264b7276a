//! A QUIC connection to a server, with the state that the pool keeps about it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::ClientTunnel;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;

use super::connection_liveness::{ConnectionLiveness, LivenessCheck};
use super::probing::Probing;

/// How long to wait for a connection's session ticket. A server sends it at the end of the handshake, if at all.
const SESSION_TICKET_TIMEOUT: Duration = Duration::from_secs(5);
/// Probe intervals between two probes on a connection without flows.
const IDLE_PROBE_INTERVALS: u32 = 3;

/// A QUIC connection to a server, with its use and its health.
#[derive(Debug)]
pub(crate) struct TunnelConnection {
    /// Number of the server.
    pub(crate) server: usize,
    /// Address of the server.
    pub(crate) address: SocketAddr,
    /// The connection group that it serves; `None` with one connection per flow.
    pub(crate) group: Option<usize>,
    /// The handshake is complete.
    pub(crate) established: bool,
    /// Flows and pending requests on it.
    pub(crate) flows: usize,
    /// When the connection attempt began.
    pub(crate) started: Instant,
    /// Takes no new flows: the server is going away, or the connection is about to be closed.
    pub(crate) retired: bool,
    /// An attempt without an answer in time. It stays open in case the answer comes.
    pub(crate) overdue: bool,
    /// Its session ticket has been stored.
    pub(crate) has_session: bool,
    /// Whether the server answers on it.
    pub(crate) liveness: ConnectionLiveness,
    /// Health probes of the connection.
    probing: Probing,
}

impl TunnelConnection {
    /// A connection attempt that begins `now`.
    pub(crate) fn new(
        server: usize,
        group: Option<usize>,
        address: SocketAddr,
        now: Instant,
    ) -> Self {
        Self {
            server,
            address,
            group,
            established: false,
            flows: 0,
            started: now,
            retired: false,
            overdue: false,
            has_session: false,
            liveness: ConnectionLiveness::new(now),
            probing: Probing::new(now),
        }
    }

    /// Whether it is to this server, for this connection group.
    pub(crate) fn serves(&self, server: usize, group: Option<usize>) -> bool {
        (self.server, self.group) == (server, group)
    }

    /// Whether it is known to work while `lost` does not: it leads to another server, or to the same server, which was
    /// heard on it after it had been asked on `lost`. Without such an answer it may be the server that is silent, which
    /// is not noticed on all its connections at once.
    pub(crate) fn works_beside(&self, lost: &Self) -> bool {
        let answers = |asked| self.liveness.last_received() > asked;
        self.server != lost.server || lost.liveness.first_asked().is_none_or(answers)
    }

    /// Whether it is established and takes new flows.
    pub(crate) fn is_healthy(&self) -> bool {
        self.established && self.takes_flows()
    }

    /// Whether it is an attempt that is neither overdue nor retired.
    pub(crate) fn is_fresh_attempt(&self) -> bool {
        !self.established && !self.overdue && !self.retired
    }

    /// Whether it takes new flows, as soon as it is open.
    pub(crate) fn takes_flows(&self) -> bool {
        !self.retired && !self.liveness.is_silent()
    }

    /// Whether it needs no maintenance `now` beyond carrying its flows.
    pub(crate) fn only_carries_flows(&self, now: Instant) -> bool {
        let session_is_settled = self.has_session || now - self.started > SESSION_TICKET_TIMEOUT;
        self.established && session_is_settled && self.flows > 0
    }

    /// Whether it is an attempt whose flows have waited for the first answer for at least `timeout`.
    pub(crate) fn is_unanswered_attempt(&self, now: Instant, timeout: Duration) -> bool {
        let waited = now.saturating_duration_since(self.started);
        !self.established && self.flows > 0 && waited >= timeout
    }

    /// Updates the time of the last packet. Returns it if the connection is established.
    pub(crate) fn update_last_received(&mut self, core: &mut Core, id: ConnId) -> Option<Instant> {
        if !self.established {
            return None;
        }
        self.liveness.update_last_received(core, id);
        Some(self.liveness.last_received())
    }

    /// Checks whether the server answers. See [`ConnectionLiveness::check`].
    pub(crate) fn watch(
        &mut self,
        core: &mut Core,
        id: ConnId,
        config: &ClientTunnel,
        received_elsewhere: bool,
    ) -> LivenessCheck {
        if !self.established || self.retired {
            self.liveness.skip_check();
            return LivenessCheck::default();
        }
        self.liveness.check(core, id, config, received_elsewhere)
    }

    /// Probes whether full-size packets pass. Returns `true` when they do not: the connection then takes no new
    /// flows, and is closed once it has none.
    pub(crate) fn probe(
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
        let interval = if self.flows > 0 { interval } else { IDLE_PROBE_INTERVALS * interval };
        self.retired = self.probing.is_stuck(core, id, interval, authority);
        self.retired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection to a server that was heard and then asked, so many seconds after the start.
    fn connection(server: usize, heard_s: u64, asked_s: Option<u64>) -> TunnelConnection {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        let at = |s| *START + Duration::from_secs(s);
        let mut connection =
            TunnelConnection::new(server, None, ([198, 18, 0, 1], 4433).into(), *START);
        connection.liveness = ConnectionLiveness::seen(at(heard_s), asked_s.map(at));
        connection
    }

    #[test]
    fn a_connection_to_another_server_works_beside_a_silent_one() {
        assert!(connection(1, 1, None).works_beside(&connection(0, 1, Some(2))));
    }

    #[test]
    fn one_to_the_same_server_works_when_it_was_heard_after_the_other_was_asked() {
        let silent = connection(0, 1, Some(2));
        for (heard_s, works) in [(1, false), (2, false), (3, true)] {
            let other = connection(0, heard_s, Some(4));
            assert_eq!(other.works_beside(&silent), works, "heard at {heard_s} s");
        }
    }

    #[test]
    fn one_that_failed_without_silence_leaves_the_same_server_in_use() {
        assert!(connection(0, 1, None).works_beside(&connection(0, 1, None)));
    }
}
