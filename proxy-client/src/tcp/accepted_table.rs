//! The accepted connections of a worker, by their keys.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

use millrace_tunnel::conn_id::ConnId;

use crate::accepted::{Accepted, AcceptedState};
use crate::recognition::{FIRST_BYTES_TIMEOUT, FirstBytesQueue};

/// How long a refused client has to read the reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The accepted connections that are not flows yet.
#[derive(Debug, Default)]
pub(crate) struct AcceptedTable {
    connections: HashMap<u64, Accepted>,
    /// Those that are held for their first bytes.
    held: FirstBytesQueue,
}

impl AcceptedTable {
    pub(crate) fn insert(&mut self, key: u64, accepted: Accepted) {
        self.connections.insert(key, accepted);
    }

    pub(crate) fn get(&self, key: u64) -> Option<&Accepted> {
        self.connections.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut Accepted> {
        self.connections.get_mut(&key)
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<Accepted> {
        self.connections.remove(&key)
    }

    /// Number of connections whose flow is not over, or has not been refused.
    pub(crate) fn pending_count(&self) -> usize {
        self.connections.values().filter(|it| !matches!(it.state, AcceptedState::Closing)).count()
    }

    /// Number of connections that wait for a tunnel connection.
    pub(crate) fn waiting_count(&self) -> usize {
        self.connections.values().filter(|it| it.is_waiting()).count()
    }

    /// The connections that wait for a tunnel connection, the oldest first.
    pub(crate) fn waiting(&self) -> Vec<u64> {
        let waiting = self.connections.iter().filter(|(_, it)| it.is_waiting());
        let mut keys: Vec<_> = waiting.map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// The tunnel connections on which requests wait for a response.
    pub(crate) fn requested(&self) -> impl Iterator<Item = ConnId> {
        self.connections.values().filter_map(Accepted::requested_on)
    }

    /// The connections whose request is on one of these tunnel connections.
    pub(crate) fn requested_on(&self, conns: &[ConnId]) -> Vec<u64> {
        let on_them = |it: &Accepted| it.requested_on().is_some_and(|conn| conns.contains(&conn));
        let requested = self.connections.iter().filter(|(_, it)| on_them(it));
        requested.map(|(key, _)| *key).collect()
    }

    /// The connections whose state has timed out.
    pub(crate) fn late(&self, now: Instant) -> Vec<u64> {
        let late = self.connections.iter().filter(|(_, it)| it.deadline <= now);
        late.map(|(key, _)| *key).collect()
    }

    /// Holds a connection for its first bytes, if it waits for them.
    pub(crate) fn hold(&mut self, key: u64, now: Instant) {
        let deadline = now + FIRST_BYTES_TIMEOUT;
        let accepted = self.connections.get_mut(&key);
        if let Some(accepted) = accepted.filter(|it| it.is_recognising()) {
            accepted.deadline = deadline;
            self.held.add(deadline, key);
        }
    }

    /// Removes the deadlines of connections that are not held any more.
    pub(crate) fn forget_classified(&mut self) {
        let connections = &self.connections;
        self.held.remove_decided(|key| connections.get(&key).is_some_and(Accepted::is_recognising));
    }

    /// When the time of the first connection that is held is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.held.next_deadline()
    }

    /// Sends `reply` and closes; without a reply resets.
    pub(crate) fn reply_and_close(&mut self, key: u64, reply: Option<Vec<u8>>, now: Instant) {
        let Some(mut accepted) = self.remove(key) else { return };
        let Some(reply) = reply else {
            accepted.socket.reset();
            return;
        };
        // A close with unread bytes resets the connection, and the client may lose the reply.
        let said = accepted.socket.write(&reply).is_ok_and(|sent| sent == reply.len());
        if said && accepted.socket.shutdown_write().is_ok() && !accepted.discard() {
            accepted.state = AcceptedState::Closing;
            accepted.deadline = now + CLOSE_TIMEOUT;
            self.insert(key, accepted);
        }
    }
}
