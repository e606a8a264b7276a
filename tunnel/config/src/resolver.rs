//! `[resolver]`: how names are resolved.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::value::{BindAddress, Int};
use crate::{ConfigError, Source};

/// Most entries of `resolver.nameservers`: more are never reached in the time that there is.
const MAX_NAMESERVERS: usize = 8;

/// `[resolver]`: how names of destinations and of servers are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverSettings {
    /// Name servers in place of those of `/etc/resolv.conf`, at most 8, in the order in which they
    /// are asked; empty, the default, leaves the system's.
    pub nameservers: Vec<SocketAddr>,
    /// Time for one name, 1 to 60 s; default 4 s. Too small fails names where the first name
    /// servers are down, each of which costs 1 s; too large keeps clients of dead names waiting.
    pub timeout: Duration,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self { nameservers: Vec::new(), timeout: Int::<4, 1, 60>::default().seconds() }
    }
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawResolver {
    nameservers: Vec<BindAddress>,
    timeout_s: Int<4, 1, 60>,
}

impl RawResolver {
    pub(crate) fn check(self, source: &Source) -> Result<ResolverSettings, ConfigError> {
        let nameservers: Vec<_> = self.nameservers.iter().map(|it| it.0).collect();
        if nameservers.len() > MAX_NAMESERVERS {
            let problem = format!("at most {MAX_NAMESERVERS} name servers");
            return Err(source.error("resolver.nameservers", problem));
        }
        let mut seen = HashSet::new();
        for (index, address) in nameservers.iter().enumerate() {
            let key = format!("resolver.nameservers[{index}]");
            if address.port() == 0 || address.ip().is_unspecified() {
                let problem = format!(
                    "{address} can't be asked; expected an address and a port, as \"192.0.2.53:53\""
                );
                return Err(source.error(&key, problem));
            }
            if !seen.insert(address) {
                return Err(source.error(&key, format!("{address} is listed twice")));
            }
        }
        Ok(ResolverSettings { nameservers, timeout: self.timeout_s.seconds() })
    }
}
