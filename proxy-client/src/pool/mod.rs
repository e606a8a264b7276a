//! The tunnel connections of one worker: opened in advance, watched, and replaced when they fail.

mod attempts;
mod availability;
mod backoff;
mod choice;
mod connection_count;
mod connection_liveness;
mod group_demand;
mod health_checks;
mod probing;
mod server;
mod server_addresses;
mod server_names;
mod sockets;
mod state;
mod tunnel_connection;
mod tunnel_connections;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use millrace_config::ClientTunnel;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::event_loop::WorkerHandle;
use millrace_tunnel::resolve::Resolver;
use millrace_wire::ConnectFailure;

use crate::connection_group::ConnectionGroup;
use crate::server_set::ServerSet;
use availability::ServerHealth;
use group_demand::GroupDemand;
use health_checks::{HealthCheck, HealthChecks};
use server_names::ServerNames;
use sockets::TunnelSockets;
use state::PoolState;

pub use availability::{Availability, WorkerHealthCounts};
pub use server::Server;

/// The tunnel connections of one worker and the servers that they lead to.
pub struct Pool {
    pub(crate) state: PoolState,
    /// Which connection groups need connections.
    groups: GroupDemand,
    names: ServerNames,
    sockets: TunnelSockets,
    health: ServerHealth,
    checks: HealthChecks,
    draining: bool,
}

impl Pool {
    /// A pool without connections, for the flows of `groups`.
    pub fn new(
        config: ClientTunnel,
        servers: Vec<Server>,
        groups: &[ConnectionGroup],
        (handle, resolver): (WorkerHandle, Resolver),
        workers: Arc<WorkerHealthCounts>,
    ) -> Self {
        Self {
            state: PoolState::new(config, servers),
            groups: GroupDemand::new(groups),
            names: ServerNames::new(resolver, handle),
            sockets: TunnelSockets::default(),
            health: ServerHealth::new(workers),
            checks: HealthChecks::new(),
            draining: false,
        }
    }

    /// Binds the worker's sockets and opens the first connections.
    ///
    /// # Errors
    /// No socket can be bound, or the mark can't be set.
    pub fn start(&mut self, core: &mut Core) -> io::Result<()> {
        self.sockets.bind(core, self.state.config.mark)?;
        self.maintain(core, 0);
        Ok(())
    }

    /// Whether a new flow can be taken.
    pub fn availability(&self, now: Instant) -> Availability {
        self.health.availability(&self.state.servers, now, self.state.config.health_timeout)
    }

    /// Whether flows on a connection that has failed find another one at once that is known to work.
    pub fn has_working_alternative(&self, lost: ConnId, now: Instant) -> bool {
        self.availability(now) == Availability::Up && self.state.connections.works_beside(lost)
    }

    /// Whether a server would take flows if it had room.
    fn is_full(&self, now: Instant) -> bool {
        self.state.servers.iter().any(|server| server.is_healthy() && server.is_full(now))
    }

    /// Why no server can take a flow while the servers are [`Availability::Down`].
    pub fn unavailable(&self, now: Instant) -> ConnectFailure {
        match self.is_full(now) {
            true => ConnectFailure::ServerFull,
            false => ConnectFailure::TunnelUnavailable,
        }
    }

    /// Keeps other connection groups ready from now on.
    pub fn set_kept_ready(&mut self, groups: &[ConnectionGroup]) {
        self.groups.set_kept_ready(groups);
    }

    /// A flow of `group` needs a connection.
    pub fn use_group(&mut self, group: usize, now: Instant) {
        self.groups.use_group(group, now);
    }

    /// A connection that a new flow of `group` can use now: the one with the fewest flows among
    /// those to the preferred servers, except the servers in `refused_by`.
    pub fn choose(&self, core: &Core, group: usize, refused_by: ServerSet) -> Option<ConnId> {
        choice::choose(&self.state, core, group, refused_by)
    }

    /// The server at the other end of a connection, as a set.
    pub fn server_of(&self, id: ConnId) -> ServerSet {
        let connection = self.state.connections.get(id);
        connection.map_or_else(ServerSet::default, |connection| ServerSet::of(connection.server))
    }

    /// The authority of a connection's server: its name and port.
    pub fn authority(&self, id: ConnId) -> String {
        let connection = self.state.connections.get(id);
        let server = connection.map(|connection| &self.state.servers[connection.server]);
        server.map(Server::authority).unwrap_or_default()
    }

    /// A flow begins on a connection.
    pub fn flow_begins(&mut self, id: ConnId) {
        if let Some(connection) = self.state.connections.activate(id) {
            connection.flows += 1;
            self.state.servers[connection.server].metrics.flows.inc();
        }
    }

