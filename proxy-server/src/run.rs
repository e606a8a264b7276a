//! From a checked configuration to a running process.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use millrace_cc::registry::Algorithm;
use millrace_config::{Acl, ConfigError, Protocol, ServerConfig, ServerLimits};
use millrace_tunnel::admin::{self, Health};
use millrace_tunnel::affinity::OneProcessor;
use millrace_tunnel::algorithms::{Algorithms, Selectable};
use millrace_tunnel::credentials::{self, End};
use millrace_tunnel::flow_admission::FlowLimits;
use millrace_tunnel::inherited_sockets::InheritedSockets;
use millrace_tunnel::metrics::Metrics;
use millrace_tunnel::own_addresses::InterfaceAddresses;
use millrace_tunnel::privileges::{self, Account};
use millrace_tunnel::process::Process;
use millrace_tunnel::reload::Latest;
use millrace_tunnel::reset_secret::{self, ResetSecret, ResetSecretError};
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::selection::{self, Selection};
use millrace_tunnel::session_tickets::TicketKeys;
use millrace_tunnel::shared::Shared;
use millrace_tunnel::stateless_reset::StatelessReset;
use millrace_tunnel::transport::{ServerSide, Side, TunnelConfig};
use millrace_tunnel::worker::{Worker, WorkerHandle, WorkerSettings};
use millrace_tunnel::{limits, logging, peer_limits};

use crate::reload::Reloader;
use crate::role::ServerRole;
use crate::shared::ServerShared;
use crate::tunnel_ports;

/// Checks what only the files that a configuration names can tell. Binds nothing.
///
/// # Errors
/// The first thing found wrong.
pub fn check(config: &ServerConfig) -> Result<(), ConfigError> {
    config.check_files()?;
    Account::find(&config.runtime, &config.source)?;
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial);
    let state_error =
        |error: ResetSecretError| config.source.error("tunnel.state_dir", error.to_string());
    let secret = config.tunnel.state_dir.as_deref().map(reset_secret::read).transpose();
    let secret = secret.map_err(state_error)?.flatten();
    let trust = Trust::with_secret(config, &secret.unwrap_or_else(reset_secret::random))?;
    tunnels(config, 1, &trust, initial)?;
    Ok(())
}

/// Runs until a signal ends it.
///
/// # Errors
/// Whatever keeps the server from starting.
pub fn run(config: &ServerConfig) -> anyhow::Result<ExitCode> {
    // Before there are other threads, for it changes the environment.
    let inherited = InheritedSockets::from_environment()?;
    let metrics = Metrics::new("millrace-server", env!("CARGO_PKG_VERSION"))?;
    let mut process = Process::new(metrics.clone())?;
    // After the signals have been taken, for it has threads; it outlives everything that logs.
    let logging = logging::init(&config.log)?;
    metrics.watch_log(logging.counters())?;
    limits::warn(config.limits.max_flows, &config.tunnel.credentials.private_key);
    credentials::warn(End::Server, &config.tunnel.credentials);
    let transport = &config.tunnel.transport;
    let shared = Shared::new(
        metrics.clone(),
        transport.memory_cap_bytes,
        flow_limits(&config.limits),
        peer_limits(&config.limits),
    );
    let workers = config.runtime.worker_count();
    let ports = tunnel_ports::bind(&config.tunnel.listen, workers, inherited)?;
    let admin = admin::bind(&config.admin)?;
    let selection = select(config)?;
    let initial = selection.as_ref().map(Selection::initial).cloned();
    let initial = initial.as_ref();
    let trust = Trust::new(config)?;
    let tunnels = tunnels(config, workers, &trust, initial)?;
    // Threads have the privileges of the one that starts them, so all of them come later.
    privileges::drop_to(Account::find(&config.runtime, &config.source)?.as_ref(), &[])?;
    let resolver = Resolver::start(&config.resolver).context("can't start the resolver")?;
    let latest = Latest::new(server_shared(config, resolver.clone(), initial)?);
    let settings = settings(config, workers);
    // Outlives the Selectors, whose last words it waits for; as the user that the process runs as.
    let telemetry = selection::telemetry(config.telemetry.as_ref(), &config.source)?;
    let selection = selection.map(|it| it.with_telemetry(telemetry.as_ref()));
    let workers = ports.len();
    for (index, (mut tunnel, mine)) in tunnels.into_iter().zip(ports).enumerate() {
        let index = u8::try_from(index).context("at most 256 workers")?;
        let _one = config.runtime.pin.then(|| OneProcessor::of(index)).transpose()?;
        tunnel.agent = selection.as_ref().map(|it| it.start(index, &metrics)).transpose()?;
        let (latest, shared) = (latest.clone(), shared.clone());
        let (worker, handle) = Worker::new(index, tunnel, settings, shared, |handle| {
            ServerRole::new(latest, mine, workers, handle)
        })?;
        process.spawn(worker, handle)?;
    }
    let health = Box::new(|| Health::Healthy);
    let explainer = selection.as_ref().map(Selection::explainer).unwrap_or_default();
    let _admin = process.serve_admin(admin, &config.admin, health, explainer)?;
    let mut reloader = Reloader { started: config, latest, shared, resolver, selection, trust };
    let mut reload = |workers: &[WorkerHandle]| reloader.reload(workers);
    Ok(process.run(config.runtime.drain_timeout, &mut reload))
}

