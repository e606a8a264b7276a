//! What the parts of a server are made with, from its configuration.

use std::sync::Arc;

use anyhow::Context;
use millrace_admission::flow_admission::FlowLimits;
use millrace_admission::peer_limits;
use millrace_cc::registry::Algorithm;
use millrace_config::{Acl, ConfigError, Protocol, ServerConfig, ServerLimits};
use millrace_tunnel::algorithms::{Algorithms, Selectable};
use millrace_tunnel::event_loop::WorkerSettings;
use millrace_tunnel::own_addresses::InterfaceAddresses;
use millrace_tunnel::resolve::Resolver;
use millrace_tunnel::transport::{ServerSide, TransportSide, TunnelConfig};

use crate::shared::ServerShared;
use crate::trust::Trust;

/// The file that commands read without `--config`: that of the systemd unit and of the image.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/millrace/server.toml";

/// What new connections are made with, for each worker. Earlier sessions stay valid: their certificates are
/// verified against the authorities and the deny-list of `config`.
pub(crate) fn tunnels(
    config: &ServerConfig,
    workers: usize,
    trust: &Trust,
    initial: Option<&Algorithm>,
) -> Result<Vec<TunnelConfig>, ConfigError> {
    let side = TransportSide::Server(ServerSide {
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
        interleaved_queue: config.rtsp.interleaved_queue,
        algorithms: Algorithms::new(&config.tunnel.transport, initial)?,
        selectable: Selectable::new(
            config.tunnel.selectable_congestion_control.as_deref(),
            initial,
        )?,
    })
}

/// What keeps its workers going.
pub(crate) fn worker(config: &ServerConfig, workers: usize) -> WorkerSettings {
    WorkerSettings {
        flow_idle_timeout: config.limits.flow_idle_timeout,
        half_close_timeout: config.limits.half_close_timeout,
        udp_idle_timeout: config.limits.udp_idle_timeout,
        tcp_timeouts: config.limits.tcp_timeouts,
        handshake_timeout: Some(config.limits.handshake_timeout),
        keepalive: None,
        max_connection_window_bytes: config.tunnel.transport.max_connection_window_bytes,
        caps_player_rates: config.dash.rate_cap,
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
        handshake_share_per_source_ip: limits.handshake_share_per_source_ip,
        balancers: limits.balancers.clone(),
        retry_threshold_handshakes: limits.retry_threshold_handshakes,
        handshakes_per_address: limits.max_handshakes_per_source_ip,
        handshake_rate_per_source_ip: limits.handshake_rate_per_source_ip as f64,
        connections_per_peer: limits.max_connections_per_client,
        flows_per_peer: limits.max_flows_per_client,
        memory_per_client_bytes: limits.memory_per_client_bytes,
    }
}
