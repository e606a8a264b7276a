//! Choice of the connection for a new flow.

use std::time::Instant;

use millrace_config::Connections;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;

use super::state::PoolState;
use super::tunnel_connection::TunnelConnection;
use crate::server_set::ServerSet;

/// A connection that a new flow of `group` can use now: the one with the fewest flows among
/// those to the preferred servers, except the servers in `refused_by`.
pub(crate) fn choose(
    state: &PoolState,
    core: &Core,
    group: usize,
    refused_by: ServerSet,
) -> Option<ConnId> {
    let now = core.now();
    let active = state.active_priority(now, refused_by);
    let fits = |connection: &TunnelConnection| {
        !refused_by.contains(connection.server)
            && is_preferred(state, connection, active, now)
            && is_free(state, connection, group, refused_by)
            && connection.takes_flows()
    };
    let is_open = |id: ConnId| core.conn(id).is_some_and(|it| it.is_open());
    let usable =
        state.connections.active().filter(|(id, connection)| fits(connection) && is_open(*id));
    let order = |connection: &TunnelConnection| {
        (!connection.established, connection.group != Some(group), connection.flows)
    };
    usable.min_by_key(|(_, connection)| order(connection)).map(|(id, _)| id)
}

/// Whether the server of a connection is one that new flows go to. `active` is the priority of the usable servers.
fn is_preferred(
    state: &PoolState,
    connection: &TunnelConnection,
    active: Option<u32>,
    now: Instant,
) -> bool {
    let server = &state.servers[connection.server];
    let reached = match active {
        Some(active) => server.is_usable(now) && server.config.priority == active,
        // Early data to a server that is probably available.
        None => !server.is_full(now) && !server.is_down(),
    };
    reached && (connection.established || server.addresses.takes_early_data(connection.address))
}

/// Whether a connection has room for a flow of `group`.
fn is_free(
    state: &PoolState,
    connection: &TunnelConnection,
    group: usize,
    refused_by: ServerSet,
) -> bool {
    match state.config.connections {
        // A standby server has one connection for all groups.
        Connections::Shared => connection.group == Some(group) || !refused_by.is_empty(),
        Connections::PerFlow { .. } => connection.flows == 0,
    }
}
