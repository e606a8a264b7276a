//! The tunnel connections of a worker's pool.

use std::collections::HashMap;

use millrace_tunnel::conn_id::ConnId;

use super::tunnel_connection::TunnelConnection;

/// The tunnel connections of a worker: active ones need maintenance, settled ones only carry a flow. With one
/// connection per flow there can be ten thousand settled ones, which cost no time when another one opens or closes.
#[derive(Debug, Default)]
pub(crate) struct TunnelConnections {
    active: HashMap<ConnId, TunnelConnection>,
    settled: HashMap<ConnId, TunnelConnection>,
}

impl TunnelConnections {
    /// Adds a new connection.
    pub(crate) fn insert(&mut self, id: ConnId, connection: TunnelConnection) {
        self.active.insert(id, connection);
    }

    /// An active or settled connection.
    pub(crate) fn get(&self, id: ConnId) -> Option<&TunnelConnection> {
        self.active.get(&id).or_else(|| self.settled.get(&id))
    }

    /// An active or settled connection.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut TunnelConnection> {
        self.active.get_mut(&id).or_else(|| self.settled.get_mut(&id))
    }

    /// Removes a closed connection.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<TunnelConnection> {
        self.active.remove(&id).or_else(|| self.settled.remove(&id))
    }

    /// Connections that need maintenance.
    pub(crate) fn active(&self) -> impl Iterator<Item = (ConnId, &TunnelConnection)> {
        self.active.iter().map(|(id, connection)| (*id, connection))
    }

    /// Connections that need maintenance.
    pub(crate) fn active_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut TunnelConnection)> {
        self.active.iter_mut().map(|(id, connection)| (*id, connection))
    }

    /// Connections that need maintenance, to a server for a connection group.
    pub(crate) fn active_of(
        &self,
        server: usize,
        group: Option<usize>,
    ) -> impl Iterator<Item = &TunnelConnection> {
        self.active.values().filter(move |connection| connection.serves(server, group))
    }

    /// Connections that need maintenance, to a server for a connection group.
    pub(crate) fn active_of_mut(
        &mut self,
        server: usize,
        group: Option<usize>,
    ) -> impl Iterator<Item = (ConnId, &mut TunnelConnection)> {
        self.active_mut().filter(move |(_, connection)| connection.serves(server, group))
    }

    /// Connections that only carry a flow.
    pub(crate) fn settled(&self) -> impl Iterator<Item = &TunnelConnection> {
        self.settled.values()
    }

    /// Connections that only carry a flow.
    pub(crate) fn settled_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut TunnelConnection)> {
        self.settled.iter_mut().map(|(id, connection)| (*id, connection))
    }

    /// Whether another connection is known to work while `lost` does not.
    pub(crate) fn works_beside(&self, lost: ConnId) -> bool {
        let lost = self.get(lost);
        let works = |other: &TunnelConnection| lost.is_none_or(|lost| other.works_beside(lost));
        let mut all = self.active.values().chain(self.settled.values());
        all.any(|other| other.is_healthy() && works(other))
    }

    /// Moves active connections that only carry a flow to the settled ones.
    pub(crate) fn settle(&mut self, is_settled: impl Fn(ConnId, &TunnelConnection) -> bool) {
        self.settled.extend(self.active.extract_if(|id, connection| is_settled(*id, connection)));
    }

    /// Moves a settled connection back to the active ones, and returns it.
    pub(crate) fn activate(&mut self, id: ConnId) -> Option<&mut TunnelConnection> {
        if let Some(mut connection) = self.settled.remove(&id) {
            connection.liveness.forget_asked();
            self.active.insert(id, connection);
        }
        self.active.get_mut(&id)
    }
}
