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
    pub(crate) fn update_heard(&mut self, core: &mut Core, id: ConnId) -> Option<Instant> {
        if !self.established {
            return None;
        }
        self.liveness.update_heard(core, id);
        Some(self.liveness.heard())
    }

    /// Checks whether the server answers. See [`ConnectionLiveness::check`].
    pub(crate) fn watch(
        &mut self,
        core: &mut Core,
        id: ConnId,
        config: &ClientTunnel,
        heard_elsewhere: bool,
    ) -> LivenessCheck {
        if !self.established || self.retired {
            self.liveness.skip_check();
            return LivenessCheck::default();
        }
        self.liveness.check(core, id, config, heard_elsewhere)
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
