//! Health checks of the connections: PINGs on silence, and probes with full-size packets.

use std::collections::HashSet;
use std::time::Instant;

use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;

use super::state::PoolState;
use super::tunnel_connection::TunnelConnection;

/// The schedule of the health checks of a worker.
pub(crate) struct HealthChecks {
    /// When to check the settled connections again.
    next_settled_check: Instant,
}

/// Result of [`HealthChecks::run`].
pub(crate) struct HealthCheck {
    /// Connections that flows must leave: established ones that have just exceeded the health timeout or failed a probe,
    /// which get no new flows, and attempts with early data that had no answer in time.
    pub(crate) lost: Vec<ConnId>,
    /// Whether a connection has failed a probe and is retired.
    pub(crate) has_retired: bool,
}

impl HealthChecks {
    /// All connections are due.
    pub(crate) fn new() -> Self {
        Self { next_settled_check: Instant::now() }
    }

    /// Checks all connections, and marks their servers as failed. On the connections in `awaited` flows wait for the
    /// server's response.
    pub(crate) fn run(
        &mut self,
        state: &mut PoolState,
        core: &mut Core,
        awaited: &HashSet<ConnId>,
    ) -> HealthCheck {
        settle(state, core.now(), awaited);
        let (mut lost, have_moved) = watch_active(state, core);
        self.watch_settled(state, core, have_moved);
        let unanswered = unanswered_attempts(state, core.now());
        let stuck = probe(state, core);
        let has_retired = !stuck.is_empty();
        lost.extend(stuck);
        for id in &lost {
            if let Some(connection) = state.connections.get(*id) {
                state.servers[connection.server].failed(core.now());
            }
        }
        lost.extend(unanswered);
        HealthCheck { lost, has_retired }
    }

    /// Checks the settled connections. `have_moved` says that other connections have migrated to another local address.
    fn watch_settled(&mut self, state: &mut PoolState, core: &mut Core, mut have_moved: bool) {
        let interval = state.config.health_interval;
        if core.now() >= self.next_settled_check {
            self.next_settled_check = core.now() + interval / 2;
            for (id, connection) in state.connections.settled_mut() {
                have_moved |= connection.liveness.ask_after_traffic(core, id, interval);
                state.servers[connection.server].on_packet(connection.liveness.last_received());
            }
        }
        if have_moved {
            for (id, _) in state.connections.settled_mut() {
                core.follow_route(id);
            }
        }
    }
}

/// With one connection per flow there can be many that only carry a flow; these are checked only when their traffic
/// pauses.
fn settle(state: &mut PoolState, now: Instant, awaited: &HashSet<ConnId>) {
    if state.has_connection_per_flow() {
        state
            .connections
            .settle(|id, connection| connection.only_carries_flows(now) && !awaited.contains(&id));
    }
}

/// Sends PINGs to silent servers. Returns the connections that have just exceeded the health timeout, and whether one
/// has migrated to another local address.
fn watch_active(state: &mut PoolState, core: &mut Core) -> (Vec<ConnId>, bool) {
    for (id, connection) in state.connections.active_mut() {
        if let Some(received) = connection.update_last_received(core, id) {
            state.servers[connection.server].on_packet(received);
        }
    }
    let per_flow = state.has_connection_per_flow();
    let alive: Vec<_> =
        (0..state.servers.len()).map(|index| state.is_alive(index, core.now())).collect();
    let (mut lost, mut have_moved) = (Vec::new(), false);
    for (id, connection) in state.connections.active_mut() {
        let received_elsewhere = per_flow && alive[connection.server];
        let check = connection.watch(core, id, &state.config, received_elsewhere);
        have_moved |= check.has_moved;
        if check.is_lost {
            let server = &state.servers[connection.server].config;
            tracing::warn!(%server, "server unresponsive");
            lost.push(id);
        }
    }
    (lost, have_moved)
}

/// Attempts with waiting flows that an unresponsive server has not answered in time.
fn unanswered_attempts(state: &PoolState, now: Instant) -> Vec<ConnId> {
    let is_unanswered = |connection: &TunnelConnection| {
        let timeout = state.servers[connection.server].answer_timeout(state.config.health_timeout);
        connection.is_unanswered_attempt(now, timeout) && !state.is_alive(connection.server, now)
    };
    let unanswered = state.connections.active().filter(|(_, connection)| is_unanswered(connection));
    unanswered.map(|(id, _)| id).collect()
}

/// Probes the connections that new flows may use. Returns those that have just been found stuck.
fn probe(state: &mut PoolState, core: &mut Core) -> Vec<ConnId> {
    let per_flow = state.has_connection_per_flow();
    let mut stuck = Vec::new();
    // With one connection per flow there can be many that get no new flows.
    let watched =
        state.connections.active_mut().filter(|(_, connection)| !per_flow || connection.flows == 0);
    for (id, connection) in watched {
        let server = &mut state.servers[connection.server];
        if connection.probe(core, id, &state.config, &server.authority()) {
            server.on_stuck();
            stuck.push(id);
        }
    }
    stuck
}
