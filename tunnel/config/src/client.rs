//! `client.toml`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::allow::{RawAllowDirect, check_allow};
use crate::common::{RawAdmin, RawCredentials, RawRuntime};
use crate::enrolment::RawClientEnrolment;
use crate::listen::{RawListen, check_listeners};
use crate::mcc::RawTelemetry;
use crate::otlp::RawOtlp;
use crate::resolver::RawResolver;
use crate::servers::{RawServer, TunnelServer, check_servers};
use crate::transport::tunnel_section;
use crate::value::{Host, Int};
use crate::{
    Admin, Allow, CheckAlgorithm, ClientEnrolment, ConfigError, CongestionControl, Credentials,
    Listen, Log, Mcc, Otlp, ResolverSettings, Runtime, Source, TcpTimeouts, Telemetry,
    TransportConfig,
};

/// A whole client configuration, checked.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `[tunnel]`
    pub tunnel: ClientTunnel,
    /// `[enrolment]`; without `server` the certificate is not renewed.
    pub enrolment: Option<ClientEnrolment>,
    /// `[[listen]]`, at least one.
    pub listen: Vec<Listen>,
    /// `[[direct.allow]]`: where flows may be connected to directly, beside what was
    /// intercepted; empty unless a listener needs it. See [`crate::FailMode::Open`].
    pub direct: Vec<Allow>,
    /// `[resolver]`
    pub resolver: ResolverSettings,
    /// `[mcc]`; without the table, its defaults if an algorithm is `"mcc"`, otherwise `None`.
    pub mcc: Option<Mcc>,
    /// `[telemetry]`; without `dir` nothing is written.
    pub telemetry: Option<Telemetry>,
    /// `[otlp]`; without `endpoint` nothing is exported.
    pub otlp: Option<Otlp>,
    /// `[limits]`
    pub limits: ClientLimits,
    /// `[runtime]`
    pub runtime: Runtime,
    /// `[admin]`, by default 127.0.0.1:9464.
    pub admin: Admin,
    /// `[log]`
    pub log: Log,
    /// The text this came from, for errors that show up later.
    pub source: Source,
}

/// `[tunnel]` of a client: where the servers are and how to reach them.
#[derive(Clone, Debug)]
pub struct ClientTunnel {
    /// Servers, at least one.
    pub servers: Vec<TunnelServer>,
    /// Keys `ca`, `certificate` and `private_key`.
    pub credentials: Credentials,
    /// How flows share connections; default `shared`.
    pub connections: Connections,
    /// Interval of keepalive packets, 1 s to 5 min and below the idle timeout; default 10 s. Too
    /// small costs packets; too large lets NAT entries and idle connections expire.
    pub keepalive: Duration,
    /// Silence after which a server is asked whether it is still there, 50 ms to 60 s; default
    /// 500 ms. Too small costs packets; too large leaves no time to ask before `health_timeout`.
    pub health_interval: Duration,
    /// How long a server may leave that question unanswered, and a new one its first packet, 100 ms
    /// to 5 min and more than `health_interval`; default 1.5 s. Then it gets no new flows until it
    /// answers. Too small skips servers for outages too short to notice; too large lets new flows
    /// wait for a dead server.
    pub health_timeout: Duration,
    /// Interval of health probes on a connection with flows, three times that without, 1 s to 10 min;
    /// default 5 s; `None`, written 0, for none. A probe is a request and an answer of 4 KiB each. Too small
    /// costs bytes; too large leaves a path that passes small packets only unnoticed for that long.
    pub probe_interval: Option<Duration>,
    /// How long one attempt to connect may take, 1 s to 2 min; default 10 s. Too small never
    /// succeeds on slow paths.
    pub connect_timeout: Duration,
    /// `SO_MARK` of the tunnel's sockets, by which firewall rules let them pass; `None`, written
    /// 0, sets none. Default 0x4d52. A mark needs `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
    /// Pause before the first attempt to reconnect, 10 ms to 60 s; default 100 ms. It doubles
    /// with each failure, up to `reconnect_max`.
    pub reconnect_min: Duration,
    /// Longest pause between attempts, 1 s to 5 min; default 1 s. Too small loads a server that
    /// recovers; too large wastes time after it has.
    pub reconnect_max: Duration,
    /// The keys that the server has too.
    pub transport: TransportConfig,
}

/// How flows share QUIC connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// One connection for each class and server: least state, one congestion window.
    Shared,
    /// One connection for each flow: congestion control of its own, at the price of memory.
    PerFlow {
        /// Idle connections kept ready, 0 to 64; default 1. With 0 each flow waits for a
        /// handshake; each more costs memory at both ends.
        warm: usize,
    },
}

