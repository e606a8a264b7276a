//! Ranges that no wider allow entry opens.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::DeniedReason;

// RFC 6890 special-purpose ranges that are never an ordinary host; the more specific first, because
// the first match names the reason. Private ranges (RFC 1918, fc00::/7) are not here: origins are
// often there, and an entry such as 0.0.0.0/0 is the operator's own decision.
const V4: [([u8; 4], u8, DeniedReason); 9] = [
    ([0, 0, 0, 0], 8, DeniedReason::Unspecified),
    ([127, 0, 0, 0], 8, DeniedReason::Loopback),
    // AWS, Azure, Google and most others; Alibaba; Oracle.
    ([169, 254, 169, 254], 32, DeniedReason::Metadata),
    ([100, 100, 100, 200], 32, DeniedReason::Metadata),
    ([192, 0, 0, 192], 32, DeniedReason::Metadata),
    ([169, 254, 0, 0], 16, DeniedReason::LinkLocal),
    ([224, 0, 0, 0], 4, DeniedReason::Multicast),
    ([255, 255, 255, 255], 32, DeniedReason::Broadcast),
    ([240, 0, 0, 0], 4, DeniedReason::Reserved),
];

const V6: [([u16; 8], u8, DeniedReason); 6] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, DeniedReason::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, DeniedReason::Loopback),
    // AWS.
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, DeniedReason::Metadata),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, DeniedReason::LinkLocal),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, DeniedReason::Multicast),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, DeniedReason::LocalTranslation),
];

/// The ranges, each with the reason that is given for it.
pub(super) fn ranges() -> impl Iterator<Item = (IpNet, DeniedReason)> {
    let v4 = V4.into_iter().map(|(octets, prefix, reason)| {
        (IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(octets), prefix)), reason)
    });
    let v6 = V6.into_iter().map(|(segments, prefix, reason)| {
        (IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from(segments), prefix)), reason)
    });
    v4.chain(v6)
}
