//! `client.toml`.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::common::{RawAdmin, RawCredentials, RawRuntime};
use crate::congestion_control::RawCongestionControl;
use crate::transport::tunnel_section;
use crate::value::{BindAddress, Host, HostPort, Int};
use crate::{
    Admin, CheckAlgorithm, Class, ConfigError, CongestionControl, Credentials, Log, Runtime,
    Source, Transport,
};

/// A whole client configuration, checked.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `[tunnel]`
    pub tunnel: ClientTunnel,
    /// `[[listen]]`, at least one.
    pub listen: Vec<Listen>,
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
    /// Servers, the preferred one first; at least one.
    pub servers: Vec<HostPort>,
    /// The name that the server's certificate must be for.
    pub server_name: Host,
    /// Keys `ca`, `certificate` and `private_key`.
    pub credentials: Credentials,
    /// How flows share connections; default `shared`.
    pub connections: Connections,
    /// Interval of keepalive packets, 1 s to 5 min and below the idle timeout; default 10 s. Too
    /// small costs packets; too large lets NAT entries and warm connections expire.
    pub keepalive: Duration,
    /// How long one attempt to connect may take, 1 s to 2 min; default 10 s. Too small never
    /// succeeds on slow paths; too large delays the change to the next server.
    pub connect_timeout: Duration,
    /// `SO_MARK` of the tunnel's sockets, by which firewall rules let them pass; `None`, written
    /// 0, sets none. Default 0x4d52. A mark needs `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
    /// Pause before the first attempt to reconnect, 10 ms to 60 s; default 100 ms. It doubles
    /// with each failure, up to `reconnect_max`.
    pub reconnect_min: Duration,
    /// Longest pause between attempts, 1 s to 5 min; default 10 s. Too small loads a server that
    /// recovers; too large wastes time after it has.
    pub reconnect_max: Duration,
    /// The keys that the server has too.
    pub transport: Transport,
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

/// One `[[listen]]`: a door through which flows come in.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// How the destination of a flow is learnt; key `mode`.
    pub interception: Interception,
    /// Key `address` or `unix`.
    pub address: ListenAddress,
    /// The class of its flows; default `bulk`.
    pub class: Class,
    /// The algorithm of its flows instead of their class's. The server is asked for the one of
    /// this name, with the server's parameters.
    pub congestion_control: Option<CongestionControl>,
}

/// How a listener learns where a flow wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interception {
    /// The socket's own address, kept by nftables `tproxy`.
    Tproxy,
    /// `SO_ORIGINAL_DST`, after nftables `redirect`.
    Redirect,
    /// A PROXY protocol header, version 1 or 2.
    ProxyProtocol,
    /// An HTTP/1.1 CONNECT request.
    HttpConnect,
    /// A SOCKS5 CONNECT request (RFC 1928).
    Socks5,
    /// Always the same; key `destination`.
    Fixed {
        /// Where all its flows go.
        destination: HostPort,
    },
}

impl Interception {
    /// The name in configurations and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Tproxy => "tproxy",
            Self::Redirect => "redirect",
            Self::ProxyProtocol => "proxy_protocol",
            Self::HttpConnect => "http_connect",
            Self::Socks5 => "socks5",
            Self::Fixed { .. } => "fixed",
        }
    }
}

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A TCP address; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `[limits]` of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Flows at a time, 1 to 1000000; default 10000. More are refused; each takes a descriptor
    /// and buffers.
    pub max_flows: usize,
    /// How long a PROXY, CONNECT or SOCKS header may take, 1 s to 5 min; default 10 s. Too small
    /// refuses slow clients; too large lets silent ones hold slots.
    pub handshake_timeout: Duration,
    /// Silence in both directions after which a flow is reset, 10 s to 7 days; default 1 h. Too
    /// small ends paused players; too large keeps dead flows.
    pub flow_idle_timeout: Duration,
    /// Silence of the other direction after one has ended, 1 s to 1 day; default 5 min. Too small
    /// cuts off slow answers; too large keeps abandoned flows.
    pub half_close_timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    tunnel: RawTunnel,
    #[serde(default)]
    listen: Vec<RawListen>,
    #[serde(default)]
    limits: RawLimits,
    #[serde(default)]
    runtime: RawRuntime,
    #[serde(default)]
    admin: RawAdmin,
    #[serde(default)]
    log: Log,
}

