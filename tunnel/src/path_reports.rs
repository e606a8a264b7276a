//! Reports of routers, for the worker that has the connection: the kernel hands them to the socket of
//! any worker, as the packets that they quote name none of our connection IDs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mio::Waker;

use crate::error_queue::TooBig;

/// Reports that wait for other workers; the oldest go when there are more.
const MAX_WAITING_REPORTS: usize = 64;

/// What workers tell each other of packets that were too large.
#[derive(Debug, Default)]
pub(crate) struct PathReports {
    /// How many there have been.
    count: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    wakers: Vec<Arc<Waker>>,
    /// Each with its number.
    waiting: VecDeque<(u64, TooBig)>,
}

impl PathReports {
    /// Wakes this worker for reports to come.
    pub(crate) fn add_worker(&self, waker: Arc<Waker>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).wakers.push(waker);
    }

    /// Tells all workers of reports on connections that this one does not have.
    pub(crate) fn share(&self, reports: &[TooBig]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.wakers.len() < 2 {
            return;
        }
        for report in reports {
            if inner.waiting.len() == MAX_WAITING_REPORTS {
                inner.waiting.pop_front();
            }
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            inner.waiting.push_back((number, *report));
        }
        for waker in &inner.wakers {
            // A failure means that the worker has ended.
            let _ = waker.wake();
        }
    }

    /// Those since `seen`, which is counted on.
    pub(crate) fn take_since(&self, seen: &mut u64) -> Vec<TooBig> {
        if self.count.load(Ordering::Relaxed) == *seen {
            return Vec::new();
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let from = *seen;
        let new = inner.waiting.iter().filter(|(number, _)| *number >= from);
        let new = new.map(|(_, report)| *report).collect();
        *seen = self.count.load(Ordering::Relaxed);
        new
    }
}
