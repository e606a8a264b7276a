use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::{Allow, AllowedHost, Protocol};

const OWN: [&str; 4] = ["198.18.2.2", "2001:db8:2::2", "0.0.0.0", "127.0.0.1"];

fn own() -> OwnAddresses {
    OWN.iter().map(|own| own.parse::<IpAddr>().unwrap()).collect()
}

fn acl(networks: &[&str]) -> Acl {
    let allow = networks
        .iter()
        .map(|network| Allow {
            host: AllowedHost::Network(network.parse().unwrap()),
            protocol: Protocol::Tcp,
            ports: vec![80..=80, 8000..=8100],
            forward_to: None,
        })
        .collect();
    Acl::new(allow, own())
}

fn reason(acl: &Acl, ip: &str, port: u16) -> Option<DeniedReason> {
    acl.permits(ip.parse().unwrap(), port).err().map(|denied| denied.reason)
}

#[test]
fn each_reason_has_its_own_name() {
    let names: HashSet<_> = DeniedReason::ALL.into_iter().map(DeniedReason::as_str).collect();
    assert_eq!(names.len(), DeniedReason::ALL.len());
    assert!(names.iter().all(|name| name.starts_with(|c: char| c.is_ascii_lowercase())));
}

#[test]
fn nothing_is_allowed_by_default() {
    for ip in ["198.18.3.2", "2001:db8::1", "127.0.0.1"] {
        assert!(acl(&[]).permits(ip.parse().unwrap(), 80).is_err(), "{ip}");
    }
}

#[test]
fn address_and_port_must_be_in_one_entry() {
    let acl = acl(&["198.18.3.0/24", "2001:db8:3::/64"]);
    let cases = [
        ("198.18.3.2", 80, None),
        ("198.18.3.2", 8000, None),
        ("198.18.3.2", 8100, None),
        ("198.18.3.2", 8101, Some(DeniedReason::PortNotListed)),
        ("198.18.3.2", 0, Some(DeniedReason::PortNotListed)),
        ("198.18.4.2", 80, Some(DeniedReason::NotListed)),
        ("::ffff:198.18.3.2", 80, None),
        ("::ffff:198.18.4.2", 80, Some(DeniedReason::NotListed)),
        ("2001:db8:3::7", 80, None),
        ("2001:db8:4::7", 80, Some(DeniedReason::NotListed)),
    ];
    for (ip, port, expected) in cases {
        assert_eq!(reason(&acl, ip, port), expected, "{ip} port {port}");
    }
}

#[test]
fn the_widest_entries_open_no_special_range() {
    let acl = acl(&["0.0.0.0/0", "::/0"]);
    let cases = [
        ("127.0.0.1", DeniedReason::Loopback),
        ("127.255.255.254", DeniedReason::Loopback),
        ("::1", DeniedReason::Loopback),
        ("::ffff:127.0.0.1", DeniedReason::Loopback),
        ("::127.0.0.1", DeniedReason::Loopback),
        ("::ffff:0:127.0.0.1", DeniedReason::Loopback),
        ("64:ff9b::7f00:1", DeniedReason::Loopback),
        ("64:ff9b:1::7f00:1", DeniedReason::LocalTranslation),
        ("2002:7f00:1::", DeniedReason::Loopback),
        ("2001:0:7f00:1::", DeniedReason::Loopback),
        ("2001:0:c633:6401::80ff:fffe", DeniedReason::Loopback),
        ("0.0.0.0", DeniedReason::Unspecified),
        ("0.1.2.3", DeniedReason::Unspecified),
        ("::", DeniedReason::Unspecified),
        ("::ffff:0.0.0.0", DeniedReason::Unspecified),
        ("169.254.169.254", DeniedReason::Metadata),
        ("::ffff:169.254.169.254", DeniedReason::Metadata),
        ("64:ff9b::a9fe:a9fe", DeniedReason::Metadata),
        ("100.100.100.200", DeniedReason::Metadata),
        ("192.0.0.192", DeniedReason::Metadata),
        ("168.63.129.16", DeniedReason::Metadata),
        ("::ffff:168.63.129.16", DeniedReason::Metadata),
        ("64:ff9b::168.63.129.16", DeniedReason::Metadata),
        ("169.254.170.2", DeniedReason::Metadata),
        ("169.254.170.23", DeniedReason::Metadata),
        ("169.254.0.23", DeniedReason::Metadata),
        ("169.254.42.42", DeniedReason::Metadata),
        ("fd00:ec2::254", DeniedReason::Metadata),
        ("fd00:ec2::23", DeniedReason::Metadata),
        ("fd20:ce::254", DeniedReason::Metadata),
        ("fd00:c1::a9fe:a9fe", DeniedReason::Metadata),
        ("fd00:42::42", DeniedReason::Metadata),
        ("fe80::a9fe:a9fe", DeniedReason::Metadata),
        ("169.254.1.1", DeniedReason::LinkLocal),
        ("fe80::1", DeniedReason::LinkLocal),
        ("febf::1", DeniedReason::LinkLocal),
        ("224.0.0.1", DeniedReason::Multicast),
        ("239.255.255.255", DeniedReason::Multicast),
        ("ff02::1", DeniedReason::Multicast),
        ("255.255.255.255", DeniedReason::Broadcast),
        ("240.0.0.1", DeniedReason::Reserved),
        ("198.18.2.2", DeniedReason::OwnAddress),
        ("::ffff:198.18.2.2", DeniedReason::OwnAddress),
        ("64:ff9b::198.18.2.2", DeniedReason::OwnAddress),
        ("2001:db8:2::2", DeniedReason::OwnAddress),
    ];
    for (ip, expected) in cases {
        assert_eq!(reason(&acl, ip, 80), Some(expected), "{ip}");
    }
    for ip in ["198.18.3.2", "10.0.0.1", "64:ff9b::198.18.3.2", "2001:db8:2::3", "fd00:ec2::255"] {
        assert_eq!(reason(&acl, ip, 80), None, "{ip}");
    }
}

