//! Key `trusted_proxies` of a `[[listen]]`: where PROXY headers may come from.

use std::net::IpAddr;

use crate::interception::{Interception, ListenAddress};
use crate::network::Network;
use crate::{ConfigError, Networks, Source};

/// Loopback addresses (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3).
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Networks whose connections may begin with a PROXY header; empty for a Unix socket, which has no
/// peer address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Networks);

impl TrustedProxies {
    /// Whether a PROXY header from `peer` is believed.
    pub fn contain(&self, peer: IpAddr) -> bool {
        self.0.contains(peer)
    }

    fn loopback() -> Self {
        Self(Networks::parse(&LOOPBACK).expect("both are networks"))
    }

    pub(crate) fn check(
        networks: Option<Vec<Network>>,
        interception: &Interception,
        address: &ListenAddress,
        key: &str,
        source: &Source,
    ) -> Result<Self, ConfigError> {
        let error = |problem: &str| Err(source.error(&format!("{key}.trusted_proxies"), problem));
        let reads_headers = *interception == Interception::ProxyProtocol;
        match (networks, address) {
            (Some(_), _) if !reads_headers => {
                error("only mode proxy_protocol reads PROXY headers; remove it")
            }
            (Some(_), ListenAddress::Unix(_)) => error(
                "a Unix socket has no peer address; remove it: the permissions of the socket's \
                 directory say which processes may connect",
            ),
            (Some(networks), _) if networks.is_empty() => {
                error("needs at least one network, as [\"198.18.1.0/24\"]")
            }
            (Some(networks), _) => {
                Networks::check(networks, &format!("{key}.trusted_proxies"), source).map(Self)
            }
            (None, ListenAddress::Tcp(at)) if reads_headers && !at.ip().is_loopback() => {
                let problem = format!(
                    "mode proxy_protocol at {at}, which is not on loopback, needs \
                     `trusted_proxies = [\"NETWORK\", ...]`: any host that reaches it could name a \
                     forged viewer"
                );
                Err(source.error(key, problem))
            }
            (None, ListenAddress::Tcp(_)) if reads_headers => Ok(Self::loopback()),
            (None, _) => Ok(Self::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_alone_is_trusted_by_default() {
        let trusted = TrustedProxies::loopback();
        for (peer, is_trusted) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("198.18.1.2", false),
            ("::2", false),
        ] {
            assert_eq!(trusted.contain(peer.parse().unwrap()), is_trusted, "{peer}");
        }
    }
}
