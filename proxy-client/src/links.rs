//! The connections of a worker's pool.

use std::collections::HashMap;

use millrace_tunnel::conn::ConnId;

use crate::link::Link;

/// Connections that something is to be done with, and those that only carry a flow. With one connection for each
/// flow there can be ten thousand of those, and none of them may cost time when another one comes or goes.
#[derive(Debug, Default)]
pub struct Links {
    active: HashMap<ConnId, Link>,
    settled: HashMap<ConnId, Link>,
}

impl Links {
    /// A new connection.
    pub fn insert(&mut self, id: ConnId, link: Link) {
        self.active.insert(id, link);
    }

    /// Any connection.
    pub fn get(&self, id: ConnId) -> Option<&Link> {
        self.active.get(&id).or_else(|| self.settled.get(&id))
    }

    /// Any connection.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Link> {
        self.active.get_mut(&id).or_else(|| self.settled.get_mut(&id))
    }

    /// A connection that is gone.
    pub fn remove(&mut self, id: ConnId) -> Option<Link> {
        self.active.remove(&id).or_else(|| self.settled.remove(&id))
    }

    /// Those that something is to be done with.
    pub fn active(&self) -> impl Iterator<Item = (ConnId, &Link)> {
        self.active.iter().map(|(id, link)| (*id, link))
    }

    /// Those that something is to be done with.
    pub fn active_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Link)> {
        self.active.iter_mut().map(|(id, link)| (*id, link))
    }

    /// Those that only carry a flow.
    pub fn settled(&self) -> impl Iterator<Item = &Link> {
        self.settled.values()
    }

    /// Those that only carry a flow.
    pub fn settled_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Link)> {
        self.settled.iter_mut().map(|(id, link)| (*id, link))
    }

    /// Sets aside those that only carry a flow from now on.
    pub fn settle(&mut self, is_settled: impl Fn(ConnId, &Link) -> bool) {
        self.settled.extend(self.active.extract_if(|id, link| is_settled(*id, link)));
    }

    /// Something is to be done with it from now on.
    pub fn activate(&mut self, id: ConnId) -> Option<&mut Link> {
        if let Some(mut link) = self.settled.remove(&id) {
            link.activate();
            self.active.insert(id, link);
        }
        self.active.get_mut(&id)
    }
}
