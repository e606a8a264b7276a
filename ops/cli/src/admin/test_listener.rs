//! A real admin listener on loopback, with flows that a test chooses.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millrace_config::{Admin, AdminToken, Class};
use millrace_ops::admin::{self, AdminServer, Checks, FlowSource, Health, ProgramInfo};
use millrace_tunnel::cc_override::{CcOverride, CcOverrideError, CcOverrideResult};
use millrace_tunnel::flow_info::{FlowInfo, FlowState, PlayerInfo};
use millrace_tunnel::metrics::Metrics;
use millrace_tunnel::qlog::{QlogError, TraceInfo};
use tempfile::NamedTempFile;

use super::api::AdminApi;
use super::endpoint::AdminEndpoint;

/// The token of a listener that asks for one.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The connection that the listener knows.
pub(crate) const CONNECTION: &str = "0a0b";

/// A flow with the number `id` at this rate.
pub(crate) fn flow(id: u64, rate_mbps: f64) -> FlowInfo {
    FlowInfo {
        id,
        connection: Some(CONNECTION.to_owned()),
        client: format!("198.18.1.{}:50000", id % 256),
        destination: "198.18.3.2:80".to_owned(),
        class: Class::Dash,
        algorithm: Some("vivace-latency".to_owned()),
        bytes_up: 1_234,
        bytes_down: 56_700_000,
        age_s: 75.0,
        rtt_ms: Some(48.25),
        rate_mbps,
        cwnd_bytes: Some(14_520),
        loss: Some(0.0123),
        player: Some(PlayerInfo {
            session: Some(format!("session-{id}")),
            ..PlayerInfo::default()
        }),
        state: FlowState::Open,
        ..FlowInfo::default()
    }
}

struct TestFlows(Arc<Mutex<Vec<FlowInfo>>>);

impl FlowSource for TestFlows {
    fn flows(&self) -> Vec<FlowInfo> {
        self.0.lock().unwrap().clone()
    }

    fn traces(&self) -> Result<Vec<TraceInfo>, QlogError> {
        let file = PathBuf::from("/tmp/a.sqlog");
        let connection = CONNECTION.to_owned();
        Ok(vec![TraceInfo { connection, file, bytes: 2_500_000, left_out_bytes: 0 }])
    }

    fn trace(&self, connection: &str, on: bool) -> Result<PathBuf, QlogError> {
        match (connection, on) {
            (CONNECTION, true) => Ok("/tmp/a.sqlog".into()),
            (CONNECTION, false) => Err(QlogError::NotRunning),
            _ => Err(QlogError::NoConnection),
        }
    }

    fn override_cc(
        &self,
        connection: &str,
        change: &CcOverride,
    ) -> Result<CcOverrideResult, CcOverrideError> {
        match (connection, change) {
            (CONNECTION, CcOverride::Set(to)) => {
                Ok(CcOverrideResult { algorithm: to.name(), pinned: true })
            }
            (CONNECTION, CcOverride::Clear) => {
                Ok(CcOverrideResult { algorithm: "cubic", pinned: false })
            }
            (CONNECTION, CcOverride::Tune(tuning)) => Err(CcOverride::untunable(*tuning, "cubic")),
            _ => Err(CcOverrideError::NoConnection),
        }
    }
}

/// The listener. It ends when this is dropped.
pub(crate) struct AdminFixture {
    server: AdminServer,
    pub(crate) flows: Arc<Mutex<Vec<FlowInfo>>>,
    pub(crate) healthy: Arc<AtomicBool>,
    _token: Option<NamedTempFile>,
}

impl AdminFixture {
    pub(crate) fn start(flows: Vec<FlowInfo>) -> Self {
        Self::bind(flows, "127.0.0.1:0".parse().unwrap(), None)
    }

    pub(crate) fn start_with_token(flows: Vec<FlowInfo>) -> Self {
        let mut file = NamedTempFile::new().unwrap();
        writeln!(file, "{TOKEN}").unwrap();
        Self::bind(flows, "127.0.0.1:0".parse().unwrap(), Some(file))
    }

    /// At an address that another one had before.
    pub(crate) fn start_at(flows: Vec<FlowInfo>, address: SocketAddr) -> Self {
        Self::bind(flows, address, None)
    }

    fn bind(flows: Vec<FlowInfo>, address: SocketAddr, token: Option<NamedTempFile>) -> Self {
        let config = Admin {
            address: Some(address),
            qlog_dir: None,
            qlog_max_bytes: 0,
            cors_allow_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            token_file: token.as_ref().map(|file| file.path().to_owned()),
        };
        let bound = admin::bind(&config).unwrap().unwrap();
        let (flows, healthy) = (Arc::new(Mutex::new(flows)), Arc::new(AtomicBool::new(true)));
        let is_healthy = healthy.clone();
        let checks = Checks {
            health: Box::new(move || match is_healthy.load(Ordering::Relaxed) {
                true => Health::Healthy,
                false => Health::Unhealthy("no connection to a server".to_owned()),
            }),
            liveness: Box::new(|| Health::Healthy),
        };
        let metrics = Metrics::new("millrace-client", "1.2.3").unwrap();
        let source = Box::new(TestFlows(flows.clone()));
        let program = ProgramInfo { role: "client", version: "1.2.3" };
        let server = AdminServer::start(bound, program, metrics, source, checks).unwrap();
        Self { server, flows, healthy, _token: token }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The API as a command sees it that was given this token.
    pub(crate) fn api(&self, token: Option<&str>) -> AdminApi {
        let token = token.map(|token| {
            let mut file = NamedTempFile::new().unwrap();
            writeln!(file, "{token}").unwrap();
            AdminToken::read(file.path()).unwrap()
        });
        let address = self.address().to_string().parse().unwrap();
        AdminApi::new(AdminEndpoint::given(address, token))
    }
}
