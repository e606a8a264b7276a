//! The connections of the admin listener, bounded so that a health check always has its turn.
//!
//! Until a connection has sent its request's head it is silent, and of silent ones the oldest makes room for a new one.
//! Requests beyond a number that are answered at a time are refused. Health checks are exempt: their answers are a few
//! bytes.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Connections that have not sent their request's head yet.
const MAX_SILENT_CONNECTIONS: usize = 16;
/// Of them, those of one address.
const MAX_SILENT_PER_ADDRESS: usize = 8;
/// Requests that are answered at a time, health checks aside.
const MAX_SERVED_REQUESTS: usize = 16;

/// A connection's part in the bounds.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPermit {
    has_head: Arc<AtomicBool>,
    served: Arc<Semaphore>,
}

impl ConnectionPermit {
    /// Its request's head is there.
    pub(super) fn on_head(&self) {
        self.has_head.store(true, Ordering::Relaxed);
    }

    /// A place among the requests that are answered; `None` when all are taken.
    pub(super) fn serve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.served).try_acquire_owned().ok()
    }
}

#[derive(Debug)]
struct SilentConnection {
    from: IpAddr,
    has_head: Arc<AtomicBool>,
    task: AbortHandle,
}

/// The open connections of the admin listener.
#[derive(Debug)]
pub(super) struct AdminConnections {
    silent: VecDeque<SilentConnection>,
    served: Arc<Semaphore>,
}

impl AdminConnections {
    pub(super) fn new() -> Self {
        Self { silent: VecDeque::new(), served: Arc::new(Semaphore::new(MAX_SERVED_REQUESTS)) }
    }

    /// The place of a new connection.
    pub(super) fn place(&self) -> ConnectionPermit {
        ConnectionPermit { has_head: Arc::default(), served: self.served.clone() }
    }

    /// A connection with `place` is served by `task`; makes room for it.
    pub(super) fn add(&mut self, from: IpAddr, place: &ConnectionPermit, task: AbortHandle) {
        self.silent.retain(|it| !it.task.is_finished() && !it.has_head.load(Ordering::Relaxed));
        let of_address = self.silent.iter().filter(|it| it.from == from).count();
        let oldest = if of_address >= MAX_SILENT_PER_ADDRESS {
            self.silent.iter().position(|it| it.from == from)
        } else {
            (self.silent.len() >= MAX_SILENT_CONNECTIONS).then_some(0)
        };
        if let Some(silent) = oldest.and_then(|index| self.silent.remove(index)) {
            silent.task.abort();
        }
        self.silent.push_back(SilentConnection { from, has_head: place.has_head.clone(), task });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(198, 18, 0, last).into()
    }

    #[tokio::test]
    async fn the_oldest_silent_connection_makes_room() {
        let mut connections = AdminConnections::new();
        let tasks: Vec<_> = (0..20).map(|_| tokio::spawn(std::future::pending::<()>())).collect();
        for (number, task) in tasks.iter().enumerate() {
            let place = connections.place();
            connections.add(address(number as u8), &place, task.abort_handle());
        }
        tokio::task::yield_now().await;
        let ended: Vec<_> = tasks.iter().map(|task| task.is_finished()).collect();
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 4);
        assert!(ended[..4].iter().all(|ended| *ended), "{ended:?}");
    }

    #[tokio::test]
    async fn an_address_takes_its_own_places_first_and_heads_are_not_silent() {
        let mut connections = AdminConnections::new();
        let spawn = || tokio::spawn(std::future::pending::<()>());
        let (other, asking) = (spawn(), spawn());
        connections.add(address(1), &connections.place(), other.abort_handle());
        let place = connections.place();
        connections.add(address(2), &place, asking.abort_handle());
        place.on_head();
        let many: Vec<_> = (0..30).map(|_| spawn()).collect();
        for task in &many {
            connections.add(address(2), &connections.place(), task.abort_handle());
        }
        tokio::task::yield_now().await;
        assert!(!other.is_finished() && !asking.is_finished());
        let alive = many.iter().filter(|task| !task.is_finished()).count();
        assert_eq!(alive, MAX_SILENT_PER_ADDRESS);
    }

    #[test]
    fn requests_that_are_answered_are_bounded() {
        let place = AdminConnections::new().place();
        let served: Vec<_> = (0..MAX_SERVED_REQUESTS).map(|_| place.serve()).collect();
        assert!(served.iter().all(Option::is_some) && place.serve().is_none());
        drop(served);
        assert!(place.serve().is_some());
    }
}
