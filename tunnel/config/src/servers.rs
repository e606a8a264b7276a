//! `tunnel.servers` of a client.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Unexpected, Visitor};

use crate::value::{Host, HostPort, Int};
use crate::{ConfigError, Source};

/// A server of the tunnel. Shown as its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelServer {
    /// Where it listens.
    pub address: HostPort,
    /// The name that its certificate must be for; default `tunnel.server_name`.
    pub name: Host,
    /// New flows go to the healthy servers with the lowest number, 0 to 1000, which share them;
    /// default is the place in the list, from 0.
    pub priority: u32,
}

impl fmt::Display for TunnelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// `"host:port"`, or a table with more.
pub(crate) struct RawServer {
    address: HostPort,
    server_name: Option<Host>,
    priority: Option<Int<0, 0, 1000>>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTable {
    address: HostPort,
    server_name: Option<Host>,
    priority: Option<Int<0, 0, 1000>>,
}

impl<'de> Deserialize<'de> for RawServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = RawServer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a host and a port from 1 to 65535, as \"host:4433\" or \"[::1]:4433\", or a \
                     table as { address = \"host:4433\", priority = 1 }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawServer, E> {
                let address =
                    text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))?;
                Ok(RawServer { address, server_name: None, priority: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawServer, A::Error> {
                let RawTable { address, server_name, priority } =
                    RawTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawServer { address, server_name, priority })
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

pub(crate) fn check_servers(
    raw: Vec<RawServer>,
    name: &Host,
    source: &Source,
) -> Result<Vec<TunnelServer>, ConfigError> {
    if raw.is_empty() {
        return Err(source.error("tunnel.servers", "needs at least one \"host:port\""));
    }
    let mut seen = HashSet::new();
    let mut servers = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        if !seen.insert(raw.address.clone()) {
            let problem = format!("{} is listed twice", raw.address);
            return Err(source.error(&format!("tunnel.servers[{index}]"), problem));
        }
        let place = u32::try_from(index).unwrap_or(u32::MAX);
        servers.push(TunnelServer {
            address: raw.address,
            name: raw.server_name.unwrap_or_else(|| name.clone()),
            priority: raw.priority.map_or(place, Int::get),
        });
    }
    Ok(servers)
}