#[test]
fn an_entry_inside_a_special_range_opens_its_part_of_it() {
    let cases: [(&[&str], &str, Option<DeniedReason>); 19] = [
        (&["127.0.0.0/8"], "127.0.0.1", None),
        (&["127.0.0.1/32"], "127.0.0.1", None),
        (&["127.0.0.1/32"], "::ffff:127.0.0.1", None),
        (&["127.0.0.1/32", "0.0.0.0/0"], "127.0.0.2", Some(DeniedReason::Loopback)),
        (&["126.0.0.0/7"], "127.0.0.1", Some(DeniedReason::Loopback)),
        (&["::1/128"], "::1", None),
        (&["::1/128"], "127.0.0.1", Some(DeniedReason::Loopback)),
        // Link-local as a whole is still not its metadata service.
        (&["169.254.0.0/16"], "169.254.1.1", None),
        (&["169.254.0.0/16"], "169.254.169.254", Some(DeniedReason::Metadata)),
        (&["169.254.169.254/32"], "169.254.169.254", None),
        (&["168.63.129.0/24"], "168.63.129.16", Some(DeniedReason::Metadata)),
        (&["168.63.129.16/32"], "168.63.129.16", None),
        (&["fd20:ce::/32"], "fd20:ce::254", Some(DeniedReason::Metadata)),
        (&["fd20:ce::254/128"], "fd20:ce::254", None),
        (&["198.18.2.2/32"], "198.18.2.2", None),
        (&["198.18.2.0/24"], "198.18.2.2", Some(DeniedReason::OwnAddress)),
        // Both forms are asked for: the NAT64 one and the IPv4 one inside.
        (&["64:ff9b::/96"], "64:ff9b::7f00:1", Some(DeniedReason::Loopback)),
        (&["127.0.0.1/32"], "64:ff9b::7f00:1", Some(DeniedReason::NotListed)),
        (&["127.0.0.1/32", "64:ff9b::/96"], "64:ff9b::7f00:1", None),
    ];
    for (networks, ip, expected) in cases {
        assert_eq!(reason(&acl(networks), ip, 80), expected, "{networks:?} {ip}");
    }
    let port = reason(&acl(&["127.0.0.1/32"]), "127.0.0.1", 22);
    assert_eq!(port, Some(DeniedReason::Loopback), "the explicit entry must have the port too");
}

#[test]
fn a_private_address_is_not_reached_through_an_entry_for_all_of_ipv6() {
    let acl = acl(&["198.18.3.0/24", "::/0"]);
    for ip in ["64:ff9b::10.0.0.1", "::10.0.0.1", "2002:a00:1::", "2001:0:a00:1::"] {
        assert_eq!(reason(&acl, ip, 80), Some(DeniedReason::NotListed), "{ip}");
    }
    assert_eq!(reason(&acl, "64:ff9b::198.18.3.2", 80), None);
}

