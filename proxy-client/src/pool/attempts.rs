//! Attempts to connect to a server: to one address after the other, some of them at a time (Happy Eyeballs, RFC 8305).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::h3_errors::H3_NO_ERROR;
use millrace_tunnel::source_address::source_address;

use super::server::Server;
use super::sockets::TunnelSockets;
use super::state::PoolState;
use super::tunnel_connection::TunnelConnection;

/// Largest number of concurrent connection attempts with one connection per flow. More would only compete for the
/// same path.
pub(crate) const MAX_CONNECTING: usize = 32;
/// Head start of each address of a server over the next one (RFC 8305 §5, §8).
const ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// Time without an answer after which another attempt is made beside one: the next packet of the first may be
/// seconds away.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);
/// Least [`ATTEMPT_TIMEOUT`] in round trips, where the round-trip time is known.
const MIN_ATTEMPT_ROUND_TRIPS: u32 = 3;
/// Largest number of overdue attempts of one connection group. More than one matters on paths with round-trip times of
/// seconds. With one connection per flow the bound is [`MAX_CONNECTING`].
const MAX_OVERDUE_ATTEMPTS: usize = 4;

/// Begins an attempt to the first address of a server to which a connection can be opened. Returns `false` when no
/// address is left.
pub(crate) fn begin(
    state: &mut PoolState,
    sockets: &TunnelSockets,
    core: &mut Core,
    server: usize,
    group: Option<usize>,
) -> bool {
    for _ in 0..state.servers[server].addresses.count() {
        let Some(address) = state.servers[server].addresses.next_to_try(group) else {
            return false;
        };
        close_oldest_overdue(state, core, server, group);
        match connect(&state.servers[server], sockets, core, address) {
            Ok(id) => {
                let connection = TunnelConnection::new(server, group, address, core.now());
                state.connections.insert(id, connection);
                return true;
            }
            Err(error) => {
                let server = &state.servers[server].config;
                tracing::warn!(%server, %address, %error, "can't connect");
            }
        }
    }
    false
}

fn connect(
    server: &Server,
    sockets: &TunnelSockets,
    core: &mut Core,
    address: SocketAddr,
) -> io::Result<ConnId> {
    let port = sockets.of(address)?;
    let local = SocketAddr::new(source_address(address)?, core.port_number(port));
    let Server { config, resumption, .. } = server;
    core.connect(port, local, address, &config.name, resumption).map_err(io::Error::other)
}

/// Makes room for another attempt: closes the oldest overdue one. Attempts with flows stay, because their
/// requests have been sent as early data.
fn close_oldest_overdue(
    state: &mut PoolState,
    core: &mut Core,
    server: usize,
    group: Option<usize>,
) {
    let is_overdue = |connection: &TunnelConnection| {
        connection.overdue
            && !connection.established
            && !connection.retired
            && connection.flows == 0
    };
    let mut attempts: Vec<_> = state
        .connections
        .active_of_mut(server, group)
        .filter(|(_, connection)| is_overdue(connection))
        .collect();
    let most = if group.is_some() { MAX_OVERDUE_ATTEMPTS } else { MAX_CONNECTING };
    if attempts.len() >= most {
        attempts.sort_unstable_by_key(|(_, connection)| connection.started);
        let (id, connection) = &mut attempts[0];
        connection.retired = true;
        core.close(*id, H3_NO_ERROR, b"connecting took too long");
    }
}

/// Retires the other attempts for a connection group: the connection to a server is established.
pub(crate) fn retire_others(
    state: &mut PoolState,
    core: &mut Core,
    server: usize,
    group: Option<usize>,
) {
    if group.is_none() {
        return;
    }
    for (other, connection) in state.connections.active_of_mut(server, group) {
        if !connection.established {
            connection.retired = true;
            core.close(other, H3_NO_ERROR, b"another attempt succeeded");
        }
    }
}

/// Closes the attempts that have exceeded the connect timeout.
pub(crate) fn give_up_late(state: &PoolState, core: &mut Core) {
    let now = core.now();
    for (id, connection) in state.connections.active() {
        if !connection.established && now - connection.started > state.config.connect_timeout {
            core.close(id, H3_NO_ERROR, b"connecting took too long");
        }
    }
}

/// Marks the attempts to a server that have had no answer in time. The server has failed unless it may still be
/// reached.
pub(crate) fn mark_overdue(state: &mut PoolState, server: usize, now: Instant) {
    let round_trips = MIN_ATTEMPT_ROUND_TRIPS * state.servers[server].rtt().unwrap_or_default();
    let timeout = ATTEMPT_TIMEOUT.max(round_trips).min(state.config.connect_timeout);
    let mut overdue = Vec::new();
    for (_, connection) in
        state.connections.active_mut().filter(|(_, connection)| connection.server == server)
    {
        let waited = now.saturating_duration_since(connection.started);
        if connection.is_fresh_attempt() && waited >= timeout {
            connection.overdue = true;
            overdue.push((connection.group, connection.address, connection.started));
        }
    }
    for (group, address, started) in overdue {
        if !state.is_alive(server, now) && !has_alternative(state, server, group, address) {
            state.servers[server].failed(started);
        }
    }
}

/// Whether a failed attempt to `address` does not mean that the server is down: connections to
/// another address work, the group has another attempt, or it has untried addresses.
pub(crate) fn has_alternative(
    state: &PoolState,
    server: usize,
    group: Option<usize>,
    address: SocketAddr,
) -> bool {
    let addresses = &state.servers[server].addresses;
    addresses.works_elsewhere(address)
        || addresses.has_untried(group)
        || state.connections.active_of(server, group).any(TunnelConnection::is_fresh_attempt)
}

/// Whether a connection is established, or an attempt that does not call for one to the next address.
pub(crate) fn is_pending_or_established(
    state: &PoolState,
    connection: &TunnelConnection,
    now: Instant,
) -> bool {
    let slow = now.saturating_duration_since(connection.started) >= ADDRESS_DELAY;
    let has_untried = || {
        let addresses = &state.servers[connection.server].addresses;
        addresses.has_untried(connection.group)
    };
    connection.established || !(connection.overdue || slow && has_untried())
}

/// When to attempt a server's next address beside an unanswered attempt.
pub(crate) fn next_address_due(state: &PoolState, now: Instant) -> Option<Instant> {
    let waits = |connection: &&TunnelConnection| {
        let server = &state.servers[connection.server];
        connection.is_fresh_attempt()
            && server.addresses.has_untried(connection.group)
            && server.may_be_tried(now)
    };
    let mut newest: HashMap<(usize, Option<usize>), Instant> = HashMap::new();
    for connection in state.connections.active().map(|(_, connection)| connection).filter(waits) {
        let started =
            newest.entry((connection.server, connection.group)).or_insert(connection.started);
        *started = connection.started.max(*started);
    }
    let due = newest.into_values().map(|started| started + ADDRESS_DELAY);
    // An attempt that has been due for longer waits for another event.
    due.filter(|at| *at + ADDRESS_DELAY / 5 > now).min()
}
