//! `[limits]` of a server.

use std::time::Duration;

use serde::Deserialize;

use crate::network::Network;
use crate::value::Int;
use crate::{ConfigError, Networks, Source, TcpTimeouts, TransportConfig};

/// `[limits]` of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// QUIC connections at a time, 1 to 1000000; default 20000. More are refused.
    pub max_connections: usize,
    /// Flows at a time over all connections, 1 to 1000000; default 20000. More are refused; each
    /// takes a descriptor and buffers.
    pub max_flows: usize,
    /// Flows that one client, known by the common name in its certificate, may have under
    /// contention, 1 to 1000000; default 1000.
    pub flow_share_per_client: usize,
    /// Flows that one viewer address of a client may have under contention, 1 to 1000000; default
    /// 100.
    pub flow_share_per_viewer: usize,
    /// UDP flows at a time without a reply, 1 to 1000000; default 2000. New flows evict the oldest.
    pub max_unanswered_udp_flows: usize,
    /// Flows at a time on one connection, 1 to `max_flows`, which is the default. Too small refuses flows of
    /// a busy client edge; too large lets one edge take all.
    pub max_flows_per_connection: usize,
    /// QUIC handshakes under way of all clients that are not authenticated yet, 1 to 1000000;
    /// default 1024. More are dropped; each takes about 28 KiB.
    pub max_unauthenticated_handshakes: usize,
    /// Of these, what one IPv4 address or IPv6 /64 may have under contention, 1 to 1000000;
    /// default 16.
    pub handshake_share_per_source_ip: usize,
    /// Networks of load balancers, each of whose ports counts as an address; default none.
    pub balancers: Networks,
    /// QUIC handshakes under way from which on new clients have to prove their address first
    /// (Retry, RFC 9000 §8.1.2), 0 to 1000000; default 64. 0 asks every client. Too small costs a
    /// round trip when many clients come at once; too large keeps state for forged addresses.
    pub retry_threshold_handshakes: usize,
    /// QUIC handshakes under way from one IPv4 address or IPv6 /64, 1 to 100000; default 256. More
    /// are dropped. Too small delays many clients behind one address.
    pub max_handshakes_per_source_ip: usize,
    /// New QUIC handshakes a second from one IPv4 address or IPv6 /64, after as many at once as may
    /// be under way, 1 to 100000; default 100. One that authenticates the client counts as a tenth.
    /// Too large lets one address take all processor time.
    pub handshake_rate_per_source_ip: usize,
    /// QUIC connections at a time of one client, known by the common name in its certificate, 1 to
    /// `max_connections`, which is the default. More are closed.
    pub max_connections_per_client: usize,
    /// Flows at a time of one client over all its connections, 1 to `max_flows`, which is the
    /// default. More are refused.
    pub max_flows_per_client: usize,
    /// What one client's connections hold together, 1 MB up to `tunnel.memory_cap_mb`, which is the
    /// default. Beyond it those of its flows that their readers drain slowest are reset, and new
    /// connections are closed.
    pub memory_per_client_bytes: u64,
    /// How long a QUIC handshake may take, 1 s to 5 min; default 10 s.
    pub handshake_timeout: Duration,
    /// Silence in both directions after which a flow is reset, 10 s to 7 days; default 1 h.
    pub flow_idle_timeout: Duration,
    /// Silence of the other direction after one has ended, 1 s to 1 day; default 5 min.
    pub half_close_timeout: Duration,
    /// When TCP peers that have disappeared are given up.
    pub tcp_timeouts: TcpTimeouts,
    /// Silence in both directions after which a UDP flow ends, 1 s to 1 day; default 2 min, and
    /// RFC 9298 §3.1 advises against less. Too large keeps dead flows: UDP has no other end.
    pub udp_idle_timeout: Duration,
    /// Pairs of UDP ports (RTP and RTCP) at a time for what RTSP connections set up,
    /// 0 to 10000; default 1000. Beyond it, and with 0, a SETUP of media over UDP is answered 461, so
    /// that the player uses the RTSP connection. Each takes two descriptors and two ports.
    pub max_rtsp_port_pairs: usize,
    /// Of these, what one viewer address may have under contention, 1 to 10000; default 16.
    pub rtsp_share_per_viewer: usize,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawServerLimits {
    max_connections: Int<20_000, 1, 1_000_000>,
    max_flows: Int<20_000, 1, 1_000_000>,
    flow_share_per_client: Int<1000, 1, 1_000_000>,
    flow_share_per_viewer: Int<100, 1, 1_000_000>,
    max_unanswered_udp_flows: Int<2000, 1, 1_000_000>,
    max_flows_per_connection: Option<Int<20_000, 1, 1_000_000>>,
    max_unauthenticated_handshakes: Int<1024, 1, 1_000_000>,
    handshake_share_per_source_ip: Int<16, 1, 1_000_000>,
    balancers: Vec<Network>,
    retry_threshold_handshakes: Int<64, 0, 1_000_000>,
    max_handshakes_per_source_ip: Int<256, 1, 100_000>,
    handshake_rate_per_source_ip: Int<100, 1, 100_000>,
    max_connections_per_client: Option<Int<20_000, 1, 1_000_000>>,
    max_flows_per_client: Option<Int<20_000, 1, 1_000_000>>,
    memory_per_client_mb: Option<Int<1024, 1, 1_000_000>>,
    handshake_timeout_s: Int<10, 1, 300>,
    flow_idle_timeout_s: Int<3600, 10, 604_800>,
    half_close_timeout_s: Int<300, 1, 86_400>,
    tcp_user_timeout_s: Int<60, 1, 86_400>,
    tcp_probe_timeout_s: Int<300, 5, 86_400>,
    udp_idle_timeout_s: Int<120, 1, 86_400>,
    max_rtsp_port_pairs: Int<1000, 0, 10_000>,
    rtsp_share_per_viewer: Int<16, 1, 10_000>,
}

