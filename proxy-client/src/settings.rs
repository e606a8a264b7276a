//! Derives the settings of the parts of a client from its configuration.

use millrace_admission::flow_admission::FlowLimits;
use millrace_admission::peer_limits;
use millrace_cc::registry::Algorithm;
use millrace_config::ClientConfig;
use millrace_tunnel::event_loop::WorkerSettings;
use millrace_tunnel::transport::{TransportSide, TunnelConfig};

/// The file that commands read without `--config`: that of the systemd unit and of the image.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/millrace/client.toml";

/// Settings of new tunnel connections, one per worker.
pub(crate) fn tunnels(
    config: &ClientConfig,
    workers: usize,
    initial: Option<&Algorithm>,
) -> anyhow::Result<Vec<TunnelConfig>> {
    let ends = &config.tunnel;
    let tunnel = |_| {
        TunnelConfig::new(TransportSide::Client, &ends.transport, &ends.credentials, initial)
            .map_err(|error| error.in_config(&config.source, "ca").into())
    };
    (0..workers).map(tunnel).collect()
}

/// Settings of the workers.
pub(crate) fn worker(config: &ClientConfig) -> WorkerSettings {
    WorkerSettings {
        flow_idle_timeout: config.limits.flow_idle_timeout,
        half_close_timeout: config.limits.half_close_timeout,
        udp_idle_timeout: config.limits.udp_idle_timeout,
        tcp_timeouts: config.limits.tcp_timeouts,
        handshake_timeout: None,
        keepalive: Some(config.tunnel.keepalive),
        max_connection_window_bytes: config.tunnel.transport.max_connection_window_bytes,
        caps_player_rates: false,
        max_connections: 0,
        max_unanswered_udp_flows: config
            .limits
            .max_unanswered_udp_flows
            .div_ceil(config.runtime.worker_count()),
    }
}

/// Limits of flows and their shares.
pub(crate) fn flow_limits(config: &ClientConfig) -> FlowLimits {
    let limits = &config.limits;
    FlowLimits {
        max_flows: limits.max_flows,
        share_per_viewer: limits.flow_share_per_viewer,
        share_per_listener: limits.flow_share_per_listener,
        max_rtsp_port_pairs: limits.max_rtsp_port_pairs,
        rtsp_share_per_viewer: limits.rtsp_share_per_viewer,
        ..FlowLimits::default()
    }
}

/// Limits per client address.
pub(crate) fn peer_limits(config: &ClientConfig) -> peer_limits::Limits {
    peer_limits::Limits {
        handshakes_per_address: config.limits.max_handshakes_per_source_ip,
        ..peer_limits::Limits::default()
    }
}
