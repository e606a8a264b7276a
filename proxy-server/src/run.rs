//! From a checked configuration to a running process.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use millrace_config::{Acl, ConfigError, ServerConfig};
use millrace_tunnel::admin::{AdminServer, Health};
use millrace_tunnel::algorithms::{Algorithms, Selectable};
use millrace_tunnel::metrics::Metrics;
use millrace_tunnel::own_addresses::own_addresses;
use millrace_tunnel::process::Process;
use millrace_tunnel::shared::Shared;
use millrace_tunnel::transport::{Side, TICKET_KEY_BYTES, TunnelConfig};
use millrace_tunnel::udp::{PortOptions, UdpPort};
use millrace_tunnel::worker::{Worker, WorkerSettings};
use millrace_tunnel::{limits, logging};

use crate::resolve::Resolver;
use crate::role::{ServerRole, ServerShared};

/// Checks what only the files that a configuration names can tell. Binds nothing.
///
/// # Errors
/// The first thing found wrong.
pub fn check(config: &ServerConfig) -> Result<(), ConfigError> {
    config.check_files()?;
    let side = Side::Server { max_streams: 0, ticket_key: &[0; TICKET_KEY_BYTES] };
    TunnelConfig::new(side, &config.tunnel.transport, &config.tunnel.credentials)
        .map_err(|error| error.in_config(&config.source, "client_ca"))?;
    Ok(())
}

/// Runs until a signal ends it.
///
/// # Errors
/// Whatever keeps the server from starting.
pub fn run(config: &ServerConfig) -> anyhow::Result<ExitCode> {
    logging::init(&config.log)?;
    let mut process = Process::new()?;
    for warning in limits::check(config.limits.max_flows, &config.tunnel.credentials.private_key) {
        tracing::warn!("{warning}");
    }
    let metrics = Metrics::new("millrace-server", env!("CARGO_PKG_VERSION"))?;
    let transport = &config.tunnel.transport;
    let shared = Shared::new(metrics.clone(), transport.memory_cap_bytes, config.limits.max_flows);
    let server = ServerShared {
        acl: Arc::new(Acl::new(config.allow.clone(), own_addresses(&config.tunnel.listen)?)),
        dial: config.dial.clone(),
        resolver: Resolver::start()?,
        algorithms: Arc::new(Algorithms::new(transport)?),
        selectable: Arc::new(Selectable::new(
            config.tunnel.selectable_congestion_control.as_deref(),
        )?),
    };
    let mut ticket_key = [0; TICKET_KEY_BYTES];
    boring::rand::rand_bytes(&mut ticket_key)?;
    let side = Side::Server {
        max_streams: config.limits.max_flows_per_connection as u64,
        ticket_key: &ticket_key,
    };
    let workers = config.runtime.worker_count();
    let settings = WorkerSettings {
        flow_idle_timeout: config.limits.flow_idle_timeout,
        half_close_timeout: config.limits.half_close_timeout,
        handshake_timeout: Some(config.limits.handshake_timeout),
        keepalive: None,
        max_connection_window_bytes: transport.max_connection_window_bytes,
        max_connections: config.limits.max_connections.div_ceil(workers),
    };
    let mut ports = bind(&config.tunnel.listen, workers)?;
    for index in 0..workers {
        let tunnel = TunnelConfig::new(side, transport, &config.tunnel.credentials)?;
        let index = u8::try_from(index).context("at most 256 workers")?;
        let mine = ports.remove(0);
        let (server, shared) = (server.clone(), shared.clone());
        let (worker, handle) = Worker::new(index, tunnel, settings, shared, |handle| {
            ServerRole::new(server, mine, handle)
        })?;
        process.spawn(worker, handle)?;
    }
    let _admin = match config.admin.address {
        Some(address) => {
            let health = Box::new(|| Health::Healthy);
            let admin = AdminServer::start(address, metrics, process.flow_source(), health)
                .with_context(|| format!("can't bind admin.address {address}"))?;
            tracing::info!(address = %admin.address(), what = "admin", "listening");
            Some(admin)
        }
        None => None,
    };
    Ok(process.run(config.runtime.drain_timeout))
}

/// For each worker one socket on each address.
fn bind(addresses: &[SocketAddr], workers: usize) -> anyhow::Result<Vec<Vec<UdpPort>>> {
    let options = PortOptions { shared: workers > 1, mark: None };
    let mut ports: Vec<Vec<UdpPort>> = (0..workers).map(|_| Vec::new()).collect();
    for address in addresses {
        let mut address = *address;
        for mine in &mut ports {
            let port = UdpPort::bind(address, options)
                .with_context(|| format!("can't bind tunnel.listen {address}"))?;
            // Port 0 is the same one for all workers.
            address = port.local();
            mine.push(port);
        }
        if let (Some(last), true) = (ports.last().and_then(|ports| ports.last()), workers > 1) {
            last.steer_by_connection_id(u32::try_from(workers)?)
                .context("can't steer packets to their worker")?;
        }
        tracing::info!(%address, what = "tunnel", workers, "listening");
    }
    Ok(ports)
}
