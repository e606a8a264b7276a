//! IPv4 addresses inside IPv6 ones: where a translator or a tunnel would take the packet.

use std::net::{IpAddr, Ipv4Addr};

/// An IPv4 address found in an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Embedded {
    /// The prefix says where it is.
    Certain(Ipv4Addr),
    /// One of several readings, of which the network's operator uses one.
    Possible(Ipv4Addr),
}

impl Embedded {
    pub(super) fn address(self) -> Ipv4Addr {
        match self {
            Self::Certain(address) | Self::Possible(address) => address,
        }
    }
}

/// All IPv4 addresses that `ip` can lead to, other than itself.
pub(super) fn forms(ip: IpAddr) -> Vec<Embedded> {
    let IpAddr::V6(ip) = ip else { return Vec::new() };
    let octets = ip.octets();
    let at = |positions: [usize; 4]| Ipv4Addr::from(positions.map(|position| octets[position]));
    let last = at([12, 13, 14, 15]);
    match ip.segments() {
        // :: and ::1 are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Vec::new(),
        // IPv4-compatible (RFC 4291 §2.5.5.1), IPv4-translated (RFC 2765 §2.1), and NAT64's
        // well-known prefix (RFC 6052 §2.1).
        [0, 0, 0, 0, 0, 0, _, _]
        | [0, 0, 0, 0, 0xffff, 0, _, _]
        | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => vec![Embedded::Certain(last)],
        // NAT64 for local use (RFC 8215), with a prefix of 48, 56, 64 or 96 bits; octet 8 is
        // skipped (RFC 6052 §2.2). A reading in 0.0.0.0/8 is of zeros around another one.
        [0x64, 0xff9b, 1, ..] => [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]]
            .map(at)
            .into_iter()
            .filter(|address| address.octets()[0] != 0)
            .map(Embedded::Possible)
            .collect(),
        // 6to4 (RFC 3056 §2).
        [0x2002, ..] => vec![Embedded::Certain(at([2, 3, 4, 5]))],
        // Teredo (RFC 4380 §4): the server, and the client with its bits inverted.
        [0x2001, 0, ..] => {
            vec![
                Embedded::Certain(at([4, 5, 6, 7])),
                Embedded::Certain(Ipv4Addr::from(!u32::from(last))),
            ]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prefix_is_taken_apart_as_its_rfc_says() {
        let inner = Ipv4Addr::new(192, 0, 2, 33);
        // RFC 6052 §2.4 has these forms of 192.0.2.33, there below 2001:db8::.
        let cases: [(&str, Embedded); 9] = [
            ("::192.0.2.33", Embedded::Certain(inner)),
            ("::ffff:0:192.0.2.33", Embedded::Certain(inner)),
            ("64:ff9b::192.0.2.33", Embedded::Certain(inner)),
            ("64:ff9b:1:c000:2:2100::", Embedded::Possible(inner)),
            ("64:ff9b:1:c0:0:221::", Embedded::Possible(inner)),
            ("64:ff9b:1:0:c0:2:2100:0", Embedded::Possible(inner)),
            ("64:ff9b:1::192.0.2.33", Embedded::Possible(inner)),
            ("2002:c000:221::1", Embedded::Certain(inner)),
            ("2001:0:c000:221::", Embedded::Certain(inner)),
        ];
        for (outer, expected) in cases {
            let found = forms(outer.parse().unwrap());
            assert!(found.contains(&expected), "{outer}: {found:?}");
        }
        // RFC 4380 §4's client part: the complement of the address.
        let teredo = forms("2001:0:c000:221::3fff:fdde".parse().unwrap());
        assert_eq!(teredo, [Embedded::Certain(inner), Embedded::Certain(inner)]);
    }

    #[test]
    fn an_ordinary_address_holds_no_other() {
        for ip in ["192.0.2.33", "2001:db8::c000:221", "::1", "::", "fe80::1", "fd00:ec2::254"] {
            assert_eq!(forms(ip.parse().unwrap()), [], "{ip}");
        }
    }
}