tunnel_section! {
    struct RawTunnel {
        servers: Vec<HostPort>,
        server_name: Host,
        ca: PathBuf,
        certificate: PathBuf,
        private_key: PathBuf,
        #[serde(default)]
        connections: RawConnections,
        warm_connections: Option<Int<1, 0, 64>>,
        #[serde(default)]
        keepalive_s: Int<10, 1, 300>,
        #[serde(default)]
        connect_timeout_s: Int<10, 1, 120>,
        #[serde(default)]
        mark: Int<0x4d52, 0, 0xffff_ffff>,
        #[serde(default)]
        reconnect_min_ms: Int<100, 10, 60_000>,
        #[serde(default)]
        reconnect_max_s: Int<10, 1, 300>,
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawConnections {
    #[default]
    Shared,
    PerFlow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawListen {
    mode: RawMode,
    address: Option<BindAddress>,
    unix: Option<PathBuf>,
    destination: Option<HostPort>,
    #[serde(default)]
    class: Class,
    congestion_control: Option<RawCongestionControl>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawMode {
    Tproxy,
    Redirect,
    ProxyProtocol,
    HttpConnect,
    Socks5,
    Fixed,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    max_flows: Int<10_000, 1, 1_000_000>,
    handshake_timeout_s: Int<10, 1, 300>,
    flow_idle_timeout_s: Int<3600, 10, 604_800>,
    half_close_timeout_s: Int<300, 1, 86_400>,
}

impl ClientConfig {
    /// Where the admin listener is by default.
    pub const ADMIN_ADDRESS: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

    pub(crate) fn from_source(
        source: Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<Self, ConfigError> {
        let raw: Raw = source.deserialize()?;
        Ok(Self {
            tunnel: raw.tunnel.check(&source, known)?,
            listen: check_listeners(raw.listen, &source, known)?,
            limits: ClientLimits {
                max_flows: raw.limits.max_flows.get(),
                handshake_timeout: raw.limits.handshake_timeout_s.seconds(),
                flow_idle_timeout: raw.limits.flow_idle_timeout_s.seconds(),
                half_close_timeout: raw.limits.half_close_timeout_s.seconds(),
            },
            runtime: raw.runtime.into(),
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
        self.tunnel.credentials.check_files(&self.source, "ca")
    }
}

impl RawTunnel {
    fn check(
        mut self,
        source: &Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<ClientTunnel, ConfigError> {
        if self.servers.is_empty() {
            return Err(source.error("tunnel.servers", "needs at least one \"host:port\""));
        }
        let transport = self.transport(source, known)?;
        let connections = match (self.connections, self.warm_connections) {
            (RawConnections::Shared, None) => Connections::Shared,
            (RawConnections::PerFlow, warm) => {
                Connections::PerFlow { warm: warm.unwrap_or_default().get() }
            }
            (RawConnections::Shared, Some(_)) => {
                let problem = "only connections = \"per_flow\" keeps warm connections; remove it";
                return Err(source.error("tunnel.warm_connections", problem));
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
            servers: self.servers,
            server_name: self.server_name,
            connections,
            keepalive: self.keepalive_s.seconds(),
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

fn check_listeners(
    raw: Vec<RawListen>,
    source: &Source,
    known: CheckAlgorithm<'_>,
) -> Result<Vec<Listen>, ConfigError> {
    if raw.is_empty() {
        return Err(source.error("listen", "needs at least one [[listen]] section"));
    }
    let mut seen = HashSet::new();
    let mut listeners = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("listen[{index}]");
        let listener = raw.check(source, &key, known)?;
        let any_port = matches!(listener.address, ListenAddress::Tcp(at) if at.port() == 0);
        if !any_port && !seen.insert(listener.address.clone()) {
            let problem = format!("{} is used by an earlier [[listen]]", listener.address);
            return Err(source.error(&key, problem));
        }
        listeners.push(listener);
    }
    Ok(listeners)
}

impl RawListen {
    fn check(
        self,
        source: &Source,
        key: &str,
        known: CheckAlgorithm<'_>,
    ) -> Result<Listen, ConfigError> {
        let kernel_tells = matches!(self.mode, RawMode::Tproxy | RawMode::Redirect);
        let address = match (self.address, self.unix) {
            (Some(address), None) => ListenAddress::Tcp(address.0),
            (None, Some(_)) if kernel_tells => {
                let problem = "modes tproxy and redirect intercept TCP and need `address`; a Unix \
                               socket works with proxy_protocol, http_connect, socks5 and fixed";
                return Err(source.error(&format!("{key}.unix"), problem));
            }
            (None, Some(path)) => ListenAddress::Unix(source.resolve(&path)),
            (None, None) => {
                let problem = "needs `address = \"IP:PORT\"` or `unix = \"PATH\"`";
                return Err(source.error(key, problem));
            }
            (Some(_), Some(_)) => {
                let problem = "has both `address` and `unix`; write two [[listen]] sections";
                return Err(source.error(&format!("{key}.unix"), problem));
            }
        };
        let interception = match (self.mode, self.destination) {
            (RawMode::Fixed, Some(destination)) => Interception::Fixed { destination },
            (RawMode::Fixed, None) => {
                let problem = "mode fixed needs `destination = \"HOST:PORT\"`";
                return Err(source.error(key, problem));
            }
            (_, Some(_)) => {
                let problem = "only mode fixed has a destination; the others learn it per flow";
                return Err(source.error(&format!("{key}.destination"), problem));
            }
            (RawMode::Tproxy, None) => Interception::Tproxy,
            (RawMode::Redirect, None) => Interception::Redirect,
            (RawMode::ProxyProtocol, None) => Interception::ProxyProtocol,
            (RawMode::HttpConnect, None) => Interception::HttpConnect,
            (RawMode::Socks5, None) => Interception::Socks5,
        };
        let congestion_control = match self.congestion_control {
            Some(raw) => Some(raw.check(source, &format!("{key}.congestion_control"), known)?),
            None => None,
        };
        Ok(Listen { interception, address, class: self.class, congestion_control })
    }
}
