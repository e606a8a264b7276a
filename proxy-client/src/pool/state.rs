//! The servers of a worker, and the connections to them.

use std::time::Instant;

use millrace_config::{ClientTunnel, Connections};
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;

use super::server::Server;
use super::tunnel_connection::TunnelConnection;
use super::tunnel_connections::TunnelConnections;
use crate::server_set::ServerSet;

/// The servers of a worker, the connections to them, and the settings of both.
pub(crate) struct PoolState {
    pub(crate) config: ClientTunnel,
    /// By their number.
    pub(crate) servers: Vec<Server>,
    pub(crate) connections: TunnelConnections,
}

impl PoolState {
    /// Servers without connections.
    pub(crate) fn new(config: ClientTunnel, servers: Vec<Server>) -> Self {
        Self { config, servers, connections: TunnelConnections::default() }
    }

    /// Whether each flow has a connection of its own.
    pub(crate) fn has_connection_per_flow(&self) -> bool {
        matches!(self.config.connections, Connections::PerFlow { .. })
    }

    /// Whether a packet came from a server within its health timeout.
    pub(crate) fn is_alive(&self, server: usize, now: Instant) -> bool {
        let server = &self.servers[server];
        server.has_received(now, server.answer_timeout(self.config.health_timeout))
    }

    /// The lowest priority of the usable servers that are not in `refused_by`.
    pub(crate) fn active_priority(&self, now: Instant, refused_by: ServerSet) -> Option<u32> {
        let usable = self
            .servers
            .iter()
            .enumerate()
            .filter(|(index, server)| server.is_usable(now) && !refused_by.contains(*index));
        usable.map(|(_, server)| server.config.priority).min()
    }

    /// Updates the health of the servers from the state of the connections. None is healthy while the worker drains.
    pub(crate) fn update_health(&mut self, now: Instant, is_draining: bool) {
        for index in 0..self.servers.len() {
            let is_healthy = !is_draining && self.has_healthy_connection(index, now);
            self.servers[index].set_healthy(is_healthy);
        }
    }

    fn has_healthy_connection(&self, server: usize, now: Instant) -> bool {
        let here =
            |connection: &TunnelConnection| connection.server == server && connection.is_healthy();
        // Settled connections are not watched, so they prove health only of a server that sends.
        self.connections.active().any(|(_, connection)| here(connection))
            || self.is_alive(server, now) && self.connections.settled().any(here)
    }

    /// Stores the newest token that the server of a connection has issued for the next one.
    pub(crate) fn keep_token(&mut self, id: ConnId, token: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(id) {
            self.servers[connection.server].resumption.token = Some(token);
        }
    }

    /// Stores each connection's first session ticket for the next connection.
    pub(crate) fn keep_sessions(&mut self, core: &Core) {
        for (id, connection) in
            self.connections.active_mut().filter(|(_, connection)| !connection.has_session)
        {
            if let Some(session) = core.conn(id).and_then(|conn| conn.session()) {
                self.servers[connection.server].resumption.session = Some(session.to_vec());
                connection.has_session = true;
            }
        }
    }
}
