//! What a client counts for each of its servers. Their names come from the configuration, so that
//! nobody else can make the number of series grow.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::Metrics;

/// One server's part of the metrics; its clones count together.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// Workers that can use it now.
    pub healthy: IntGauge,
    /// Connections to it that came about.
    pub connections: IntCounter,
    /// Attempts that failed, connections that broke, and times that it was silent for too long.
    pub failures: IntCounter,
    /// Health probes that had no answer in time.
    pub probe_failures: IntCounter,
    /// Flows that were given to it.
    pub flows: IntCounter,
    /// Flows that it had no room for.
    pub full: IntCounter,
}

impl Metrics {
    /// Counters for the servers with these names. To be called once.
    ///
    /// # Errors
    /// The registry refuses a metric.
    pub fn servers(&self, names: &[String]) -> prometheus::Result<Vec<ServerMetrics>> {
        let counters = |name: &str, help: &str| {
            let family = IntCounterVec::new(Opts::new(name, help), &["server"])?;
            self.registry.register(Box::new(family.clone()))?;
            prometheus::Result::Ok(family)
        };
        let healthy = IntGaugeVec::new(
            Opts::new("millrace_server_healthy", "Workers that can use a server now; 0 is down"),
            &["server"],
        )?;
        self.registry.register(Box::new(healthy.clone()))?;
        let connections =
            counters("millrace_server_connections_total", "Connections to a server made")?;
        let failures = counters(
            "millrace_server_failures_total",
            "Attempts to connect to a server that failed, connections lost, and silences",
        )?;
        let probe_failures = counters(
            "millrace_server_probe_failures_total",
            "Health probes of full-size packets that a server did not answer in time",
        )?;
        let flows = counters("millrace_server_flows_total", "Flows given to a server")?;
        let full = counters("millrace_server_full_total", "Flows that a server had no room for")?;
        let of = |name: &String| ServerMetrics {
            healthy: healthy.with_label_values(&[name]),
            connections: connections.with_label_values(&[name]),
            failures: failures.with_label_values(&[name]),
            probe_failures: probe_failures.with_label_values(&[name]),
            flows: flows.with_label_values(&[name]),
            full: full.with_label_values(&[name]),
        };
        Ok(names.iter().map(of).collect())
    }
}
