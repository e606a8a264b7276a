//! Ranges that no wider allow entry opens.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::denied_reason::DeniedReason;

// RFC 6890 special-purpose ranges that are never an ordinary host; the more specific first, because
// the first match names the reason. Private ranges (RFC 1918, fc00::/7) are not here: origins are
// often there, and an entry such as 0.0.0.0/0 is the operator's own decision.
const V4: [([u8; 4], u8, DeniedReason); 14] = [
    ([0, 0, 0, 0], 8, DeniedReason::Unspecified),
    ([127, 0, 0, 0], 8, DeniedReason::Loopback),
    // Instance metadata of AWS, Azure, Google, Oracle, OpenStack and most others.
    ([169, 254, 169, 254], 32, DeniedReason::Metadata),
    // AWS: credentials of ECS tasks and of EKS pods ("EKS Pod Identity" in the EKS User Guide).
    ([169, 254, 170, 2], 32, DeniedReason::Metadata),
    ([169, 254, 170, 23], 32, DeniedReason::Metadata),
    // Azure's WireServer ("What is IP address 168.63.129.16?" in the Virtual Network docs).
    ([168, 63, 129, 16], 32, DeniedReason::Metadata),
    // Alibaba Cloud, Oracle Cloud Classic, Tencent Cloud, Scaleway.
    ([100, 100, 100, 200], 32, DeniedReason::Metadata),
    ([192, 0, 0, 192], 32, DeniedReason::Metadata),
    ([169, 254, 0, 23], 32, DeniedReason::Metadata),
    ([169, 254, 42, 42], 32, DeniedReason::Metadata),
    ([169, 254, 0, 0], 16, DeniedReason::LinkLocal),
    ([224, 0, 0, 0], 4, DeniedReason::Multicast),
    ([255, 255, 255, 255], 32, DeniedReason::Broadcast),
    ([240, 0, 0, 0], 4, DeniedReason::Reserved),
];

const V6: [([u16; 8], u8, DeniedReason); 11] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, DeniedReason::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, DeniedReason::Loopback),
    // AWS: instance metadata and EKS Pod Identity.
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, DeniedReason::Metadata),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128, DeniedReason::Metadata),
    // Google Compute Engine on hosts with IPv6 only, Oracle Cloud, Scaleway, OpenStack (Nova).
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, DeniedReason::Metadata),
    ([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, DeniedReason::Metadata),
    ([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128, DeniedReason::Metadata),
    ([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, DeniedReason::Metadata),
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
