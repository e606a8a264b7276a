//! `[[listen]]` of a client.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::allow::Network;
use crate::congestion_control::RawCongestionControl;
use crate::value::{BindAddress, HostPort};
use crate::{Allow, CheckAlgorithm, Class, ConfigError, CongestionControl, Source, TrustedProxies};

/// One `[[listen]]`: a door through which flows come in.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// How the destination of a flow is learnt; key `mode`.
    pub interception: Interception,
    /// Key `address` or `unix`.
    pub address: ListenAddress,
    /// In mode `proxy_protocol`: where PROXY headers may come from. Loopback by default; required for
    /// another address. Connections from elsewhere are reset.
    pub trusted_proxies: TrustedProxies,
    /// The class of its flows; default `bulk`.
    pub class: Class,
    /// The algorithm of its flows instead of their class's. The server is asked for the one of
    /// this name, with the server's parameters.
    pub congestion_control: Option<CongestionControl>,
    /// What becomes of new flows while no server can take them; default `reset`.
    pub on_failure: OnFailure,
}

/// What becomes of new flows while no server can take them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// They fail, each as its protocol says it. Where another proxy stands before the client (a
    /// Unix socket, `proxy_protocol`) the listener refuses connections instead, so that the other
    /// proxy goes on to its backup.
    #[default]
    Reset,
    /// The client connects them to their destination itself, past the tunnel: where the kernel
    /// intercepted them or the destination is fixed, and else as far as `[[direct.allow]]` permits.
    Direct,
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
    /// UDP, always to the same; key `destination`. Each source address is a flow.
    Udp {
        /// Where all its flows go.
        destination: HostPort,
    },
}

impl Interception {
    /// Whether it is the client that says where its flow goes, and not the kernel or the operator.
    pub fn names_destinations(&self) -> bool {
        matches!(self, Self::ProxyProtocol | Self::HttpConnect | Self::Socks5)
    }

    /// The name in configurations and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Tproxy => "tproxy",
            Self::Redirect => "redirect",
            Self::ProxyProtocol => "proxy_protocol",
            Self::HttpConnect => "http_connect",
            Self::Socks5 => "socks5",
            Self::Fixed { .. } => "fixed",
            Self::Udp { .. } => "udp",
        }
    }
}

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A TCP address, or a UDP address for mode `udp`; port 0 lets the system choose.
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawListen {
    mode: RawMode,
    address: Option<BindAddress>,
    unix: Option<PathBuf>,
    destination: Option<HostPort>,
    trusted_proxies: Option<Vec<Network>>,
    #[serde(default)]
    class: Class,
    congestion_control: Option<RawCongestionControl>,
    #[serde(default)]
    on_failure: OnFailure,
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
        let is_udp = matches!(listener.interception, Interception::Udp { .. });
        if !any_port && !seen.insert((is_udp, listener.address.clone())) {
            let problem = format!("{} is used by an earlier [[listen]]", listener.address);
            return Err(source.error(&key, problem));
        }
        if listener.on_failure == OnFailure::Direct
            && listener.interception.names_destinations()
            && direct.is_empty()
        {
            let problem = format!(
                "mode {} lets clients name destinations; \"direct\" needs [[direct.allow]] sections \
                 that say which of them may be connected to without the tunnel",
                listener.interception.as_str()
            );
            return Err(source.error(&format!("{key}.on_failure"), problem));
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
        if is_udp && self.on_failure == OnFailure::Direct {
            let problem = "mode udp has no way past the tunnel; only \"reset\" is possible";
            return Err(source.error(&format!("{key}.on_failure"), problem));
        }
        let kernel_tells = matches!(self.mode, RawMode::Tproxy | RawMode::Redirect);
        let address = match (self.address, self.unix) {
            (Some(address), None) => ListenAddress::Tcp(address.0),
            (None, Some(_)) if kernel_tells => {
                let problem = "modes tproxy and redirect intercept TCP and need `address`; a Unix \
                               socket works with proxy_protocol, http_connect, socks5 and fixed";
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
            (RawMode::Fixed, Some(destination)) => Interception::Fixed { destination },
            (RawMode::Udp, Some(destination)) => Interception::Udp { destination },
            (RawMode::Udp, None) => {
                let problem = "mode udp needs `destination = \"HOST:PORT\"`";
                return Err(source.error(key, problem));
            }
            (RawMode::Fixed, None) => {
                let problem = "mode fixed needs `destination = \"HOST:PORT\"`";
                return Err(source.error(key, problem));
            }
            (_, Some(_)) => {
                let problem =
                    "only modes fixed and udp have a destination; the others learn it per flow";
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
        let trusted_proxies =
            TrustedProxies::check(self.trusted_proxies, &interception, &address, key, source)?;
        Ok(Listen {
            interception,
            address,
            trusted_proxies,
            class: self.class,
            congestion_control,
            on_failure: self.on_failure,
        })
    }
}
