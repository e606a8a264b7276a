//! Metrics of the Selectors.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_mcc::thread::{Reading, SharedSelectorCounts};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntGauge};

type Read = fn(&Reading) -> u64;

/// Collector that sums up the accounts of all Selectors. Clones share the accounts.
#[derive(Clone, Debug)]
pub(super) struct Selectors {
    accounts: Arc<Mutex<Vec<Arc<SharedSelectorCounts>>>>,
    counters: Vec<(IntCounter, Read)>,
    connections: IntGauge,
}

impl Selectors {
    pub(super) fn new() -> prometheus::Result<Self> {
        let of: [(&str, &str, Read); 7] = [
            ("mcc_evaluations", "MCC rule evaluations", |it| it.counts.evaluations),
            ("mcc_evaluation_errors", "MCC rule evaluations that failed", |it| {
                it.counts.evaluation_errors
            }),
            ("mcc_switch_requests", "Changes of congestion control that MCC requested", |it| {
                it.counts.switch_requests
            }),
            ("mcc_records_dropped", "MCC records dropped (queue full)", |it| it.records_dropped),
            ("mcc_connections_rejected", "MCC updates rejected (connection limit reached)", |it| {
                it.counts.connections_rejected
            }),
            (
                "telemetry_rows_dropped",
                "Telemetry rows dropped (buffer full or file not written)",
                |it| it.counts.episodes_dropped,
            ),
            ("mcc_restarts", "Restarts of the MCC selector thread after a crash", |it| it.restarts),
        ];
        let counters = of.into_iter().map(|(name, help, read)| {
            Ok((IntCounter::new(format!("millrace_{name}_total"), help)?, read))
        });
        Ok(Self {
            accounts: Arc::default(),
            counters: counters.collect::<prometheus::Result<_>>()?,
            connections: IntGauge::new(
                "millrace_mcc_connections",
                "Connections whose congestion control the rules select",
            )?,
        })
    }

    pub(super) fn add(&self, account: Arc<SharedSelectorCounts>) {
        self.lock().push(account);
    }

    // A panic under the lock leaves the list valid.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<SharedSelectorCounts>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&self) -> impl Iterator<Item = &dyn Collector> {
        let counters = self.counters.iter().map(|(counter, _)| counter as &dyn Collector);
        counters.chain([&self.connections as &dyn Collector])
    }
}

impl Collector for Selectors {
    fn desc(&self) -> Vec<&Desc> {
        self.parts().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Held until the end: two scrapes at once must not reset each other's sums.
        let accounts = self.lock();
        let readings: Vec<Reading> = accounts.iter().map(|account| account.read()).collect();
        for (counter, read) in &self.counters {
            counter.reset();
            counter.inc_by(readings.iter().map(read).sum());
        }
        let connections: u64 = readings.iter().map(|it| it.connections).sum();
        self.connections.set(i64::try_from(connections).unwrap_or(i64::MAX));
        self.parts().flat_map(Collector::collect).collect()
    }
}
