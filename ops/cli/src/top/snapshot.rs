//! What a program does at one moment.

use millrace_config::Protocol;
use millrace_tunnel::flow_info::FlowInfo;

use crate::admin::{AdminApi, AdminApiError};
use crate::flows;

/// The series of `/metrics` with the program's name and version as labels.
const BUILD_INFO: &str = "millrace_build_info{";

/// Flows and state of a program.
#[derive(Clone, Debug)]
pub(super) struct TopSnapshot {
    /// Name and version of the program.
    pub(super) program: String,
    /// Why it is not healthy; `None` if it is.
    pub(super) health_problem: Option<String>,
    /// The flows, those with the highest rate first.
    pub(super) flows: Vec<FlowInfo>,
}

/// Sums over all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TopTotals {
    pub(super) tcp: usize,
    pub(super) udp: usize,
    pub(super) bypassed: usize,
    pub(super) rate_mbps: f64,
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
}

impl TopSnapshot {
    pub(super) fn totals(&self) -> TopTotals {
        let mut totals = TopTotals::default();
        for flow in &self.flows {
            match flow.protocol {
                Protocol::Tcp => totals.tcp += 1,
                Protocol::Udp => totals.udp += 1,
            }
            totals.bypassed += usize::from(flow.bypassed);
            totals.rate_mbps += flow.rate_mbps;
            totals.bytes_up = totals.bytes_up.saturating_add(flow.bytes_up);
            totals.bytes_down = totals.bytes_down.saturating_add(flow.bytes_down);
        }
        totals
    }
}

/// Where snapshots come from.
#[derive(Debug)]
pub(super) struct SnapshotSource {
    api: AdminApi,
    /// Asked for again after each failure, as after a restart of the program.
    program: Option<String>,
}

impl SnapshotSource {
    pub(super) fn new(api: AdminApi) -> Self {
        Self { api, program: None }
    }

    pub(super) fn address(&self) -> String {
        self.api.address()
    }

    /// The program now.
    pub(super) fn fetch(&mut self) -> Result<TopSnapshot, AdminApiError> {
        let program = match self.program.take() {
            Some(program) => program,
            None => self.identify()?,
        };
        let health_problem = self.api.health_problem()?;
        let flows = flows::fetch(&self.api)?;
        self.program = Some(program.clone());
        Ok(TopSnapshot { program, health_problem, flows })
    }

    fn identify(&self) -> Result<String, AdminApiError> {
        let metrics = self.api.get("/metrics")?;
        let text = String::from_utf8_lossy(&metrics);
        let labels = text.lines().find_map(|line| line.strip_prefix(BUILD_INFO));
        let label = |name: &str| {
            let (_, value) = labels?.split_once(&format!("{name}=\""))?;
            value.split_once('"').map(|(value, _)| value)
        };
        let known = |name| label(name).unwrap_or("unknown");
        Ok(format!("{} {}", known("program"), known("version")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::admin::test_listener::{AdminFixture, flow};

    #[test]
    fn a_snapshot_has_program_health_and_flows() {
        let fixture = AdminFixture::start(vec![flow(1, 1.0), flow(2, 3.0)]);
        let mut source = SnapshotSource::new(fixture.api(None));
        let snapshot = source.fetch().unwrap();
        assert_eq!(snapshot.program, "millrace-client 1.2.3");
        assert_eq!((snapshot.health_problem, snapshot.flows[0].id), (None, 2));
        fixture.healthy.store(false, Ordering::Relaxed);
        let problem = source.fetch().unwrap().health_problem;
        assert_eq!(problem.as_deref(), Some("no connection to a server"));
    }

    #[test]
    fn totals_count_each_protocol_and_what_bypasses() {
        let mut flows = vec![flow(1, 1.0), flow(2, 3.0), flow(3, 0.5)];
        flows[0].protocol = Protocol::Udp;
        flows[1].bypassed = true;
        let snapshot = TopSnapshot { program: String::new(), health_problem: None, flows };
        let expected = TopTotals {
            tcp: 2,
            udp: 1,
            bypassed: 1,
            rate_mbps: 4.5,
            bytes_up: 3 * 1_234,
            bytes_down: 3 * 56_700_000,
        };
        assert_eq!(snapshot.totals(), expected);
    }
}
