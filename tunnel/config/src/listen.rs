//! `[[listen]]` of a client.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::class_of_ports::{ClassOfPorts, RawClassOfPorts, check_class_of_ports};
use crate::congestion_control::RawCongestionControl;
use crate::interception::{Interception, ListenAddress};
use crate::network::Network;
use crate::value::{BindAddress, HostPort};
use crate::{
    Allow, CheckAlgorithm, Class, ConfigError, CongestionControl, Protocol, ProxyUsers, Source,
    TrustedProxies,
};

/// One `[[listen]]`: a listener that accepts flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// How the destination of a flow is learnt; key `mode`.
    pub interception: Interception,
    /// Key `address` or `unix`.
    pub address: ListenAddress,
    /// In mode `proxy_protocol`: where PROXY headers may come from. Loopback by default; required for
    /// another address. Connections from elsewhere are reset.
    pub trusted_proxies: TrustedProxies,
    /// The class of its flows, unless their port or their first bytes say another; default `bulk`.
    pub class: Class,
    /// Classes of flows by the port of their destination.
    pub class_of_ports: Vec<ClassOfPorts>,
    /// Whether the class of other flows is recognised by their first bytes, and RTSP followed in flows of every
    /// class; default `true`, and always `false` in mode `udp`.
    pub recognise_class: bool,
    /// The algorithm of its flows instead of their class's. The server is asked for the one of
    /// this name, with the server's parameters.
    pub congestion_control: Option<CongestionControl>,
    /// Handling of new flows while no server can take them; default `closed`.
    pub fail_mode: FailMode,
    /// Whose clients may use it, in modes `http_connect` and `socks5`; without the key all that reach it.
    pub credentials_file: Option<PathBuf>,
}

/// What of a listener a reload can't change.
#[derive(Debug, PartialEq)]
pub struct ImmutableListen<'a>(
    &'a Interception,
    &'a ListenAddress,
    &'a TrustedProxies,
    FailMode,
    Option<&'a Path>,
);

impl Listen {
    /// The class that the configuration gives flows to `port`, whatever they carry.
    pub fn class_of_port(&self, port: u16) -> Option<Class> {
        let entry = self.class_of_ports.iter().find(|it| it.ports.contains(&port));
        entry.map(|it| it.class).or_else(|| (!self.recognise_class).then_some(self.class))
    }

    /// The classes that its flows may have by the configuration alone.
    pub fn configured_classes(&self) -> impl Iterator<Item = Class> {
        self.class_of_ports.iter().map(|it| it.class).chain([self.class])
    }

    /// Whether the client connects its flows itself while no server can take them.
    pub fn may_bypass(&self) -> bool {
        self.fail_mode == FailMode::Open && !self.interception.is_udp()
    }

    /// The users whose credentials its clients must show; `None` if they need none.
    ///
    /// # Errors
    /// What is wrong with their file, and what would be right.
    pub fn proxy_users(&self) -> io::Result<Option<ProxyUsers>> {
        self.credentials_file.as_deref().map(ProxyUsers::read).transpose()
    }

    /// What a reload can't change.
    pub fn immutable(&self) -> ImmutableListen<'_> {
        ImmutableListen(
            &self.interception,
            &self.address,
            &self.trusted_proxies,
            self.fail_mode,
            self.credentials_file.as_deref(),
        )
    }
}

