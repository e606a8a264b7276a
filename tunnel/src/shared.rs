//! What all workers of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::metrics::{self, Metrics};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// Counters of the process.
    pub metrics: Arc<Metrics>,
    memory_cap_bytes: u64,
    memory_bytes: AtomicU64,
    flows: AtomicUsize,
    max_flows: usize,
}

impl Shared {
    /// Nothing in use yet.
    pub fn new(metrics: Arc<Metrics>, memory_cap_bytes: u64, max_flows: usize) -> Arc<Self> {
        metrics.memory_cap_bytes.set(i64::try_from(memory_cap_bytes).unwrap_or(i64::MAX));
        Arc::new(Self {
            metrics,
            memory_cap_bytes,
            memory_bytes: AtomicU64::new(0),
            flows: AtomicUsize::new(0),
            max_flows,
        })
    }

    /// A place among the flows that the process may have, or `None` when all are taken.
    pub fn admit_flow(self: &Arc<Self>) -> Option<Admission> {
        let taken = self.flows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |flows| {
            (flows < self.max_flows).then_some(flows + 1)
        });
        if taken.is_err() {
            self.metrics.drops.of(metrics::Drop::FlowLimit).inc();
            return None;
        }
        self.metrics.flows_opened.inc();
        self.metrics.flows_active.inc();
        Some(Admission(self.clone()))
    }

    pub(crate) fn memory_left(&self) -> u64 {
        self.memory_cap_bytes.saturating_sub(self.memory_bytes.load(Ordering::Relaxed))
    }

    /// Whether another connection's least window would go beyond the cap.
    pub(crate) fn memory_full(&self, least_bytes: u64) -> bool {
        self.memory_left() < least_bytes
    }

    pub(crate) fn take_memory(&self, bytes: u64) {
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.memory_used_bytes.add(bytes as i64);
    }

    pub(crate) fn release_memory(&self, bytes: u64) {
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.metrics.memory_used_bytes.sub(bytes as i64);
    }
}

/// A flow's place among those that the process may have; given back when dropped.
#[derive(Debug)]
pub struct Admission(Arc<Shared>);

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.flows.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.flows_active.dec();
    }
}
