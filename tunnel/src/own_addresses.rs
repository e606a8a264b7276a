//! The addresses at which this host can be reached, which flows must not go back to.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The addresses behind `listeners`, for [`millrace_config::Acl::new`].
///
/// All addresses of all interfaces are meant as soon as one listener is on `0.0.0.0` or `[::]`;
/// otherwise only those listened on.
///
/// # Errors
/// The interfaces can't be read.
pub fn own_addresses(listeners: &[SocketAddr]) -> io::Result<BTreeSet<IpAddr>> {
    let mut own: BTreeSet<_> =
        listeners.iter().map(|address| address.ip().to_canonical()).collect();
    if own.iter().any(IpAddr::is_unspecified) {
        own.retain(|address| !address.is_unspecified());
        for interface in nix::ifaddrs::getifaddrs()? {
            let Some(address) = interface.address else { continue };
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
            own.extend(v4.or(v6));
        }
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_one_address_is_that_address() {
        let listeners = ["198.18.2.2:4433", "[::ffff:198.18.2.3]:1"];
        let own = own_addresses(&listeners.map(|address| address.parse().unwrap())).unwrap();
        let expected = ["198.18.2.2", "198.18.2.3"].map(|ip| ip.parse().unwrap());
        assert_eq!(own, BTreeSet::from(expected));
    }

    #[test]
    fn a_listener_on_all_addresses_is_those_of_every_interface() {
        for listener in ["0.0.0.0:4433", "[::]:4433"] {
            let own = own_addresses(&[listener.parse().unwrap()]).unwrap();
            assert!(own.contains(&"127.0.0.1".parse().unwrap()), "{own:?}");
            assert!(!own.iter().any(IpAddr::is_unspecified), "{own:?}");
        }
    }
}