/// Handling of new flows while no server can take them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// They fail, each as its protocol says it. Where another proxy stands before the client (a
    /// Unix socket, `proxy_protocol`) the listener refuses connections instead, so that the other
    /// proxy goes on to its backup.
    #[default]
    Closed,
    /// Bypass: the client connects them to their destination itself. This applies to intercepted
    /// flows and static listeners, and to other flows as far as `[[direct.allow]]` permits. Intercepted UDP is
    /// left to the packet filter's rules, as when no client runs.
    Open,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawListen {
    mode: RawMode,
    protocol: Option<Protocol>,
    address: Option<BindAddress>,
    unix: Option<PathBuf>,
    destination: Option<HostPort>,
    trusted_proxies: Option<Vec<Network>>,
    #[serde(default)]
    class: Class,
    #[serde(default)]
    class_of_ports: Vec<RawClassOfPorts>,
    recognise_class: Option<bool>,
    congestion_control: Option<RawCongestionControl>,
    #[serde(default)]
    fail_mode: FailMode,
    credentials_file: Option<PathBuf>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawMode {
    Tproxy,
    Redirect,
    ProxyProtocol,
    HttpConnect,
    Socks5,
    Static,
    Udp,
}

pub(crate) fn check_listeners(
    raw: Vec<RawListen>,
    direct: &[Allow],
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
        let is_udp = listener.interception.is_udp();
        if !any_port && !seen.insert((is_udp, listener.address.clone())) {
            let problem = format!("{} is used by an earlier [[listen]]", listener.address);
            return Err(source.error(&key, problem));
        }
        if listener.fail_mode == FailMode::Open
            && listener.interception.names_destinations()
            && direct.is_empty()
        {
            let problem = format!(
                "mode {} lets clients name destinations; \"open\" needs [[direct.allow]] sections \
                 that say which of them may be connected to directly",
                listener.interception.as_str()
            );
            return Err(source.error(&format!("{key}.fail_mode"), problem));
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
        let is_udp = self.mode == RawMode::Udp;
        let protocol = self.protocol(source, key)?;
        if is_udp && self.fail_mode == FailMode::Open {
            let problem = "mode udp can't bypass the tunnel; only \"closed\" is possible";
            return Err(source.error(&format!("{key}.fail_mode"), problem));
        }
        let kernel_tells = matches!(self.mode, RawMode::Tproxy | RawMode::Redirect);
        let address = match (self.address, self.unix) {
            (Some(address), None) => ListenAddress::Tcp(address.0),
            (None, Some(_)) if kernel_tells => {
                let problem = "modes tproxy and redirect intercept IP packets and need `address`; a Unix \
                               socket works with proxy_protocol, http_connect, socks5 and static";
                return Err(source.error(&format!("{key}.unix"), problem));
            }
            (None, Some(_)) if is_udp => {
                let problem = "mode udp needs `address`, a UDP address";
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
            (RawMode::Static, Some(destination)) => Interception::Static { destination },
            (RawMode::Udp, Some(destination)) => Interception::Udp { destination },
            (RawMode::Udp, None) => {
                let problem = "mode udp needs `destination = \"HOST:PORT\"`";
                return Err(source.error(key, problem));
            }
            (RawMode::Static, None) => {
                let problem = "mode static needs `destination = \"HOST:PORT\"`";
                return Err(source.error(key, problem));
            }
            (_, Some(_)) => {
                let problem =
                    "only modes static and udp have a destination; the others learn it per flow";
                return Err(source.error(&format!("{key}.destination"), problem));
            }
            (RawMode::Tproxy, None) if protocol == Protocol::Udp => Interception::TproxyUdp,
            (RawMode::Tproxy, None) => Interception::Tproxy,
            (RawMode::Redirect, None) => Interception::Redirect,
            (RawMode::ProxyProtocol, None) => Interception::ProxyProtocol,
            (RawMode::HttpConnect, None) => Interception::HttpConnect,
            (RawMode::Socks5, None) => Interception::Socks5,
        };
        if !self.class_of_ports.is_empty()
            && let Some(mode) = interception.fixed_destination_mode()
        {
            let problem = format!(
                "mode {mode} has one destination, so all its flows have class `class`; remove it"
            );
            return Err(source.error(&format!("{key}.class_of_ports"), problem));
        }
        if is_udp && self.recognise_class.is_some() {
            let problem = "mode udp recognises no classes, for it carries no TCP; remove it";
            return Err(source.error(&format!("{key}.recognise_class"), problem));
        }
        let asks = matches!(interception, Interception::HttpConnect | Interception::Socks5);
        if self.credentials_file.is_some() && !asks {
            let problem = "only modes http_connect and socks5 ask for credentials; remove it";
            return Err(source.error(&format!("{key}.credentials_file"), problem));
        }
        let class_of_ports = check_class_of_ports(self.class_of_ports, key, source)?;
        let congestion_control = match self.congestion_control {
            Some(raw) => Some(raw.check(source, &format!("{key}.congestion_control"), known)?),
            None => None,
        };
        let trusted_proxies =
            TrustedProxies::check(self.trusted_proxies, &interception, &address, key, source)?;
        Ok(Listen {
            interception,
            address,
            trusted_proxies,
            class: self.class,
            class_of_ports,
            recognise_class: self.recognise_class.unwrap_or(!is_udp),
            congestion_control,
            fail_mode: self.fail_mode,
            credentials_file: self.credentials_file.map(|file| source.resolve(&file)),
        })
    }

    /// What its flows are. Only `tproxy` leaves a choice.
    fn protocol(&self, source: &Source, key: &str) -> Result<Protocol, ConfigError> {
        let of_mode = match self.mode {
            RawMode::Tproxy => return Ok(self.protocol.unwrap_or_default()),
            RawMode::Udp => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        if self.protocol.is_some_and(|it| it != of_mode) {
            let problem = match of_mode {
                Protocol::Udp => "mode udp carries UDP only; remove the key",
                Protocol::Tcp => {
                    "only mode tproxy intercepts UDP; mode udp carries UDP to one destination"
                }
            };
            return Err(source.error(&format!("{key}.protocol"), problem));
        }
        Ok(of_mode)
    }
}
