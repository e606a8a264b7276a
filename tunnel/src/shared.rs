//! What all workers of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::metrics::{self, Metrics};
use crate::peer_limits::{FlowPlace, Limits, PeerLimits};

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// Counters of the process.
    pub metrics: Arc<Metrics>,
    /// What each peer may take.
    pub peers: Arc<PeerLimits>,
    memory_cap_bytes: AtomicU64,
    memory_bytes: AtomicU64,
    flows: AtomicUsize,
    max_flows: AtomicUsize,
    port_pairs: AtomicUsize,
    max_port_pairs: AtomicUsize,
    next_number: AtomicU64,
    at_work: AtomicUsize,
}

impl Shared {
    /// Nothing in use yet.
    pub fn new(
        metrics: Arc<Metrics>,
        memory_cap_bytes: u64,
        max_flows: usize,
        max_rtsp_port_pairs: usize,
        peers: Limits,
    ) -> Arc<Self> {
        let shared = Self {
            metrics,
            peers: Arc::new(PeerLimits::default()),
            memory_cap_bytes: AtomicU64::default(),
            memory_bytes: AtomicU64::new(0),
            flows: AtomicUsize::new(0),
            max_flows: AtomicUsize::default(),
            port_pairs: AtomicUsize::new(0),
            max_port_pairs: AtomicUsize::default(),
            next_number: AtomicU64::new(1),
            at_work: AtomicUsize::default(),
        };
        shared.set_limits(memory_cap_bytes, max_flows, max_rtsp_port_pairs, peers);
        Arc::new(shared)
    }

    /// Other limits from now on; what goes beyond them already stays.
    pub fn set_limits(
        &self,
        memory_cap_bytes: u64,
        max_flows: usize,
        max_rtsp_port_pairs: usize,
        peers: Limits,
    ) {
        self.metrics.memory_cap_bytes.set(i64::try_from(memory_cap_bytes).unwrap_or(i64::MAX));
        self.memory_cap_bytes.store(memory_cap_bytes, Ordering::Relaxed);
        self.max_flows.store(max_flows, Ordering::Relaxed);
        self.max_port_pairs.store(max_rtsp_port_pairs, Ordering::Relaxed);
        self.peers.set(peers);
    }

    /// A number that nothing of the process has had before.
    pub fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A worker begins, or has something to do again.
    pub(crate) fn begin_work(&self) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker that drains has nothing left to do.
    pub(crate) fn end_work(&self) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether no worker has anything left to do.
    pub(crate) fn all_done(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) == 0
    }

    /// A place among the flows that the process may have, or `None` when all are taken.
    pub fn admit_flow(self: &Arc<Self>) -> Option<Admission> {
        let taken = self.flows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |flows| {
            (flows < self.max_flows.load(Ordering::Relaxed)).then_some(flows + 1)
        });
        if taken.is_err() {
            self.metrics.drops.of(metrics::Drop::FlowLimit).inc();
            return None;
        }
        self.metrics.flows_opened.inc();
        self.metrics.flows_active.inc();
        Some(Admission { shared: self.clone(), _peer: None })
    }

    /// Whether the process has as many flows as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.flows.load(Ordering::Relaxed) >= self.max_flows.load(Ordering::Relaxed)
    }

    /// Whether RTSP is followed for RTP over UDP.
    pub fn follows_rtsp(&self) -> bool {
        self.max_port_pairs.load(Ordering::Relaxed) > 0
    }

    /// A place among the pairs of ports that RTSP connections may have, or `None`.
    pub(crate) fn take_port_pair(self: &Arc<Self>) -> Option<PairPlace> {
        let taken = self.port_pairs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pairs| {
            (pairs < self.max_port_pairs.load(Ordering::Relaxed)).then_some(pairs + 1)
        });
        if taken.is_err() {
            self.metrics.drops.of(metrics::Drop::RtspPorts).inc();
            return None;
        }
        Some(PairPlace(self.clone()))
    }

    pub(crate) fn memory_left(&self) -> u64 {
        let cap = self.memory_cap_bytes.load(Ordering::Relaxed);
        cap.saturating_sub(self.memory_bytes.load(Ordering::Relaxed))
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

/// The place of a pair of UDP ports; given back when dropped.
#[derive(Debug)]
pub(crate) struct PairPlace(Arc<Shared>);

impl Drop for PairPlace {
    fn drop(&mut self) {
        self.0.port_pairs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A flow's place among those that the process may have; given back when dropped.
#[derive(Debug)]
pub struct Admission {
    shared: Arc<Shared>,
    /// The same among those that its peer may have.
    _peer: Option<FlowPlace>,
}

impl Admission {
    /// Counts for a peer too.
    pub(crate) fn of_peer(self, place: Option<FlowPlace>) -> Self {
        let mut admission = self;
        admission._peer = place;
        admission
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shared.flows.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics.flows_active.dec();
    }
}
