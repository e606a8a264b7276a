//! What all workers of a process share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use millrace_admission::fair_share::{Place, PlaceRefusal};
use millrace_admission::flow_admission::{FlowLimits, FlowPlaces, FlowPools};
use millrace_admission::flow_owner::{FlowOwner, FlowRefusal, Viewer};
use millrace_admission::peer_limits::{FlowPlace, Limits, PeerLimits};
use millrace_wire::traceparent::TraceParent;

use crate::ended_flows::EndedFlows;
use crate::fault::Faults;
use crate::flow_trace::{FlowTrace, FlowTracer, SetupStep};
use crate::malloc_trim::MallocTrim;
use crate::memory::HeldBytes;
use crate::memory_use::MemoryUse;
use crate::metrics;
use crate::metrics::Metrics;
use crate::misdelivered::SharingWorkers;
use crate::path_reports::PathReports;

/// State and limits that all workers of a process share.
#[derive(Debug)]
pub struct Shared {
    /// Counters of the process.
    pub metrics: Arc<Metrics>,
    /// What all connections hold.
    pub memory: MemoryUse,
    pub(crate) malloc_trim: MallocTrim,
    /// What each peer may take.
    pub peers: Arc<PeerLimits>,
    /// The flows that ended last.
    pub ended_flows: Arc<EndedFlows>,
    connections: AtomicUsize,
    flows: FlowPools,
    next_number: AtomicU64,
    pub(crate) path_reports: PathReports,
    pub(crate) sharing_workers: SharingWorkers,
    at_work: AtomicUsize,
    tracer: OnceLock<Arc<FlowTracer>>,
    /// What tests provoke.
    pub(crate) faults: Faults,
}

impl Shared {
    /// Nothing in use yet.
    pub fn new(
        metrics: Arc<Metrics>,
        memory_cap_bytes: u64,
        flows: FlowLimits,
        peers: Limits,
    ) -> Arc<Self> {
        let shared = Self {
            memory: MemoryUse::new(metrics.memory_used_bytes.clone()),
            malloc_trim: MallocTrim::default(),
            metrics,
            peers: Arc::new(PeerLimits::new(Limits::default())),
            ended_flows: Arc::default(),
            connections: AtomicUsize::new(0),
            flows: FlowPools::new(flows),
            next_number: AtomicU64::new(1),
            path_reports: PathReports::default(),
            sharing_workers: SharingWorkers::default(),
            at_work: AtomicUsize::default(),
            tracer: OnceLock::new(),
            faults: Faults::from_environment(),
        };
        shared.set_limits(memory_cap_bytes, flows, peers);
        Arc::new(shared)
    }

    /// Changes the limits; what already exceeds them stays.
    pub fn set_limits(&self, memory_cap_bytes: u64, flows: FlowLimits, peers: Limits) {
        self.metrics.memory_cap_bytes.set(i64::try_from(memory_cap_bytes).unwrap_or(i64::MAX));
        self.memory.set_cap(memory_cap_bytes);
        self.flows.set(flows);
        self.peers.set(peers);
    }

    /// Begins traces with `tracer` from now on; a second call changes nothing.
    pub fn trace_flows(&self, tracer: Arc<FlowTracer>) {
        let _ = self.tracer.set(tracer);
    }

    /// Begins the trace of a flow, if it is sampled. `parent` is the peer's span.
    pub fn begin_trace(&self, parent: Option<TraceParent>, now: Instant) -> Option<Box<FlowTrace>> {
        self.tracer.get()?.begin(parent, now)
    }

    /// A number that nothing of the process has had before.
    pub fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A worker has one connection more.
    pub(crate) fn add_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker has one connection less, which held so much.
    pub(crate) fn forget_connection(&self, held: HeldBytes) {
        self.memory.remove(held);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// The connections of all workers.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
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

    /// A place for a flow of `owner` among those that the process may have.
    ///
    /// # Errors
    /// The limit or share that is reached, which is counted.
    pub fn admit_flow(self: &Arc<Self>, owner: &FlowOwner) -> Result<Admission, FlowRefusal> {
        let admission = self.admit_answered(owner)?;
        self.metrics.flows_opened.inc();
        Ok(admission)
    }

    /// A place for a UDP flow that runs already and has its first reply.
    pub(crate) fn admit_answered(
        self: &Arc<Self>,
        owner: &FlowOwner,
    ) -> Result<Admission, FlowRefusal> {
        let shares = self.flows.join(owner).inspect_err(|refusal| self.count_refusal(*refusal))?;
        self.metrics.flows_active.inc();
        let (shared, owner) = (self.clone(), owner.clone());
        Ok(Admission { shared, owner, shares, _peer: None, trace: None })
    }

    /// Counts a flow of a peer that has as many as it may. By default that is as many as there are.
    pub(crate) fn refuse_peer(&self) -> FlowRefusal {
        let refusal = if self.flows.is_full() { FlowRefusal::Full } else { FlowRefusal::Client };
        self.count_refusal(refusal);
        refusal
    }

    fn count_refusal(&self, refusal: FlowRefusal) {
        self.metrics.drops.of(refusal.into()).inc();
    }

    /// Whether RTSP is followed for RTP over UDP.
    pub fn follows_rtsp(&self) -> bool {
        self.flows.has_port_pairs()
    }

    /// A place among the pairs of ports that RTSP connections may have, or `None`.
    pub(crate) fn take_port_pair(&self, viewer: Viewer) -> Option<PairPlace> {
        let taken = self.flows.take_port_pair(viewer).inspect_err(|refusal| {
            let reason = match refusal {
                PlaceRefusal::Full => metrics::Drop::RtspPorts,
                PlaceRefusal::Share => metrics::Drop::RtspPortShare,
            };
            self.metrics.drops.of(reason).inc();
        });
        taken.ok().map(|place| PairPlace { _place: place })
    }
}

/// The place of a pair of UDP ports; given back when dropped.
#[derive(Debug)]
pub(crate) struct PairPlace {
    _place: Place<Viewer>,
}

/// A flow's place among those that the process may have; given back when dropped.
#[derive(Debug)]
pub struct Admission {
    shared: Arc<Shared>,
    owner: FlowOwner,
    shares: FlowPlaces,
    /// Its place among the flows that its peer may have.
    _peer: Option<FlowPlace>,
    /// The trace of the flow's set-up, if it is sampled and not over yet.
    pub trace: Option<Box<FlowTrace>>,
}

impl Admission {
    /// Counts for a peer too.
    pub(crate) fn of_peer(self, place: Option<FlowPlace>) -> Self {
        let mut admission = self;
        admission._peer = place;
        admission
    }

    /// The next step of the flow's set-up begins.
    pub fn begin_step(&mut self, step: SetupStep, now: Instant) {
        if let Some(trace) = &mut self.trace {
            trace.begin(step, now);
        }
    }

    /// The flow's set-up is over, with its first byte or with a failure.
    pub fn end_set_up(&mut self, failure: Option<&'static str>, now: Instant) {
        if let Some(mut trace) = self.trace.take() {
            trace.finish(failure, now);
        }
    }

    /// Counts for the viewer at `ip`, which a header has named, instead of the one before.
    ///
    /// # Errors
    /// The viewer has its share.
    pub fn set_viewer(&mut self, ip: IpAddr) -> Result<(), FlowRefusal> {
        self.owner.viewer = Some(ip);
        let Self { shared, owner, shares, .. } = self;
        shared.flows.set_viewer(shares, owner).inspect_err(|refusal| shared.count_refusal(*refusal))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shared.flows.leave();
        self.shared.metrics.flows_active.dec();
    }
}
