//! How many connections a server needs: which are missing, and which are surplus.

use std::collections::HashMap;
use std::time::Instant;

use millrace_config::Connections;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::h3_errors::H3_NO_ERROR;

use super::attempts::{self, MAX_CONNECTING};
use super::group_demand::GroupDemand;
use super::state::PoolState;
use super::tunnel_connection::TunnelConnection;
use crate::server_set::ServerSet;

/// The connection group of each connection to open to a server; `waiting` flows wait for a connection of their own.
pub(crate) fn missing(
    state: &PoolState,
    groups: &GroupDemand,
    now: Instant,
    server: usize,
    waiting: usize,
) -> Vec<Option<usize>> {
    let in_use = is_in_use(state, now, server);
    let live = || {
        let connections = state.connections.active().map(|(_, connection)| connection);
        connections.filter(|connection| {
            connection.server == server
                && connection.takes_flows()
                && attempts::is_pending_or_established(state, connection, now)
        })
    };
    match state.config.connections {
        Connections::Shared => {
            let has = |group| live().any(|connection| connection.group == group);
            let standby = groups.standby();
            let needed = groups.needed().filter(|group| in_use || *group == standby);
            needed.map(Some).filter(|group| !has(*group)).collect()
        }
        Connections::PerFlow { warm } => {
            let idle = live().filter(|connection| connection.flows == 0).count();
            let connecting = live().filter(|connection| !connection.established).count();
            // One connection is always needed to check the health of the server.
            let wanted = if in_use { warm.max(1) + waiting } else { 1 };
            let missing = wanted.saturating_sub(idle);
            vec![None; missing.min(MAX_CONNECTING.saturating_sub(connecting))]
        }
    }
}

/// Whether new flows go to a server now, or would as soon as it is reached.
fn is_in_use(state: &PoolState, now: Instant, server: usize) -> bool {
    let first = state.servers.iter().map(|server| server.config.priority).min();
    let active = state.active_priority(now, ServerSet::default()).or(first);
    let server = &state.servers[server];
    active == Some(server.config.priority) && (server.is_healthy() || !server.is_down())
}

/// Closes idle connections that are retired, exceed the number to keep, or are of groups without use.
pub(crate) fn close_surplus(state: &mut PoolState, groups: &GroupDemand, core: &mut Core) {
    let keep = match state.config.connections {
        Connections::Shared => 1,
        Connections::PerFlow { warm } => warm.max(1),
    };
    let is_needed = |group: Option<usize>| group.is_none_or(|group| groups.needs(group));
    let mut idle: HashMap<(usize, Option<usize>), usize> = HashMap::new();
    let is_idle = |connection: &TunnelConnection| connection.flows == 0;
    for (id, connection) in
        state.connections.active_mut().filter(|(_, connection)| is_idle(connection))
    {
        let kept = idle.entry((connection.server, connection.group)).or_default();
        *kept += usize::from(connection.is_healthy());
        let keep = if is_needed(connection.group) { keep } else { 0 };
        if connection.retired || (connection.is_healthy() && *kept > keep) {
            connection.retired = true;
            core.close(id, H3_NO_ERROR, b"");
        }
    }
}