#[test]
fn a_local_translation_prefix_must_be_listed_and_still_hides_nothing_special() {
    let acl = acl(&["64:ff9b:1::/48"]);
    for ip in ["64:ff9b:1::127.0.0.1", "64:ff9b:1:7f00:0:100::", "64:ff9b:1::198.18.2.2"] {
        assert!(reason(&acl, ip, 80).is_some(), "{ip}");
    }
    assert_eq!(reason(&acl, "64:ff9b:1::198.18.3.2", 80), None);
}

#[test]
fn a_refusal_names_the_address_the_form_and_the_reason() {
    let denied = acl(&["::/0"]).permits("64:ff9b::7f00:1".parse().unwrap(), 80).unwrap_err();
    assert_eq!(
        denied.to_string(),
        "destination 64:ff9b::7f00:1 port 80 is denied: it leads to 127.0.0.1, which is a \
         loopback address"
    );
    let denied = acl(&[]).permits("198.18.3.2".parse().unwrap(), 80).unwrap_err();
    assert_eq!(
        denied.to_string(),
        "destination 198.18.3.2 port 80 is denied: it is in no [[destinations.allow]]"
    );
}

#[test]
fn the_first_entry_that_has_an_address_says_whom_it_is_handed_to() {
    let edge = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let entry = |network: &str, port: u16, forward_to| Allow {
        host: AllowedHost::Network(network.parse().unwrap()),
        protocol: Protocol::Tcp,
        ports: vec![port..=port],
        forward_to,
    };
    let acl = Acl::new(
        vec![
            entry("198.18.3.1/32", 80, Some(edge(1))),
            entry("198.18.3.1/32", 443, Some(edge(2))),
            entry("198.18.3.0/24", 80, None),
            entry("198.18.0.0/15", 80, Some(edge(3))),
            Allow {
                host: AllowedHost::Name("origin.example".to_owned()),
                protocol: Protocol::Tcp,
                ports: vec![80..=80],
                forward_to: Some(edge(4)),
            },
        ],
        OwnAddresses::default(),
    );
    let named = |name, ip: &str, port| acl.forward_to(name, ip.parse().unwrap(), port);
    let forward_to = |ip: &str, port| named(None, ip, port);
    assert_eq!(forward_to("198.18.3.1", 80), Some(edge(1)));
    assert_eq!(forward_to("::ffff:198.18.3.1", 80), Some(edge(1)));
    assert_eq!(forward_to("198.18.3.1", 443), Some(edge(2)));
    assert_eq!(forward_to("198.18.3.2", 80), None);
    assert_eq!(forward_to("198.19.0.1", 80), Some(edge(3)));
    assert_eq!(forward_to("198.19.0.1", 443), None);
    assert_eq!(named(Some("origin.example"), "10.0.0.1", 80), Some(edge(4)));
    assert_eq!(named(Some("other.example"), "10.0.0.1", 80), None);
}

#[test]
fn a_name_is_allowed_with_whatever_it_resolves_to_outside_special_ranges() {
    let allow =
        |host| Allow { host, protocol: Protocol::Tcp, ports: vec![443..=443], forward_to: None };
    let name = allow(AllowedHost::Name("origin.example".to_owned()));
    let loopback = allow(AllowedHost::Network("127.0.0.9/32".parse().unwrap()));
    let acl = Acl::new(vec![name, loopback], own());
    let reason = |name: &str, ip: &str, port| {
        acl.permits_named(name, ip.parse().unwrap(), port).err().map(|denied| denied.reason)
    };
    let cases = [
        ("origin.example", "198.18.3.2", 443, None),
        ("origin.example.", "2001:db8:3::2", 443, None),
        ("ORIGIN.example", "10.0.0.1", 443, None),
        ("origin.example", "127.0.0.9", 443, None),
        ("origin.example", "198.18.3.2", 80, Some(DeniedReason::NotListed)),
        ("other.example", "198.18.3.2", 443, Some(DeniedReason::NotListed)),
        ("a.origin.example", "198.18.3.2", 443, Some(DeniedReason::NotListed)),
        ("origin.example", "127.0.0.1", 443, Some(DeniedReason::Loopback)),
        ("origin.example", "169.254.169.254", 443, Some(DeniedReason::Metadata)),
        ("origin.example", "::ffff:127.0.0.1", 443, Some(DeniedReason::Loopback)),
        ("origin.example", "64:ff9b::7f00:1", 443, Some(DeniedReason::Loopback)),
        ("origin.example", "198.18.2.2", 443, Some(DeniedReason::OwnAddress)),
    ];
    for (name, ip, port, expected) in cases {
        assert_eq!(reason(name, ip, port), expected, "{name} at {ip} port {port}");
    }
    // A flow to the address itself did not ask for the name.
    assert!(acl.permits("198.18.3.2".parse().unwrap(), 443).is_err());
}

