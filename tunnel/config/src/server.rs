//! `server.toml`.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use crate::common::{RawAdmin, RawCredentials, RawRuntime};
use crate::congestion_control::RawCongestionControl;
use crate::transport::tunnel_section;
use crate::value::{BindAddress, Host, Int, from_string};
use crate::{
    Admin, CheckAlgorithm, ConfigError, CongestionControl, Credentials, Log, Runtime, Source,
    Transport,
};

/// A whole server configuration, checked.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `[tunnel]`
    pub tunnel: ServerTunnel,
    /// `[[destinations.allow]]`; empty refuses every destination. See [`crate::Acl`].
    pub allow: Vec<Allow>,
    /// `[dial]`
    pub dial: Dial,
    /// `[limits]`
    pub limits: ServerLimits,
    /// `[runtime]`
    pub runtime: Runtime,
    /// `[admin]`, by default 127.0.0.1:9465.
    pub admin: Admin,
    /// `[log]`
    pub log: Log,
    /// The text this came from, for errors that show up later.
    pub source: Source,
}

/// `[tunnel]` of a server.
#[derive(Clone, Debug)]
pub struct ServerTunnel {
    /// UDP addresses to listen on, at least one; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// Keys `client_ca`, `certificate` and `private_key`.
    pub credentials: Credentials,
    /// What a flow may ask for by its name, with the parameters given here; `None`, without the
    /// key, is every algorithm that needs no parameter.
    pub selectable_congestion_control: Option<Vec<CongestionControl>>,
    /// The keys that the client has too.
    pub transport: Transport,
}

/// One `[[destinations.allow]]`: hosts and ports that flows may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// Key `network` or `name`.
    pub host: AllowedHost,
    /// What may go there; default `tcp`. A rule for one says nothing of the other.
    pub protocol: Protocol,
    /// Ports, written as `80` or `"8000-8100"`; at least one.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Dialled instead of the destination, and told viewer and destination by a PROXY header of
    /// version 2; a server edge's nginx.
    pub hand_to: Option<SocketAddr>,
}

/// What a flow is beyond the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// A TCP connection.
    #[default]
    Tcp,
    /// UDP datagrams, by CONNECT-UDP (RFC 9298).
    Udp,
}

/// What one `[[destinations.allow]]` is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHost {
    /// Addresses; a single address is written without prefix length.
    Network(IpNet),
    /// Whatever a flow's own name resolves to when that is this one, as for an origin whose
    /// addresses change. In lower case, without a dot at the end.
    Name(String),
}

/// `[dial]`: how destinations are connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Time for all of it, name resolution included, 1 s to 2 min; default 5 s. Too small fails
    /// far origins; too large keeps clients of dead ones waiting.
    pub timeout: Duration,
    /// Time for one address, 1 s to 2 min and at most `timeout`; default 4 s, or `timeout` if that is
    /// less.
    pub per_address_timeout: Duration,
    /// Start of the next address's attempt after the one before (RFC 8305 §5), 10 ms to 2 s;
    /// default 250 ms. Too small opens connections in vain; too large waits for broken paths.
    pub attempt_delay: Duration,
    /// Source addresses, at most one of each family; without one the system chooses.
    pub bind_source: Vec<IpAddr>,
}

