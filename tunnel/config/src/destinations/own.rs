//! The addresses of this host, which can change while the program runs.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// A set of addresses; its clones share one set. Loopback addresses are left out, because they are
/// a special range anyway, and so are unspecified ones.
#[derive(Clone, Debug, Default)]
pub struct OwnAddresses(Arc<RwLock<BTreeSet<IpAddr>>>);

impl OwnAddresses {
    /// Replaces the set.
    pub fn set(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses = addresses.into_iter().map(|address| address.to_canonical());
        let addresses =
            addresses.filter(|address| !address.is_unspecified() && !address.is_loopback());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = addresses.collect();
    }

    /// Whether `address` is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&address.to_canonical())
    }
}

impl FromIterator<IpAddr> for OwnAddresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let own = Self::default();
        own.set(addresses);
        own
    }
}