/// `[limits]` of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Flows at a time, 1 to 1000000; default 20000. More are refused; each takes a descriptor
    /// and buffers.
    pub max_flows: usize,
    /// Flows that one listener may have under contention, 1 to 1000000; default 1000.
    pub flow_share_per_listener: usize,
    /// Flows that one viewer address may have under contention, 1 to 1000000; default 100.
    pub flow_share_per_viewer: usize,
    /// UDP flows at a time without a reply, 1 to 1000000; default 2000. New flows evict the oldest.
    pub max_unanswered_udp_flows: usize,
    /// Accepted connections of one client address that have not named their destination yet, 1 to
    /// 1000000; default 2000. More are reset. Too large lets one host's silent connections take all
    /// of `max_flows`.
    pub max_handshakes_per_source_ip: usize,
    /// How long a PROXY, CONNECT or SOCKS header may take, 1 s to 5 min; default 10 s. Too small
    /// refuses slow clients; too large lets silent ones hold slots.
    pub handshake_timeout: Duration,
    /// Silence in both directions after which a flow is reset, 10 s to 7 days; default 1 h. Too
    /// small ends paused players; too large keeps dead flows.
    pub flow_idle_timeout: Duration,
    /// Silence of the other direction after one has ended, 1 s to 1 day; default 5 min. Too small
    /// cuts off slow answers; too large keeps abandoned flows.
    pub half_close_timeout: Duration,
    /// When TCP peers that have disappeared are given up.
    pub tcp_timeouts: TcpTimeouts,
    /// Silence in both directions after which a UDP flow is forgotten, 1 s to 1 day; default
    /// 2 min. Too small makes a new flow, with another source port, of the next datagram; too
    /// large keeps dead flows.
    pub udp_idle_timeout: Duration,
    /// Pairs of UDP ports (RTP and RTCP) at a time for what RTSP players set up, 0 to
    /// 10000; default 1000. Beyond it, and with 0, a SETUP of media over UDP is answered 461, so that the player
    /// uses the RTSP connection. Each takes two descriptors and two ports.
    pub max_rtsp_port_pairs: usize,
    /// Of these, what one viewer address may have under contention, 1 to 10000; default 16.
    pub rtsp_share_per_viewer: usize,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClientConfig {
    tunnel: RawClientTunnel,
    #[serde(default)]
    enrolment: RawClientEnrolment,
    #[serde(default)]
    listen: Vec<RawListen>,
    #[serde(default)]
    direct: RawDirect,
    #[serde(default)]
    resolver: RawResolver,
    mcc: Option<Mcc>,
    #[serde(default)]
    telemetry: RawTelemetry,
    #[serde(default)]
    otlp: RawOtlp,
    #[serde(default)]
    limits: RawClientLimits,
    #[serde(default)]
    runtime: RawRuntime,
    #[serde(default)]
    admin: RawAdmin,
    #[serde(default)]
    log: Log,
}

