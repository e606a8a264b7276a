//! Counters of the data path, one set for each event loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, Opts};

/// A counter that one thread adds to and others read.
///
/// An addition is not one atomic operation: of two threads that add at once, one could be lost.
#[derive(Debug, Default)]
pub struct LocalCounter(AtomicU64);

impl LocalCounter {
    /// Adds `count`, on the one thread that owns the counter.
    pub fn add(&self, count: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(count);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// The sum, on any thread.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one event loop counts. On cache lines of its own, two because processors fetch them in
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Flow bytes from client to destination.
    pub bytes_up: LocalCounter,
    /// Flow bytes from destination to client.
    pub bytes_down: LocalCounter,
    /// Datagrams of UDP flows from client to destination.
    pub datagrams_up: LocalCounter,
    /// Datagrams of UDP flows from destination to client.
    pub datagrams_down: LocalCounter,
    /// UDP payload bytes sent.
    pub tunnel_bytes_sent: LocalCounter,
    /// UDP payload bytes received.
    pub tunnel_bytes_received: LocalCounter,
    /// QUIC packets sent.
    pub packets_sent: LocalCounter,
    /// QUIC packets received.
    pub packets_received: LocalCounter,
    /// QUIC packets declared lost.
    pub packets_lost: LocalCounter,
    /// Datagrams that the kernel refused to send.
    pub datagram_send_errors: LocalCounter,
    /// Connections that got another congestion control because the rules wanted it.
    pub selected: LocalCounter,
}

impl WorkerCounters {
    /// Counts flow bytes that go towards the client, or towards the destination.
    pub(crate) fn bytes(&self, to_client: bool, bytes: u64) {
        if to_client { self.bytes_down.add(bytes) } else { self.bytes_up.add(bytes) }
    }

    /// Counts datagrams of UDP flows in the same way.
    pub(crate) fn datagrams(&self, to_client: bool, count: u64) {
        if to_client { self.datagrams_down.add(count) } else { self.datagrams_up.add(count) }
    }
}

/// Sums up the workers' counters when they are asked for. A clone is the same set.
#[derive(Clone, Debug)]
pub(super) struct Workers {
    counters: Arc<Mutex<Vec<Arc<WorkerCounters>>>>,
    flow_bytes: IntCounterVec,
    flow_datagrams: IntCounterVec,
    tunnel_bytes: IntCounterVec,
    packets_sent: IntCounter,
    packets_received: IntCounter,
    packets_lost: IntCounter,
    datagram_send_errors: IntCounter,
    selected: IntCounter,
}

impl Workers {
    pub(super) fn new() -> prometheus::Result<Self> {
        let with_direction =
            |name: &str, help: &str| IntCounterVec::new(Opts::new(name, help), &["direction"]);
        Ok(Self {
            counters: Arc::default(),
            flow_bytes: with_direction(
                "millrace_flow_bytes_total",
                "Bytes of flows, up is from client to destination",
            )?,
            flow_datagrams: with_direction(
                "millrace_flow_datagrams_total",
                "Datagrams of UDP flows, up is from client to destination",
            )?,
            tunnel_bytes: with_direction(
                "millrace_tunnel_bytes_total",
                "UDP payload bytes of the tunnel",
            )?,
            packets_sent: IntCounter::new("millrace_packets_sent_total", "QUIC packets sent")?,
            packets_received: IntCounter::new(
                "millrace_packets_received_total",
                "QUIC packets received",
            )?,
            packets_lost: IntCounter::new(
                "millrace_packets_lost_total",
                "QUIC packets declared lost",
            )?,
            datagram_send_errors: IntCounter::new(
                "millrace_datagram_send_errors_total",
                "Datagrams that the kernel refused to send",
            )?,
            selected: IntCounter::new(
                "millrace_mcc_switches_total",
                "Connections that got another congestion control because the rules wanted it",
            )?,
        })
    }

    pub(super) fn add(&self) -> Arc<WorkerCounters> {
        let counters = Arc::<WorkerCounters>::default();
        self.lock().push(Arc::clone(&counters));
        counters
    }

    /// Flow bytes of all workers, up and down.
    pub(super) fn flow_bytes(&self) -> (u64, u64) {
        let add = |(up, down): (u64, u64), counters: &Arc<WorkerCounters>| {
            let (more_up, more_down) = (counters.bytes_up.value(), counters.bytes_down.value());
            (up.wrapping_add(more_up), down.wrapping_add(more_down))
        };
        self.lock().iter().fold((0, 0), add)
    }

    // A list of counters is right whatever thread panicked beside it.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<WorkerCounters>>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&self) -> [&dyn Collector; 8] {
        [
            &self.flow_bytes,
            &self.flow_datagrams,
            &self.tunnel_bytes,
            &self.packets_sent,
            &self.packets_received,
            &self.packets_lost,
            &self.datagram_send_errors,
            &self.selected,
        ]
    }
}

impl Collector for Workers {
    fn desc(&self) -> Vec<&Desc> {
        self.parts().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Held until the end: two scrapes at once must not reset each other's sums.
        let workers = self.lock();
        let sum = |pick: fn(&WorkerCounters) -> &LocalCounter| {
            workers.iter().fold(0u64, |sum, counters| sum.wrapping_add(pick(counters).value()))
        };
        let set = |counter: &IntCounter, pick| {
            counter.reset();
            counter.inc_by(sum(pick));
        };
        set(&self.flow_bytes.with_label_values(&["up"]), |c| &c.bytes_up);
        set(&self.flow_bytes.with_label_values(&["down"]), |c| &c.bytes_down);
        set(&self.flow_datagrams.with_label_values(&["up"]), |c| &c.datagrams_up);
        set(&self.flow_datagrams.with_label_values(&["down"]), |c| &c.datagrams_down);
        set(&self.tunnel_bytes.with_label_values(&["sent"]), |c| &c.tunnel_bytes_sent);
        set(&self.tunnel_bytes.with_label_values(&["received"]), |c| &c.tunnel_bytes_received);
        set(&self.packets_sent, |c| &c.packets_sent);
        set(&self.packets_received, |c| &c.packets_received);
        set(&self.packets_lost, |c| &c.packets_lost);
        set(&self.datagram_send_errors, |c| &c.datagram_send_errors);
        set(&self.selected, |c| &c.selected);
        self.parts().into_iter().flat_map(Collector::collect).collect()
    }
}