    /// A flow on a connection has ended, or its request has failed.
    pub fn flow_ends(&mut self, core: &mut Core, id: ConnId) {
        if let Some(connection) = self.state.connections.activate(id) {
            connection.flows = connection.flows.saturating_sub(1);
            if let Some(group) = connection.group {
                self.groups.use_group(group, core.now());
            }
        }
        self.close_surplus(core);
    }

    /// The server at the other end has no room for a flow.
    pub fn on_full(&mut self, core: &Core, id: ConnId) {
        // A server that drains refuses flows although it is not full.
        let connection = self.state.connections.get(id).filter(|connection| !connection.retired);
        if let Some(connection) = connection {
            self.state.servers[connection.server].on_full(core.now());
        }
    }

    /// A connection's handshake is complete.
    pub fn on_established(&mut self, core: &mut Core, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.established = true;
        let (server, group, address) = (connection.server, connection.group, connection.address);
        self.state.servers[server].connected(core.now(), address, core.rtt(id));
        attempts::retire_others(&mut self.state, core, server, group);
        self.update(core);
        self.maintain(core, 0);
    }

    /// The server of a connection has issued a token for the next one.
    pub fn on_token(&mut self, id: ConnId, token: Vec<u8>) {
        self.state.keep_token(id, token);
    }

    /// A connection has been closed.
    pub fn on_disconnected(&mut self, core: &mut Core, id: ConnId, reason: &str) {
        let Some(connection) = self.state.connections.remove(id) else { return };
        let (server, group) = (connection.server, connection.group);
        let has_alternative =
            attempts::has_alternative(&self.state, server, group, connection.address);
        let server = &mut self.state.servers[server];
        // The end of a retired connection without flows is expected.
        let wanted = !connection.retired || connection.flows > 0;
        if wanted && !self.draining {
            tracing::warn!(server = %server.config, reason, "tunnel connection lost");
            match connection.established {
                true => server.lost(core.now()),
                false if connection.overdue || has_alternative => {}
                false => server.failed(connection.started),
            }
        }
        self.update(core);
        self.maintain(core, 0);
    }

    /// The server takes no more flows on a connection.
    pub fn on_going_away(&mut self, core: &mut Core, id: ConnId) {
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.retired = true;
        }
        self.update(core);
        self.close_surplus(core);
        self.maintain(core, 0);
    }

    /// Sends PINGs to silent servers, and health probes. Returns the connections that have exceeded the health timeout
    /// since the last call: established ones, which get no new flows until the server answers, and attempts with early
    /// data that had no answer. On the connections in `awaited` flows wait for the server's response.
    pub fn watch(&mut self, core: &mut Core, awaited: &HashSet<ConnId>) -> Vec<ConnId> {
        let HealthCheck { lost, has_retired } = self.checks.run(&mut self.state, core, awaited);
        if has_retired {
            self.close_surplus(core);
        }
        self.update(core);
        lost
    }

    /// Opens missing connections; `waiting` flows wait for a connection of their own.
    pub fn maintain(&mut self, core: &mut Core, waiting: usize) {
        if self.draining {
            return;
        }
        for (server, result) in self.names.answers() {
            self.state.servers[server].on_resolved(core.now(), result);
        }
        attempts::give_up_late(&self.state, core);
        self.state.keep_sessions(core);
        if self.groups.expire(core.now()) {
            self.close_surplus(core);
        }
        for server in 0..self.state.servers.len() {
            self.open_missing(core, server, waiting);
        }
    }

    fn open_missing(&mut self, core: &mut Core, number: usize, waiting: usize) {
        let Self { state, groups, names, sockets, .. } = self;
        attempts::mark_overdue(state, number, core.now());
        let missing = connection_count::missing(state, groups, core.now(), number, waiting);
        let server = &mut state.servers[number];
        if missing.is_empty()
            || !server.may_be_tried(core.now())
            || !server.resolve(number, names, core.now())
        {
            return;
        }
        for group in missing {
            if !attempts::begin(state, sockets, core, number, group) {
                state.servers[number].failed(core.now());
                return;
            }
        }
    }

    /// When [`Pool::maintain`] or [`Pool::watch`] has something to do before the next tick.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.draining {
            return None;
        }
        let PoolState { servers, connections, .. } = &self.state;
        let servers = servers.iter().flat_map(|it| [it.next_attempt(), it.full_until()]);
        let checks =
            connections.active().filter_map(|(_, connection)| connection.liveness.next_check());
        let now = Instant::now();
        let coming = servers.flatten().filter(|at| *at > now);
        coming.chain(checks).chain(attempts::next_address_due(&self.state, now)).min()
    }

    /// Opens no new connections from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    fn close_surplus(&mut self, core: &mut Core) {
        connection_count::close_surplus(&mut self.state, &self.groups, core);
        self.update(core);
    }

    /// The state of the connections may have changed.
    fn update(&mut self, core: &Core) {
        self.state.update_health(core.now(), self.draining);
        self.health.update(&mut self.state.servers, core.now());
    }
}