/// MCC, if it is configured.
fn select(config: &ServerConfig) -> Result<Option<Selection>, ConfigError> {
    config.mcc.as_ref().map(|mcc| Selection::new(mcc, &config.source)).transpose()
}

/// What the server keeps from its start on, over all reloads.
pub(crate) struct Trust {
    pub(crate) ticket_keys: Arc<TicketKeys>,
    reset: StatelessReset,
}

impl Trust {
    /// Reads or makes the secret in the state directory.
    fn new(config: &ServerConfig) -> anyhow::Result<Self> {
        let secret = match &config.tunnel.state_dir {
            Some(directory) => reset_secret::read_or_create(directory)
                .map_err(|error| config.source.error("tunnel.state_dir", error.to_string()))?,
            None => {
                tracing::warn!(
                    "tunnel.state_dir is not set: after a restart clients wait for tunnel.idle_timeout_s until \
                     they connect again, because this server can't reset their old connections"
                );
                reset_secret::random()
            }
        };
        Ok(Self::with_secret(config, &secret)?)
    }

    fn with_secret(config: &ServerConfig, secret: &ResetSecret) -> Result<Self, ConfigError> {
        let instance: Vec<_> = config.tunnel.listen.iter().map(ToString::to_string).collect();
        let reset = StatelessReset::new(secret, &instance.join(" "))
            .map_err(|error| config.source.error("tunnel.state_dir", error.to_string()))?;
        Ok(Self { ticket_keys: TicketKeys::new(config.tunnel.session_tickets), reset })
    }
}

/// What new connections are made with, for each worker. Sessions of before go on: their certificates are
/// verified against the authorities and the deny-list of `config`.
pub(crate) fn tunnels(
    config: &ServerConfig,
    workers: usize,
    trust: &Trust,
    initial: Option<&Algorithm>,
) -> Result<Vec<TunnelConfig>, ConfigError> {
    let side = Side::Server(ServerSide {
        max_streams: config.limits.max_flows_per_connection as u64,
        ticket_keys: &trust.ticket_keys,
        denied_clients: &Arc::new(config.denied_clients()?),
        reset: &trust.reset,
    });
    let tunnel = |_| {
        TunnelConfig::new(side, &config.tunnel.transport, &config.tunnel.credentials, initial)
            .map_err(|error| error.in_config(&config.source, "client_ca"))
    };
    (0..workers).map(tunnel).collect()
}

pub(crate) fn server_shared(
    config: &ServerConfig,
    resolver: Resolver,
    initial: Option<&Algorithm>,
) -> anyhow::Result<ServerShared> {
    let own = InterfaceAddresses::read().context("can't read the addresses of the interfaces")?;
    let acl = |protocol| Acl::of(protocol, &config.allow, own.addresses());
    Ok(ServerShared {
        own: own.clone(),
        acl: acl(Protocol::Tcp),
        udp_acl: acl(Protocol::Udp),
        dial: config.dial.clone(),
        resolver,
        resolve_timeout: config.resolver.timeout,
        algorithms: Algorithms::new(&config.tunnel.transport, initial)?,
        selectable: Selectable::new(
            config.tunnel.selectable_congestion_control.as_deref(),
            initial,
        )?,
    })
}

pub(crate) fn settings(config: &ServerConfig, workers: usize) -> WorkerSettings {
    WorkerSettings {
        flow_idle_timeout: config.limits.flow_idle_timeout,
        half_close_timeout: config.limits.half_close_timeout,
        udp_idle_timeout: config.limits.udp_idle_timeout,
        tcp_timeouts: config.limits.tcp_timeouts,
        handshake_timeout: Some(config.limits.handshake_timeout),
        keepalive: None,
        max_connection_window_bytes: config.tunnel.transport.max_connection_window_bytes,
        max_connections: config.limits.max_connections,
        max_unanswered_udp_flows: config.limits.max_unanswered_udp_flows.div_ceil(workers),
    }
}

/// Flows, and how they are shared.
pub(crate) fn flow_limits(limits: &ServerLimits) -> FlowLimits {
    FlowLimits {
        max_flows: limits.max_flows,
        share_per_viewer: limits.flow_share_per_viewer,
        share_per_client: limits.flow_share_per_client,
        max_rtsp_port_pairs: limits.max_rtsp_port_pairs,
        rtsp_share_per_viewer: limits.rtsp_share_per_viewer,
        ..FlowLimits::default()
    }
}

/// What one client may take.
pub(crate) fn peer_limits(limits: &ServerLimits) -> peer_limits::Limits {
    peer_limits::Limits {
        handshakes: limits.max_unauthenticated_handshakes,
        handshake_share_per_address: limits.handshake_share_per_address,
        balancers: limits.balancers.clone(),
        retry_from_handshakes: limits.retry_from_handshakes,
        handshakes_per_address: limits.max_handshakes_per_address,
        handshakes_per_address_per_s: limits.handshakes_per_address_per_s as f64,
        connections_per_peer: limits.max_connections_per_peer,
        flows_per_peer: limits.max_flows_per_peer,
        memory_per_peer_bytes: limits.memory_per_peer_bytes,
    }
}