/// `[limits]` of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// QUIC connections at a time, 1 to 1000000; default 10000. More are refused.
    pub max_connections: usize,
    /// Flows at a time over all connections, 1 to 1000000; default 10000. More are refused; each
    /// takes a descriptor and buffers.
    pub max_flows: usize,
    /// Flows at a time on one connection, 1 to `max_flows`, which is the default. Too small refuses flows of
    /// a busy client edge; too large lets one edge take all.
    pub max_flows_per_connection: usize,
    /// QUIC handshakes under way from which on new clients have to prove their address first
    /// (Retry, RFC 9000 §8.1.2), 0 to 1000000; default 64. 0 asks everyone. Too small costs a
    /// round trip when many clients come at once; too large keeps state for forged addresses.
    pub retry_from_handshakes: usize,
    /// QUIC handshakes under way from one IPv4 address or IPv6 /64, 1 to 100000; default 256. More
    /// are dropped. Too small delays many clients behind one address.
    pub max_handshakes_per_address: usize,
    /// New QUIC handshakes a second from one IPv4 address or IPv6 /64, after as many at once as may
    /// be under way, 1 to 100000; default 100. Too large lets one address take all processor time.
    pub handshakes_per_address_per_s: usize,
    /// QUIC connections at a time of one client, known by the common name in its certificate, 1 to
    /// `max_connections`, which is the default. More are closed.
    pub max_connections_per_peer: usize,
    /// Flows at a time of one client over all its connections, 1 to `max_flows`, which is the
    /// default. More are refused.
    pub max_flows_per_peer: usize,
    /// Receive windows of one client's connections together, 1 MB up to `tunnel.memory_cap_mb`,
    /// which is the default. Connections beyond it are closed.
    pub memory_per_peer_bytes: u64,
    /// How long a QUIC handshake may take, 1 s to 5 min; default 10 s.
    pub handshake_timeout: Duration,
    /// Silence in both directions after which a flow is reset, 10 s to 7 days; default 1 h.
    pub flow_idle_timeout: Duration,
    /// Silence of the other direction after one has ended, 1 s to 1 day; default 5 min.
    pub half_close_timeout: Duration,
    /// Silence in both directions after which a UDP flow ends, 1 s to 1 day; default 2 min, and
    /// RFC 9298 §3.1 advises against less. Too large keeps dead flows: UDP has no other end.
    pub udp_idle_timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    tunnel: RawTunnel,
    #[serde(default)]
    destinations: RawDestinations,
    #[serde(default)]
    dial: RawDial,
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
        listen: Vec<BindAddress>,
        client_ca: PathBuf,
        certificate: PathBuf,
        private_key: PathBuf,
        selectable_congestion_control: Option<Vec<RawCongestionControl>>,
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawDestinations {
    allow: Vec<RawAllow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAllow {
    network: Option<Network>,
    name: Option<Host>,
    #[serde(default)]
    protocol: Protocol,
    ports: Vec<Ports>,
    hand_to: Option<BindAddress>,
}

/// The same where nobody else is handed flows to.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAllowDirect {
    network: Network,
    ports: Vec<Ports>,
}