impl RawServerLimits {
    pub(crate) fn check(
        self,
        source: &Source,
        transport: &TransportConfig,
    ) -> Result<ServerLimits, ConfigError> {
        let max_flows = self.max_flows.get();
        let max_connections = self.max_connections.get();
        let limits = ServerLimits {
            max_connections,
            max_flows,
            flow_share_per_client: self.flow_share_per_client.get(),
            flow_share_per_viewer: self.flow_share_per_viewer.get(),
            max_unanswered_udp_flows: self.max_unanswered_udp_flows.get(),
            max_unauthenticated_handshakes: self.max_unauthenticated_handshakes.get(),
            handshake_share_per_source_ip: self.handshake_share_per_source_ip.get(),
            balancers: Networks::check(self.balancers, "limits.balancers", source)?,
            max_flows_per_connection: self
                .max_flows_per_connection
                .map_or(max_flows, |set| set.get()),
            retry_threshold_handshakes: self.retry_threshold_handshakes.get(),
            max_handshakes_per_source_ip: self.max_handshakes_per_source_ip.get(),
            handshake_rate_per_source_ip: self.handshake_rate_per_source_ip.get(),
            max_connections_per_client: self
                .max_connections_per_client
                .map_or(max_connections, |set| set.get()),
            max_flows_per_client: self.max_flows_per_client.map_or(max_flows, |set| set.get()),
            memory_per_client_bytes: self
                .memory_per_client_mb
                .map_or(transport.memory_cap_bytes, |set| set.get::<u64>() * 1_000_000),
            handshake_timeout: self.handshake_timeout_s.seconds(),
            flow_idle_timeout: self.flow_idle_timeout_s.seconds(),
            half_close_timeout: self.half_close_timeout_s.seconds(),
            tcp_timeouts: TcpTimeouts {
                user: self.tcp_user_timeout_s.seconds(),
                probe: self.tcp_probe_timeout_s.seconds(),
            },
            udp_idle_timeout: self.udp_idle_timeout_s.seconds(),
            max_rtsp_port_pairs: self.max_rtsp_port_pairs.get(),
            rtsp_share_per_viewer: self.rtsp_share_per_viewer.get(),
        };
        let memory_cap_bytes = transport.memory_cap_bytes;
        let within = [
            ("max_flows_per_connection", limits.max_flows_per_connection, "max_flows", max_flows),
            ("max_flows_per_client", limits.max_flows_per_client, "max_flows", max_flows),
            (
                "max_connections_per_client",
                limits.max_connections_per_client,
                "max_connections",
                max_connections,
            ),
        ];
        for (part, set, whole, most) in within {
            if set > most {
                let problem = format!("{set} must not be more than limits.{whole}, {most}");
                return Err(source.error(&format!("limits.{part}"), problem));
            }
        }
        if limits.memory_per_client_bytes > memory_cap_bytes {
            let problem = format!(
                "{} must not be more than tunnel.memory_cap_mb, {}",
                limits.memory_per_client_bytes / 1_000_000,
                memory_cap_bytes / 1_000_000
            );
            return Err(source.error("limits.memory_per_client_mb", problem));
        }
        Ok(limits)
    }
}
