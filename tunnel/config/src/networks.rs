//! A list of networks that says something of the addresses in it.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::network::Network;
use crate::{ConfigError, Source};

/// Networks, and single addresses as networks of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Arc<[IpNet]>);

impl Networks {
    /// Reads `"198.18.2.0/24"` or `"198.18.2.9"`; `None` when one of them is neither.
    pub fn parse(texts: &[&str]) -> Option<Self> {
        let network = |text: &&str| text.parse::<Network>().ok().map(|it| it.0);
        texts.iter().map(network).collect::<Option<_>>().map(Self)
    }

    /// Whether `ip` is in one of them. An IPv4-mapped address is an IPv4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|network| network.contains(&ip))
    }

    pub(crate) fn check(
        raw: Vec<Network>,
        key: &str,
        source: &Source,
    ) -> Result<Self, ConfigError> {
        for (index, Network(network)) in raw.iter().enumerate() {
            network.check_host_bits(&format!("{key}[{index}]"), source)?;
        }
        Ok(Self(raw.into_iter().map(|Network(network)| network).collect()))
    }
}

/// Refuses bits beyond the prefix: they say that an address was meant, or another prefix.
pub(crate) trait CheckHostBits {
    fn check_host_bits(&self, key: &str, source: &Source) -> Result<(), ConfigError>;
}

impl CheckHostBits for IpNet {
    fn check_host_bits(&self, key: &str, source: &Source) -> Result<(), ConfigError> {
        if self.trunc() == *self {
            return Ok(());
        }
        let problem = format!(
            "{self} has bits set beyond its prefix length; write {} for the network or {} for the \
             one address",
            self.trunc(),
            self.addr()
        );
        Err(source.error(key, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_networks_of_their_family() {
        let networks = Networks::parse(&["198.18.2.0/24", "2001:db8::/32", "203.0.113.7"]).unwrap();
        let contains = |ip: &str| networks.contains(ip.parse().unwrap());
        for inside in ["198.18.2.255", "::ffff:198.18.2.1", "2001:db8:1::1", "203.0.113.7"] {
            assert!(contains(inside), "{inside}");
        }
        for outside in ["198.18.3.0", "2001:db9::1", "203.0.113.8"] {
            assert!(!contains(outside), "{outside}");
        }
        assert!(!Networks::default().contains([127, 0, 0, 1].into()));
        assert_eq!(Networks::parse(&["edge.example"]), None);
    }
}