impl From<RawAllowDirect> for RawAllow {
    fn from(raw: RawAllowDirect) -> Self {
        Self {
            network: Some(raw.network),
            name: None,
            protocol: Protocol::Tcp,
            ports: raw.ports,
            hand_to: None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawDial {
    timeout_s: Int<5, 1, 120>,
    per_address_timeout_s: Option<Int<4, 1, 120>>,
    attempt_delay_ms: Int<250, 10, 2000>,
    bind_source: Vec<IpAddr>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    max_connections: Int<10_000, 1, 1_000_000>,
    max_flows: Int<10_000, 1, 1_000_000>,
    max_flows_per_connection: Option<Int<10_000, 1, 1_000_000>>,
    retry_from_handshakes: Int<64, 0, 1_000_000>,
    max_handshakes_per_address: Int<256, 1, 100_000>,
    handshakes_per_address_per_s: Int<100, 1, 100_000>,
    max_connections_per_peer: Option<Int<10_000, 1, 1_000_000>>,
    max_flows_per_peer: Option<Int<10_000, 1, 1_000_000>>,
    memory_per_peer_mb: Option<Int<512, 1, 1_000_000>>,
    handshake_timeout_s: Int<10, 1, 300>,
    flow_idle_timeout_s: Int<3600, 10, 604_800>,
    half_close_timeout_s: Int<300, 1, 86_400>,
    udp_idle_timeout_s: Int<120, 1, 86_400>,
}

impl ServerConfig {
    /// Where the admin listener is by default; not the client's, so that both fit on one host.
    pub const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);

    pub(crate) fn from_source(
        source: Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<Self, ConfigError> {
        let raw: Raw = source.deserialize()?;
        let tunnel = raw.tunnel.check(&source, known)?;
        Ok(Self {
            allow: check_allow(raw.destinations.allow, "destinations.allow", &source)?,
            dial: raw.dial.check(&source)?,
            limits: raw.limits.check(&source, &tunnel.transport)?,
            tunnel,
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
        self.tunnel.credentials.check_files(&self.source, "client_ca")
    }
}

impl RawTunnel {
    fn check(
        mut self,
        source: &Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<ServerTunnel, ConfigError> {
        if self.listen.is_empty() {
            let problem = "needs at least one address, as \"0.0.0.0:4433\"";
            return Err(source.error("tunnel.listen", problem));
        }
        let listen: Vec<_> = self.listen.iter().map(|address| address.0).collect();
        let mut seen = HashSet::new();
        for (index, address) in listen.iter().enumerate() {
            if address.port() != 0 && !seen.insert(address) {
                let key = format!("tunnel.listen[{index}]");
                return Err(source.error(&key, format!("{address} is listed twice")));
            }
        }
        let transport = self.transport(source, known)?;
        let credentials = RawCredentials {
            ca_key: "client_ca",
            ca: &self.client_ca,
            certificate: &self.certificate,
            private_key: &self.private_key,
        }
        .resolve(source)?;
        let selectable_congestion_control =
            check_selectable(self.selectable_congestion_control, source, known)?;
        Ok(ServerTunnel { listen, credentials, selectable_congestion_control, transport })
    }
}

impl RawDial {
    fn check(self, source: &Source) -> Result<Dial, ConfigError> {
        let timeout = self.timeout_s.seconds();
        let per_address_timeout = match self.per_address_timeout_s {
            Some(set) => set.seconds(),
            None => Int::<4, 1, 120>::default().seconds().min(timeout),
        };
        let dial = Dial {
            timeout,
            per_address_timeout,
            attempt_delay: self.attempt_delay_ms.milliseconds(),
            bind_source: self.bind_source,
        };
        if dial.per_address_timeout > dial.timeout {
            let problem = format!(
                "{:?} must not be more than dial.timeout_s, {:?}",
                dial.per_address_timeout, dial.timeout
            );
            return Err(source.error("dial.per_address_timeout_s", problem));
        }
        let mut families = HashSet::new();
        for (index, address) in dial.bind_source.iter().enumerate() {
            if !families.insert(address.is_ipv4()) {
                let key = format!("dial.bind_source[{index}]");
                let problem = "at most one IPv4 and one IPv6 address are allowed";
                return Err(source.error(&key, problem));
            }
        }
        Ok(dial)
    }
}

impl RawLimits {
    fn check(self, source: &Source, transport: &Transport) -> Result<ServerLimits, ConfigError> {
        let max_flows = self.max_flows.get();
        let max_connections = self.max_connections.get();
        let limits = ServerLimits {
            max_connections,
            max_flows,
            max_flows_per_connection: self
                .max_flows_per_connection
                .map_or(max_flows, |set| set.get()),
            retry_from_handshakes: self.retry_from_handshakes.get(),
            max_handshakes_per_address: self.max_handshakes_per_address.get(),
            handshakes_per_address_per_s: self.handshakes_per_address_per_s.get(),
            max_connections_per_peer: self
                .max_connections_per_peer
                .map_or(max_connections, |set| set.get()),
            max_flows_per_peer: self.max_flows_per_peer.map_or(max_flows, |set| set.get()),
            memory_per_peer_bytes: self
                .memory_per_peer_mb
                .map_or(transport.memory_cap_bytes, |set| set.get::<u64>() * 1_000_000),
            handshake_timeout: self.handshake_timeout_s.seconds(),
            flow_idle_timeout: self.flow_idle_timeout_s.seconds(),
            half_close_timeout: self.half_close_timeout_s.seconds(),
            udp_idle_timeout: self.udp_idle_timeout_s.seconds(),
        };
        let memory_cap_bytes = transport.memory_cap_bytes;
        let within = [
            ("max_flows_per_connection", limits.max_flows_per_connection, "max_flows", max_flows),
            ("max_flows_per_peer", limits.max_flows_per_peer, "max_flows", max_flows),
            (
                "max_connections_per_peer",
                limits.max_connections_per_peer,
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
        if limits.memory_per_peer_bytes > memory_cap_bytes {
            let problem = format!(
                "{} must not be more than tunnel.memory_cap_mb, {}",
                limits.memory_per_peer_bytes / 1_000_000,
                memory_cap_bytes / 1_000_000
            );
            return Err(source.error("limits.memory_per_peer_mb", problem));
        }
        Ok(limits)
    }
}

fn check_selectable(
    raw: Option<Vec<RawCongestionControl>>,
    source: &Source,
    known: CheckAlgorithm<'_>,
) -> Result<Option<Vec<CongestionControl>>, ConfigError> {
    let Some(raw) = raw else { return Ok(None) };
    let mut names = HashSet::new();
    let mut selectable = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("tunnel.selectable_congestion_control[{index}]");
        let choice = raw.check(source, &key, known)?;
        if !names.insert(choice.name.clone()) {
            return Err(source.error(&key, format!("{:?} is listed twice", choice.name)));
        }
        selectable.push(choice);
    }
    Ok(Some(selectable))
}

/// Checks the entries of the allow-list that the file calls `list`.
pub(crate) fn check_allow(
    raw: Vec<RawAllow>,
    list: &str,
    source: &Source,
) -> Result<Vec<Allow>, ConfigError> {
    let mut allow = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("{list}[{index}]");
        let host = match (raw.network, raw.name) {
            (Some(Network(network)), None) => check_network(network, &key, source)?,
            (None, Some(Host::Name(name))) => {
                AllowedHost::Name(name.trim_end_matches('.').to_ascii_lowercase())
            }
            (None, Some(Host::Ip(address))) => {
                let problem = format!("{address} is an address; write network = \"{address}\"");
                return Err(source.error(&format!("{key}.name"), problem));
            }
            (None, None) | (Some(_), Some(_)) => {
                let problem = "needs either network, as \"198.18.3.0/24\", or name, as \
                               \"origin.example\"";
                return Err(source.error(&key, problem));
            }
        };
        if raw.ports.is_empty() {
            let problem = "needs at least one port, as [80, 443, \"8000-8100\"]";
            return Err(source.error(&format!("{key}.ports"), problem));
        }
        let hand_to = raw.hand_to.map(|address| address.0);
        if let Some(address) = hand_to.filter(|it| it.port() == 0 || it.ip().is_unspecified()) {
            let problem = format!(
                "{address} can't be dialled; expected an address and a port, as \"127.0.0.1:4480\""
            );
            return Err(source.error(&format!("{key}.hand_to"), problem));
        }
        if hand_to.is_some() && raw.protocol == Protocol::Udp {
            let problem = "a PROXY header begins a TCP connection; a rule with protocol = \"udp\" \
                           can't have it";
            return Err(source.error(&format!("{key}.hand_to"), problem));
        }
        let ports = raw.ports.into_iter().map(|ports| ports.0).collect();
        allow.push(Allow { host, protocol: raw.protocol, ports, hand_to });
    }
    Ok(allow)
}

fn check_network(network: IpNet, key: &str, source: &Source) -> Result<AllowedHost, ConfigError> {
    if network.trunc() == network {
        return Ok(AllowedHost::Network(network));
    }
    let problem = format!(
        "{network} has bits set beyond its prefix length; write {} for the network or {} for the \
         one address",
        network.trunc(),
        network.addr()
    );
    Err(source.error(&format!("{key}.network"), problem))
}

struct Network(IpNet);

impl FromStr for Network {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse()?,
        };
        Ok(Self(network))
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a network or an address, as \"198.18.3.0/24\", \"2001:db8::/32\" or \
                        \"198.18.3.2\"";
        from_string(deserializer, expected)
    }
}

struct Ports(RangeInclusive<u16>);

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortOrRange;
        impl Visitor<'_> for PortOrRange {
            type Value = Ports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port from 1 to 65535, or a range of them as \"8000-8100\"")
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<Ports, E> {
                match u16::try_from(port) {
                    Ok(port) if port != 0 => Ok(Ports(port..=port)),
                    _ => Err(E::invalid_value(Unexpected::Signed(port), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ports, E> {
                let bounds = text.split_once('-').unwrap_or((text, text));
                match (bounds.0.parse::<u16>(), bounds.1.parse::<u16>()) {
                    (Ok(first), Ok(last)) if first != 0 && first <= last => Ok(Ports(first..=last)),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(PortOrRange)
    }
}
