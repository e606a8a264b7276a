//! `/status`: what the process is, its health and totals, and the flows that ended last.

use std::collections::BTreeMap;

use millrace_cc::registry;
use millrace_tunnel::ended_flows::EndedFlow;
use millrace_tunnel::metrics::{ConnectionState, FlowOutcome, Label, Metrics};
use serde::Serialize;

use super::content::{AdminContent, Health};
use super::program::StartedProgram;

/// The answer to `/status`.
#[derive(Debug, Serialize)]
pub(super) struct StatusResponse {
    /// `client` or `server`.
    role: &'static str,
    /// Version and commit.
    version: &'static str,
    /// Name of the host; none where the kernel's is not readable.
    host: Option<String>,
    /// Time since the start.
    uptime_s: f64,
    /// As `/healthz` has it.
    healthy: bool,
    /// Why it is not healthy.
    problem: Option<String>,
    /// What it has carried.
    totals: ProcessTotals,
    /// The latest first.
    ended_flows: Vec<EndedFlow>,
    /// What `/congestion_control` accepts.
    algorithms: Vec<&'static str>,
}

impl StatusResponse {
    pub(super) fn new(content: &AdminContent) -> Self {
        let StartedProgram { info, host, started } = &content.program;
        let problem = match (content.checks.health)() {
            Health::Healthy => None,
            Health::Unhealthy(reason) => Some(reason),
        };
        Self {
            role: info.role,
            version: info.version,
            host: host.clone(),
            uptime_s: started.elapsed().as_secs_f64(),
            healthy: problem.is_none(),
            problem,
            totals: ProcessTotals::new(&content.metrics),
            ended_flows: content.flows.ended_flows(),
            algorithms: registry::names(),
        }
    }
}

/// Counts since the process began, and what it holds now.
#[derive(Debug, Serialize)]
struct ProcessTotals {
    /// Flows that began.
    flows_opened: u64,
    /// Of these, flows that bypassed the tunnel.
    flows_bypassed: u64,
    /// Flows that ended in order.
    flows_complete: u64,
    /// By reason, without those that did not occur.
    flows_failed: BTreeMap<&'static str, u64>,
    /// Payload from clients to destinations.
    bytes_up: u64,
    /// Payload from destinations to clients.
    bytes_down: u64,
    /// Established connections.
    connections: i64,
    /// Memory of connections and flows.
    memory_used_bytes: i64,
    /// `tunnel.memory_cap_mb`.
    memory_cap_bytes: i64,
}

impl ProcessTotals {
    fn new(metrics: &Metrics) -> Self {
        let (bytes_up, bytes_down) = metrics.flow_bytes();
        let finished = &metrics.flows_finished;
        let failed = finished
            .counts()
            .filter(|(outcome, count)| *outcome != FlowOutcome::Complete && *count > 0);
        Self {
            flows_opened: metrics.flows_opened.get(),
            flows_bypassed: metrics.flows_direct.get(),
            flows_complete: finished.of(FlowOutcome::Complete).get(),
            flows_failed: failed.map(|(outcome, count)| (outcome.as_str(), count)).collect(),
            bytes_up,
            bytes_down,
            connections: metrics.connections.of(ConnectionState::Established).get(),
            memory_used_bytes: metrics.memory_used_bytes.get(),
            memory_cap_bytes: metrics.memory_cap_bytes.get(),
        }
    }
}
