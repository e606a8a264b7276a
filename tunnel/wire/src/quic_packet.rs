//! Recognition of QUIC by the first datagram of a UDP flow.

/// The destination port of HTTP/3 (RFC 9114, Section 3.2), at which nothing else is expected.
const HTTP3_PORT: u16 = 443;
/// First bit of the first byte: a long header (RFC 8999, Section 5.1).
const LONG_HEADER: u8 = 0x80;
/// Second bit: 1 in all packets of versions 1 and 2 before a peer has allowed another value (RFC 9000, Section 17;
/// RFC 9287, Section 3).
const FIXED_BIT: u8 = 0x40;
/// Least bytes of a datagram with a client's Initial packet (RFC 9000, Section 14.1).
const MIN_INITIAL_BYTES: usize = 1200;
/// Least bytes of a datagram with a short header that a peer does not take for garbage: header, packet number and
/// the sample for header protection (RFC 9001, Section 5.4.2).
const MIN_SHORT_BYTES: usize = 21;
/// RFC 9000, Section 15, and RFC 9369, Section 3.1.
const VERSIONS: [u32; 2] = [1, 0x6b33_43cf];
/// Drafts of version 1: the last byte is the number of the draft.
const DRAFT_VERSIONS: u32 = 0xff00_0000;

/// Whether a UDP flow to `port` that begins with `datagram` is one of QUIC.
///
/// Connections begin with an Initial packet, which is recognised at every port. A flow may also begin within a connection,
/// as after its client has changed its address; there is little to recognise then, so the port has to be that of HTTP/3.
pub fn is_quic(datagram: &[u8], port: u16) -> bool {
    let Some((&first, rest)) = datagram.split_first() else { return false };
    if first & FIXED_BIT == 0 {
        return false;
    }
    if first & LONG_HEADER == 0 {
        return port == HTTP3_PORT && datagram.len() >= MIN_SHORT_BYTES;
    }
    let Some((version, _)) = rest.split_first_chunk() else { return false };
    let version = u32::from_be_bytes(*version);
    let is_known = VERSIONS.contains(&version) || version & 0xffff_ff00 == DRAFT_VERSIONS;
    is_known && (port == HTTP3_PORT || datagram.len() >= MIN_INITIAL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(head: &[u8], bytes: usize) -> Vec<u8> {
        let mut datagram = head.to_vec();
        datagram.resize(bytes, 0);
        datagram
    }

    #[test]
    fn initial_packets_of_known_versions_are_recognised_at_every_port() {
        for version in [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf], [0xff, 0, 0, 29]] {
            let head = [&[0xc3][..], &version].concat();
            for port in [443, 8443] {
                assert!(is_quic(&datagram(&head, 1200), port), "{version:?} {port}");
            }
            assert!(!is_quic(&datagram(&head, 1199), 8443), "{version:?}");
        }
    }

    #[test]
    fn short_headers_are_recognised_at_the_port_of_http3() {
        assert!(is_quic(&datagram(&[0x4f], 21), 443));
        assert!(!is_quic(&datagram(&[0x4f], 20), 443));
        assert!(!is_quic(&datagram(&[0x4f], 1200), 8443));
    }

    #[test]
    fn other_protocols_are_not_taken_for_quic() {
        for (name, head, bytes) in [
            ("nothing", &[][..], 0),
            ("version negotiation", &[0xc0, 0, 0, 0, 0], 1200),
            ("unknown version", &[0xc0, 0x51, 0x30, 0x34, 0x36], 1200),
            ("truncated version", &[0xc0, 0, 0, 0], 4),
            ("DTLS", &[0x16, 0xfe, 0xfd, 0, 0], 1200),
            ("RTP", &[0x80, 0x60, 0, 1, 0], 1200),
            ("RTCP", &[0x80, 0xc8, 0, 6, 0], 28),
            ("STUN", &[0x00, 0x01, 0, 8, 0x21], 28),
            ("WireGuard", &[0x01, 0, 0, 0, 0], 148),
            ("OpenVPN", &[0x38, 1, 2, 3, 4], 54),
        ] {
            assert!(!is_quic(&datagram(head, bytes), 443), "{name}");
        }
    }
}
