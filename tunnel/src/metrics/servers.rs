//! Metrics of a client for each of its servers. The names come from the configuration, so that no
//! peer can make the number of series grow.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// One server's part of the metrics; its clones count together.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// Workers that can use it now.
    pub healthy: IntGauge,
    /// Connections that were established to it.
    pub connections: IntCounter,
    /// Attempts that failed, connections that broke, and times that it was silent for too long.
    pub failures: IntCounter,
    /// Health probes that had no answer in time.
    pub probe_failures: IntCounter,
    /// Flows sent to it.
    pub flows: IntCounter,
    /// Flows that it refused because it was full.
    pub full: IntCounter,
}

impl ServerMetrics {
    /// Counters for the servers with these names.
    pub(super) fn register(registry: &Registry, names: &[String]) -> prometheus::Result<Vec<Self>> {
        let counters = |name: &str, help: &str| {
            let family = IntCounterVec::new(Opts::new(name, help), &["server"])?;
            registry.register(Box::new(family.clone()))?;
            prometheus::Result::Ok(family)
        };
        let healthy = IntGaugeVec::new(
            Opts::new(
                "millrace_server_healthy",
                "Workers with a healthy connection to a server; 0 is down",
            ),
            &["server"],
        )?;
        registry.register(Box::new(healthy.clone()))?;
        let connections =
            counters("millrace_server_connections_total", "Connections established to a server")?;
        let failures = counters(
            "millrace_server_connect_errors_total",
            "Failed connection attempts, lost connections and timeouts of a server",
        )?;
        let probe_failures =
            counters("millrace_server_probe_failures_total", "Health probes that timed out")?;
        let flows = counters("millrace_server_flows_total", "Flows sent to a server")?;
        let full = counters("millrace_server_overload_total", "Flows refused by a full server")?;
        let of = |name: &String| Self {
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
