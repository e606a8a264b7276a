//! Properties of the allow-list that hold for any address.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use millrace_config::{Acl, Allow, AllowedHost, OwnAddresses, Protocol};
use proptest::prelude::*;

/// Addresses of `network`, port 80.
fn acl(network: Ipv4Net) -> Acl {
    let allow = Allow {
        host: AllowedHost::Network(IpNet::V4(network)),
        protocol: Protocol::Tcp,
        ports: vec![80..=80],
        forward_to: None,
    };
    Acl::new(vec![allow], OwnAddresses::default())
}

proptest! {
    #[test]
    fn unlisted_addresses_and_ports_are_denied(bits: u32, length in 8_u8..=32, address: u32, port: u16) {
        let network = Ipv4Net::new(Ipv4Addr::from_bits(bits), length).unwrap();
        let address = Ipv4Addr::from_bits(address);
        let permitted = acl(network).permits(IpAddr::V4(address), port).is_ok();
        prop_assert!(!permitted || (network.contains(&address) && port == 80));
    }

    #[test]
    fn mapped_form_has_the_verdict_of_the_address(bits: u32, length in 8_u8..=32, host: u32) {
        let network = Ipv4Net::new(Ipv4Addr::from_bits(bits), length).unwrap().trunc();
        let inside = Ipv4Addr::from_bits(network.network().to_bits() | (host & network.hostmask().to_bits()));
        let acl = acl(network);
        let plain = acl.permits(IpAddr::V4(inside), 80).is_ok();
        let mapped = acl.permits(IpAddr::V6(inside.to_ipv6_mapped()), 80).is_ok();
        prop_assert_eq!(plain, mapped);
    }
}