tunnel_section! {
    struct RawClientTunnel {
        servers: Vec<RawServer>,
        server_name: Host,
        ca: PathBuf,
        certificate: PathBuf,
        private_key: PathBuf,
        #[serde(default)]
        connections: RawConnections,
        idle_connections_per_server: Option<Int<1, 0, 64>>,
        #[serde(default)]
        keepalive_s: Int<10, 1, 300>,
        #[serde(default)]
        health_interval_ms: Int<500, 50, 60_000>,
        #[serde(default)]
        health_timeout_ms: Int<1500, 100, 300_000>,
        #[serde(default)]
        probe_interval_s: Int<5, 0, 600>,
        #[serde(default)]
        connect_timeout_s: Int<10, 1, 120>,
        #[serde(default)]
        mark: Int<0x4d52, 0, 0xffff_ffff>,
        #[serde(default)]
        reconnect_min_ms: Int<100, 10, 60_000>,
        #[serde(default)]
        reconnect_max_s: Int<1, 1, 300>,
    }
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawConnections {
    #[default]
    Shared,
    PerFlow,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawDirect {
    allow: Vec<RawAllowDirect>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawClientLimits {
    max_flows: Int<20_000, 1, 1_000_000>,
    flow_share_per_listener: Int<1000, 1, 1_000_000>,
    flow_share_per_viewer: Int<100, 1, 1_000_000>,
    max_unanswered_udp_flows: Int<2000, 1, 1_000_000>,
    max_handshakes_per_source_ip: Int<2000, 1, 1_000_000>,
    handshake_timeout_s: Int<10, 1, 300>,
    flow_idle_timeout_s: Int<3600, 10, 604_800>,
    half_close_timeout_s: Int<300, 1, 86_400>,
    tcp_user_timeout_s: Int<60, 1, 86_400>,
    tcp_probe_timeout_s: Int<300, 5, 86_400>,
    udp_idle_timeout_s: Int<120, 1, 86_400>,
    max_rtsp_port_pairs: Int<1000, 0, 10_000>,
    rtsp_share_per_viewer: Int<16, 1, 10_000>,
}

impl ClientConfig {
    /// Where the admin listener is by default.
    pub const ADMIN_ADDRESS: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

    pub(crate) fn from_source(
        source: Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<Self, ConfigError> {
        let raw: RawClientConfig = source.deserialize()?;
        let direct = check_allow(
            raw.direct.allow.into_iter().map(Into::into).collect(),
            "direct.allow",
            &source,
        )?;
        let tunnel = raw.tunnel.check(&source, known)?;
        let listen = check_listeners(raw.listen, &direct, &source, known)?;
        let managed =
            |it: &Listen| it.congestion_control.as_ref().is_some_and(CongestionControl::managed);
        let asks = tunnel.transport.asks_for_mcc() || listen.iter().any(managed);
        let telemetry = raw.telemetry.resolve(&source);
        Ok(Self {
            enrolment: raw.enrolment.check(&tunnel.servers),
            tunnel,
            listen,
            direct,
            resolver: raw.resolver.check(&source)?,
            // Telemetry records what the Selector receives.
            mcc: Mcc::of_file(raw.mcc, asks || telemetry.is_some(), &source),
            telemetry,
            otlp: raw.otlp.check(&source)?,
            limits: ClientLimits {
                max_flows: raw.limits.max_flows.get(),
                flow_share_per_listener: raw.limits.flow_share_per_listener.get(),
                flow_share_per_viewer: raw.limits.flow_share_per_viewer.get(),
                max_unanswered_udp_flows: raw.limits.max_unanswered_udp_flows.get(),
                max_handshakes_per_source_ip: raw.limits.max_handshakes_per_source_ip.get(),
                handshake_timeout: raw.limits.handshake_timeout_s.seconds(),
                flow_idle_timeout: raw.limits.flow_idle_timeout_s.seconds(),
                half_close_timeout: raw.limits.half_close_timeout_s.seconds(),
                tcp_timeouts: TcpTimeouts {
                    user: raw.limits.tcp_user_timeout_s.seconds(),
                    probe: raw.limits.tcp_probe_timeout_s.seconds(),
                },
                udp_idle_timeout: raw.limits.udp_idle_timeout_s.seconds(),
                max_rtsp_port_pairs: raw.limits.max_rtsp_port_pairs.get(),
                rtsp_share_per_viewer: raw.limits.rtsp_share_per_viewer.get(),
            },
            runtime: raw.runtime.check(&source)?,
            admin: raw.admin.check(&source, Self::ADMIN_ADDRESS)?,
            log: raw.log,
            source,
        })
    }

    /// Checks that the certificate files can be read and hold PEM of the right kind.
    ///
    /// # Errors
    /// The first file for which that is not so, with the line that names it.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        self.tunnel.credentials.check_files(&self.source, "ca")?;
        for (index, listen) in self.listen.iter().enumerate() {
            let checked = listen.proxy_users().map(drop);
            let key = format!("listen[{index}].credentials_file");
            checked.map_err(|error| self.source.error(&key, error.to_string()))?;
        }
        self.otlp.as_ref().map_or(Ok(()), |otlp| otlp.check_files(&self.source))?;
        self.admin.check_files(&self.source)
    }
}

impl RawClientTunnel {
    fn check(
        mut self,
        source: &Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<ClientTunnel, ConfigError> {
        let transport = self.transport(source, known)?;
        let connections = match (self.connections, self.idle_connections_per_server) {
            (RawConnections::Shared, None) => Connections::Shared,
            (RawConnections::PerFlow, warm) => {
                Connections::PerFlow { warm: warm.unwrap_or_default().get() }
            }
            (RawConnections::Shared, Some(_)) => {
                let problem = "only connections = \"per_flow\" keeps idle connections; remove it";
                return Err(source.error("tunnel.idle_connections_per_server", problem));
            }
        };
        let tunnel = ClientTunnel {
            credentials: RawCredentials {
                ca_key: "ca",
                ca: &self.ca,
                certificate: &self.certificate,
                private_key: &self.private_key,
            }
            .resolve(source)?,
            servers: check_servers(self.servers, &self.server_name, source)?,
            connections,
            keepalive: self.keepalive_s.seconds(),
            health_interval: self.health_interval_ms.milliseconds(),
            health_timeout: self.health_timeout_ms.milliseconds(),
            probe_interval: Some(self.probe_interval_s.seconds()).filter(|it| !it.is_zero()),
            connect_timeout: self.connect_timeout_s.seconds(),
            mark: Some(self.mark.get()).filter(|mark| *mark != 0),
            reconnect_min: self.reconnect_min_ms.milliseconds(),
            reconnect_max: self.reconnect_max_s.seconds(),
            transport,
        };
        if tunnel.keepalive >= tunnel.transport.idle_timeout {
            let problem = format!(
                "{:?} must be less than tunnel.idle_timeout_s, {:?}",
                tunnel.keepalive, tunnel.transport.idle_timeout
            );
            return Err(source.error("tunnel.keepalive_s", problem));
        }
        if tunnel.health_interval >= tunnel.health_timeout {
            let problem = format!(
                "{:?} must be less than tunnel.health_timeout_ms, {:?}",
                tunnel.health_interval, tunnel.health_timeout
            );
            return Err(source.error("tunnel.health_interval_ms", problem));
        }
        if tunnel.reconnect_min > tunnel.reconnect_max {
            let problem = format!(
                "{:?} must not be more than tunnel.reconnect_max_s, {:?}",
                tunnel.reconnect_min, tunnel.reconnect_max
            );
            return Err(source.error("tunnel.reconnect_min_ms", problem));
        }
        Ok(tunnel)
    }
}
