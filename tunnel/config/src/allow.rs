//! Allow-lists of destinations: `[[destinations.allow]]` of a server, `[[direct.allow]]` of a client.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::networks::CheckHostBits;
use crate::value::{BindAddress, Host};
use crate::{ConfigError, Source};

/// One `[[destinations.allow]]`: hosts and ports that flows may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// Key `network` or `name`.
    pub host: AllowedHost,
    /// What may go there; default `tcp`. A rule for one says nothing of the other.
    pub protocol: Protocol,
    /// Ports, written as `80` or `"8000-8100"`; at least one.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Upstream proxy that is dialled instead of the destination and gets a PROXY header of version
    /// 2 with viewer and destination, as the nginx of a server edge.
    pub forward_to: Option<SocketAddr>,
}

/// The protocol of a flow outside the tunnel.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// A TCP connection.
    #[default]
    Tcp,
    /// UDP datagrams, by CONNECT-UDP (RFC 9298).
    Udp,
}

impl Protocol {
    /// The name in configurations and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What one `[[destinations.allow]]` is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHost {
    /// Addresses; a single address is written without prefix length.
    Network(IpNet),
    /// All addresses of this name, for flows that ask for it; for an origin whose addresses change.
    /// In lower case, without a dot at the end.
    Name(String),
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAllow {
    network: Option<Network>,
    name: Option<Host>,
    #[serde(default)]
    protocol: Protocol,
    ports: Vec<PortRange>,
    forward_to: Option<BindAddress>,
}

/// An entry of `[[direct.allow]]`, which has neither `name` nor `forward_to`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAllowDirect {
    network: Network,
    ports: Vec<PortRange>,
}

impl From<RawAllowDirect> for RawAllow {
    fn from(raw: RawAllowDirect) -> Self {
        Self {
            network: Some(raw.network),
            name: None,
            protocol: Protocol::Tcp,
            ports: raw.ports,
            forward_to: None,
        }
    }
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
        let forward_to = raw.forward_to.map(|address| address.0);
        if let Some(address) = forward_to.filter(|it| it.port() == 0 || it.ip().is_unspecified()) {
            let problem = format!(
                "{address} can't be dialled; expected an address and a port, as \"127.0.0.1:4480\""
            );
            return Err(source.error(&format!("{key}.forward_to"), problem));
        }
        if forward_to.is_some() && raw.protocol == Protocol::Udp {
            let problem = "a PROXY header begins a TCP connection; a rule with protocol = \"udp\" \
                           can't have it";
            return Err(source.error(&format!("{key}.forward_to"), problem));
        }
        let ports = raw.ports.into_iter().map(|ports| ports.0).collect();
        allow.push(Allow { host, protocol: raw.protocol, ports, forward_to });
    }
    Ok(allow)
}

fn check_network(network: IpNet, key: &str, source: &Source) -> Result<AllowedHost, ConfigError> {
    network.check_host_bits(&format!("{key}.network"), source)?;
    Ok(AllowedHost::Network(network))
}

/// A port, or a range of ports.
pub(crate) struct PortRange(pub(crate) RangeInclusive<u16>);

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortOrRange;
        impl Visitor<'_> for PortOrRange {
            type Value = PortRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port from 1 to 65535, or a range of them as \"8000-8100\"")
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<PortRange, E> {
                match u16::try_from(port) {
                    Ok(port) if port != 0 => Ok(PortRange(port..=port)),
                    _ => Err(E::invalid_value(Unexpected::Signed(port), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PortRange, E> {
                let bounds = text.split_once('-').unwrap_or((text, text));
                match (bounds.0.parse::<u16>(), bounds.1.parse::<u16>()) {
                    (Ok(first), Ok(last)) if first != 0 && first <= last => {
                        Ok(PortRange(first..=last))
                    }
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(PortOrRange)
    }
}
