//! The addresses of this host, which flows must not go back to.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_config::OwnAddresses;

/// How long the addresses that were read are good for: an address that is added is known after this
/// time, and flows cost at most one look at the interfaces in it.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The addresses of all interfaces, read again when they are old. Its clones share them.
#[derive(Clone, Debug)]
pub struct InterfaceAddresses {
    addresses: OwnAddresses,
    read: Arc<Mutex<Instant>>,
}

impl InterfaceAddresses {
    /// Reads them.
    ///
    /// # Errors
    /// The interfaces can't be read.
    pub fn read() -> io::Result<Self> {
        let addresses = interface_addresses()?.into_iter().collect();
        Ok(Self { addresses, read: Arc::new(Mutex::new(Instant::now())) })
    }

    /// For [`millrace_config::Acl::new`]; follows [`InterfaceAddresses::refresh`].
    pub fn addresses(&self) -> OwnAddresses {
        self.addresses.clone()
    }

    /// Reads them again if that has not been done in the last second. To be called before an
    /// address is checked.
    pub fn refresh(&self, now: Instant) {
        {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if now.saturating_duration_since(*read) < MAX_AGE {
                return;
            }
            *read = now;
        }
        match interface_addresses() {
            Ok(addresses) => self.addresses.set(addresses),
            Err(error) => tracing::warn!(%error, "failed to read the addresses of the interfaces"),
        }
    }
}

/// The addresses of all interfaces, loopback ones included.
///
/// # Errors
/// The interfaces can't be read.
pub fn interface_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let interfaces = nix::ifaddrs::getifaddrs()?;
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        v4.or(v6)
    };
    Ok(interfaces.filter_map(address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_interface_addresses() {
        let own = interface_addresses().unwrap();
        assert!(own.contains(&"127.0.0.1".parse().unwrap()), "{own:?}");
    }

    #[test]
    fn addresses_are_read_again_after_their_greatest_age() {
        let own = InterfaceAddresses::read().unwrap();
        let made_up: IpAddr = "198.18.2.9".parse().unwrap();
        own.addresses.set([made_up]);
        let read = *own.read.lock().unwrap();
        own.refresh(read + MAX_AGE / 2);
        assert!(own.addresses().contains(made_up), "read again too early");
        own.refresh(read + MAX_AGE);
        assert!(!own.addresses().contains(made_up), "not read again");
    }
}