#[test]
fn everywhere_is_all_but_special_ranges() {
    let allow = Allow {
        host: AllowedHost::Network("127.0.0.1/32".parse().unwrap()),
        protocol: Protocol::Tcp,
        ports: vec![80..=80],
        forward_to: None,
    };
    let acl = Acl::everywhere(vec![allow], own());
    let cases = [
        ("203.0.113.9", 1, None),
        ("2001:db8::1", 65535, None),
        ("127.0.0.1", 80, None),
        ("127.0.0.1", 81, Some(DeniedReason::Loopback)),
        ("198.18.2.2", 80, Some(DeniedReason::OwnAddress)),
        ("169.254.169.254", 80, Some(DeniedReason::Metadata)),
        ("::1", 80, Some(DeniedReason::Loopback)),
    ];
    for (ip, port, expected) in cases {
        assert_eq!(reason(&acl, ip, port), expected, "{ip} port {port}");
    }
}

#[test]
fn a_rule_is_for_one_protocol_only() {
    let allow = |network: &str, protocol| Allow {
        host: AllowedHost::Network(network.parse().unwrap()),
        protocol,
        ports: vec![1..=u16::MAX],
        forward_to: None,
    };
    let both = [allow("198.18.3.0/24", Protocol::Tcp), allow("198.18.4.0/24", Protocol::Udp)];
    for (protocol, open, closed) in
        [(Protocol::Tcp, "198.18.3.1", "198.18.4.1"), (Protocol::Udp, "198.18.4.1", "198.18.3.1")]
    {
        let acl = Acl::of(protocol, &both, OwnAddresses::default());
        assert!(acl.permits(open.parse().unwrap(), 53).is_ok(), "{protocol:?}");
        assert!(acl.permits(closed.parse().unwrap(), 53).is_err(), "{protocol:?}");
    }
}

#[test]
fn own_addresses_that_are_added_later_are_refused_from_then_on() {
    let own = own();
    let allow = Allow {
        host: AllowedHost::Network("0.0.0.0/0".parse().unwrap()),
        protocol: Protocol::Tcp,
        ports: vec![1..=u16::MAX],
        forward_to: None,
    };
    let acl = Acl::new(vec![allow], own.clone());
    assert_eq!(reason(&acl, "198.18.2.9", 80), None);
    own.set(["198.18.2.9".parse().unwrap()]);
    assert_eq!(reason(&acl, "198.18.2.9", 80), Some(DeniedReason::OwnAddress));
    assert_eq!(reason(&acl, "198.18.2.2", 80), None, "it was removed");
}

#[test]
fn a_name_is_resolved_only_where_an_entry_could_permit_an_address_of_it() {
    let allow = |host, port| Allow {
        host,
        protocol: Protocol::Tcp,
        ports: vec![port..=port],
        forward_to: None,
    };
    let name = || allow(AllowedHost::Name("origin.example".to_owned()), 443);
    let network = allow(AllowedHost::Network("198.18.0.0/15".parse().unwrap()), 80);
    let names = Acl::new(vec![name()], OwnAddresses::default());
    let both = Acl::new(vec![name(), network], OwnAddresses::default());
    let none = Acl::new(vec![], OwnAddresses::default());
    let (not_listed, port) = (Err(DeniedReason::NotListed), Err(DeniedReason::PortNotListed));
    for (acl, name, asked, expected) in [
        (&names, "origin.example", 443, Ok(())),
        (&names, "ORIGIN.example.", 443, Ok(())),
        (&names, "origin.example", 80, port),
        (&names, "other.example", 443, not_listed),
        (&both, "other.example", 80, Ok(())),
        (&both, "other.example", 443, port),
        (&both, "origin.example", 443, Ok(())),
        (&none, "origin.example", 443, not_listed),
    ] {
        assert_eq!(acl.may_permit_name(name, asked), expected, "{name} port {asked}");
    }
}
