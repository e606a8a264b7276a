//! Settings of a worker.

use std::time::Duration;

use millrace_config::TcpTimeouts;

/// Time-outs and limits of a worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// Silence in both directions after which a flow is reset.
    pub flow_idle_timeout: Duration,
    /// Silence of the open direction after which a half-closed flow is reset.
    pub half_close_timeout: Duration,
    /// Silence in both directions after which a UDP flow ends.
    pub udp_idle_timeout: Duration,
    /// When TCP peers that have disappeared are given up.
    pub tcp_timeouts: TcpTimeouts,
    /// How long a peer's handshake may take; for servers.
    pub handshake_timeout: Option<Duration>,
    /// Interval of packets that keep a silent connection alive; the client's task.
    pub keepalive: Option<Duration>,
    /// Largest receive window of a connection.
    pub max_connection_window_bytes: u64,
    /// Whether the rates of players' flows are capped; for servers.
    pub caps_player_rates: bool,
    /// Connections that peers may open, over all workers; none at a client.
    pub max_connections: usize,
    /// UDP flows without a reply so far.
    pub max_unanswered_udp_flows: usize,
}
