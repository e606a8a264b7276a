//! What the Selectors do, for `/metrics`.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_mcc::thread::{Account, Reading};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntGauge};

type Read = fn(&Reading) -> u64;

/// Sums up the accounts of all Selectors when it is asked. A clone is the same set.
#[derive(Clone, Debug)]
pub(super) struct Selectors {
    accounts: Arc<Mutex<Vec<Arc<Account>>>>,
    counters: Vec<(IntCounter, Read)>,
    connections: IntGauge,
}

impl Selectors {
    pub(super) fn new() -> prometheus::Result<Self> {
        let of: [(&str, &str, Read); 7] = [
            ("asked", "Times that the rules of [mcc] were asked", |it| it.counts.asked),
            ("failed", "Of these, times that they failed", |it| it.counts.failed),
            ("orders", "Changes of congestion control that they led to", |it| it.counts.ordered),
            ("dropped", "Records that found a Selector's pipe full", |it| it.dropped),
            ("refused", "Records of connections that a Selector had no room for", |it| {
                it.counts.too_many
            }),
            ("left_out", "Rows that telemetry had no room for", |it| it.counts.left_out),
            ("restarts", "Crashes after which a Selector was started again", |it| it.restarts),
        ];
        let counters = of.into_iter().map(|(name, help, read)| {
            Ok((IntCounter::new(format!("millrace_mcc_{name}_total"), help)?, read))
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

    pub(super) fn add(&self, account: Arc<Account>) {
        self.lock().push(account);
    }

    // A list of accounts is right whatever thread panicked beside it.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Account>>> {
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
