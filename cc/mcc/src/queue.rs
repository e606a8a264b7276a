//! The two queues between a worker and its Selector: pre-allocated SPSC rings without locks (MCC, Section 3.2.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::{PathUpdate, SwitchRequest};

/// The worker's ends of the queues.
#[derive(Debug)]
pub struct AgentEnd {
    updates: Producer<PathUpdate>,
    requests: Consumer<SwitchRequest>,
    dropped: Arc<AtomicU64>,
}

/// The Selector's ends of the queues.
#[derive(Debug)]
pub struct SelectorEnd {
    updates: Consumer<PathUpdate>,
    requests: Producer<SwitchRequest>,
    dropped: Arc<AtomicU64>,
}

/// Allocates both queues, with room for this many `updates` and `requests`.
#[must_use]
pub fn pair(updates: usize, requests: usize) -> (AgentEnd, SelectorEnd) {
    let (updates_in, updates_out) = RingBuffer::new(updates);
    let (requests_in, requests_out) = RingBuffer::new(requests);
    let dropped = Arc::new(AtomicU64::new(0));
    let agent =
        AgentEnd { updates: updates_in, requests: requests_out, dropped: Arc::clone(&dropped) };
    (agent, SelectorEnd { updates: updates_out, requests: requests_in, dropped })
}

impl AgentEnd {
    /// Sends an update and returns whether there was room. Otherwise the update is dropped and counted.
    pub fn try_send(&mut self, update: PathUpdate) -> bool {
        let fits = self.updates.push(update).is_ok();
        if !fits {
            // This end is the only writer.
            self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        fits
    }

    /// Receives the next request, if there is any.
    pub fn next_request(&mut self) -> Option<SwitchRequest> {
        self.requests.pop().ok()
    }

    /// Number of updates dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl SelectorEnd {
    /// Receives the next update, if there is any.
    pub fn next_update(&mut self) -> Option<PathUpdate> {
        self.updates.pop().ok()
    }

    /// Sends a request and returns whether there was room.
    pub fn try_send(&mut self, request: SwitchRequest) -> bool {
        self.requests.push(request).is_ok()
    }

    /// Counter of dropped updates, for metrics. It also counts while the Selector does not run.
    #[must_use]
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Whether the worker has dropped its end.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.updates.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_drops_counts_and_recovers() {
        let (mut agent, mut selector) = pair(2, 1);
        let closed = |connection| PathUpdate::Closed { connection };
        assert_eq!([1, 2, 3, 4].map(|id| agent.try_send(closed(id))), [true, true, false, false]);
        assert_eq!((agent.dropped(), selector.dropped().load(Ordering::Relaxed)), (2, 2));
        assert_eq!(selector.next_update(), Some(closed(1)));
        assert!(agent.try_send(closed(5)));
        assert_eq!(
            [selector.next_update(), selector.next_update(), selector.next_update()],
            [Some(closed(2)), Some(closed(5)), None]
        );

        let request = SwitchRequest { connection: 1, algorithm: 3, is_new_path: false };
        assert!(selector.try_send(request) && !selector.try_send(request));
        assert_eq!((agent.next_request(), agent.next_request()), (Some(request), None));
        assert!(!selector.is_abandoned());
        drop(agent);
        assert!(selector.is_abandoned());
    }
}
