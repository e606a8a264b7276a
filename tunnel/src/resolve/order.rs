//! The order in which to try a name's addresses: RFC 6724 §6, as far as it needs no more than the
//! source address that the kernel would choose: rules 1, 5 and 6. Within them the order stays that
//! of the answer.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::Ipv6Net;

use crate::source_address::source_address;

/// Prefixes with their precedence and label: RFC 6724 §2.1.
const POLICY: [([u16; 8], u8, u32, u32); 9] = [
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, 50, 0),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, 35, 4),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, 1, 3),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, 5, 5),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, 30, 2),
    ([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16, 1, 12),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, 1, 11),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, 3, 13),
    ([0, 0, 0, 0, 0, 0, 0, 0], 0, 40, 1),
];

/// Sorts addresses by what they are and by where this host would send from.
pub(super) fn sort(addresses: &mut [SocketAddr]) {
    if addresses.len() > 1 {
        sort_with(addresses, |address| source_address(address).ok());
    }
}

fn sort_with(addresses: &mut [SocketAddr], source: impl Fn(SocketAddr) -> Option<IpAddr>) {
    addresses.sort_by_cached_key(|address| {
        let (precedence, label) = policy(address.ip());
        match source(*address) {
            None => (true, true, Reverse(precedence)),
            Some(source) => (false, policy(source).1 != label, Reverse(precedence)),
        }
    });
}

fn policy(ip: IpAddr) -> (u32, u32) {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut rows = POLICY.into_iter().filter(|(segments, prefix, ..)| {
        Ipv6Net::new_assert(Ipv6Addr::from(*segments), *prefix).contains(&ip)
    });
    rows.next().map_or((40, 1), |(_, _, precedence, label)| (precedence, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(addresses: &[&str], sources: &[(&str, &str)]) -> Vec<String> {
        let mut addresses: Vec<SocketAddr> =
            addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 80)).collect();
        sort_with(&mut addresses, |address| {
            let source = sources.iter().find(|(to, _)| *to == address.ip().to_string());
            source.map(|(_, source)| source.parse().unwrap())
        });
        addresses.iter().map(|address| address.ip().to_string()).collect()
    }

    #[test]
    fn ipv6_is_first_where_this_host_has_it_and_last_where_not() {
        let both = ["203.0.113.9", "2001:db8::9"];
        let v4 = ("203.0.113.9", "198.18.0.1");
        assert_eq!(sorted(&both, &[v4, ("2001:db8::9", "2001:db8::1")]), [both[1], both[0]]);
        assert_eq!(sorted(&both, &[v4]), both);
        // A source of another kind: IPv4 has the better chance (rule 5).
        assert_eq!(sorted(&both, &[v4, ("2001:db8::9", "fd00::1")]), both);
    }

    #[test]
    fn the_order_of_the_answer_stays_among_equals() {
        let three = ["203.0.113.9", "203.0.113.1", "203.0.113.5"];
        let sources = three.map(|to| (to, "198.18.0.1"));
        assert_eq!(sorted(&three, &sources), three);
    }
}
