//! Whether the servers can take a new flow, and what the workers know of each other for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::server::Server;

/// Whether the servers can take a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// At least one server can take it.
    Up,
    /// No server can take it yet, but one may soon.
    Pending,
    /// No server is available, or all are full.
    Down,
}

/// Connection state of all workers.
#[derive(Debug, Default)]
pub struct WorkerHealthCounts {
    /// Workers with a healthy server.
    pub healthy: AtomicUsize,
    /// Workers with a server that answers PINGs, but no health probes.
    pub stuck: AtomicUsize,
}

/// The health of the servers as one worker knows it, beside that of the other workers.
pub(crate) struct ServerHealth {
    workers: Arc<WorkerHealthCounts>,
    /// Whether this worker counts among those with a healthy server.
    is_counted_healthy: bool,
    /// Whether this worker counts among those with a stuck server.
    is_counted_stuck: bool,
    /// When a server was usable last.
    last_up: Instant,
    /// Since when other workers have a healthy server and this one does not.
    healthy_elsewhere_since: Option<Instant>,
}

impl ServerHealth {
    /// No server is known to be healthy.
    pub(crate) fn new(workers: Arc<WorkerHealthCounts>) -> Self {
        Self {
            workers,
            is_counted_healthy: false,
            is_counted_stuck: false,
            last_up: Instant::now(),
            healthy_elsewhere_since: None,
        }
    }

    /// Whether a new flow can be taken. A server that is not reached within `timeout` is not expected any more.
    pub(crate) fn availability(
        &self,
        servers: &[Server],
        now: Instant,
        timeout: Duration,
    ) -> Availability {
        let hopeless = |server: &Server| !server.is_healthy() && server.is_down();
        if servers.iter().any(|server| server.is_usable(now)) {
            Availability::Up
        } else if self
            .healthy_elsewhere_since(servers)
            .is_some_and(|since| now.duration_since(since) < timeout)
        {
            // This worker will soon reach a server that other workers have reached.
            Availability::Pending
        } else if servers.iter().all(|server| server.is_full(now) || hopeless(server))
            || now.saturating_duration_since(self.last_up) >= timeout
        {
            Availability::Down
        } else {
            Availability::Pending
        }
    }

    /// The health of the servers may have changed. They are tried at once when another worker has reached one.
    pub(crate) fn update(&mut self, servers: &mut [Server], now: Instant) {
        if servers.iter().any(|server| server.is_usable(now)) {
            self.last_up = now;
        }
        let healthy_elsewhere_since = self.healthy_elsewhere_since(servers);
        if healthy_elsewhere_since.is_some() && self.healthy_elsewhere_since.is_none() {
            servers.iter_mut().for_each(Server::try_now);
        }
        self.healthy_elsewhere_since = healthy_elsewhere_since;
        let is_stuck = servers.iter().any(|server| server.is_stuck);
        count(&self.workers.stuck, &mut self.is_counted_stuck, is_stuck);
        let is_healthy = servers.iter().any(Server::is_healthy);
        count(&self.workers.healthy, &mut self.is_counted_healthy, is_healthy);
    }

    /// Since when other workers have a healthy server while this one does not.
    fn healthy_elsewhere_since(&self, servers: &[Server]) -> Option<Instant> {
        let own = usize::from(self.is_counted_healthy);
        let others = self.workers.healthy.load(Ordering::Relaxed) > own;
        let none_here = !servers.iter().any(Server::is_healthy);
        (others && none_here).then(|| self.healthy_elsewhere_since.unwrap_or_else(Instant::now))
    }
}

/// Adds this worker to a count, or takes it out.
fn count(workers: &AtomicUsize, is_counted: &mut bool, counts: bool) {
    if counts == std::mem::replace(is_counted, counts) {
        return;
    }
    match counts {
        true => workers.fetch_add(1, Ordering::Relaxed),
        false => workers.fetch_sub(1, Ordering::Relaxed),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);

    #[test]
    fn a_worker_counts_once_while_the_state_lasts() {
        let (workers, mut is_counted) = (AtomicUsize::new(3), false);
        for (counts, expected) in [(true, 4), (true, 4), (false, 3), (false, 3)] {
            count(&workers, &mut is_counted, counts);
            assert_eq!(workers.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn flows_wait_for_a_server_that_another_worker_has_reached() {
        let workers = Arc::new(WorkerHealthCounts::default());
        let mut health = ServerHealth::new(workers.clone());
        let now = Instant::now() + TIMEOUT;
        assert_eq!(health.availability(&[], now, TIMEOUT), Availability::Down);
        workers.healthy.store(1, Ordering::Relaxed);
        health.update(&mut [], now);
        assert_eq!(health.availability(&[], now, 2 * TIMEOUT), Availability::Pending);
        assert_eq!(health.availability(&[], now + 3 * TIMEOUT, TIMEOUT), Availability::Down);
    }
}
