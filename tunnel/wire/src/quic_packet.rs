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
/// Most bytes of a connection ID in versions 1 and 2 and the drafts (RFC 9000, Section 17.2).
const MAX_CONNECTION_ID_BYTES: usize = 20;
/// Least bytes of a datagram with a short header that a peer does not take for garbage: header, packet number and
/// the sample for header protection (RFC 9001, Section 5.4.2).
const MIN_SHORT_BYTES: usize = 21;
/// RFC 9000, Section 15, and RFC 9369, Section 3.1.
const VERSIONS: [u32; 2] = [1, 0x6b33_43cf];
/// Drafts of version 1: the last byte is the number of the draft.
const DRAFT_VERSIONS: u32 = 0xff00_0000;

/// Whether `datagram`, the first one of a UDP flow to `port`, shows that the flow is one of QUIC: it has a valid long header.
///
/// Connections begin with an Initial packet, which is recognised at every port. Smaller datagrams with a long header are
/// part of a handshake that began elsewhere; the port has to be that of HTTP/3 for them.
pub fn has_quic_long_header(datagram: &[u8], port: u16) -> bool {
    let Some((&first, rest)) = datagram.split_first() else { return false };
    if first & (LONG_HEADER | FIXED_BIT) != LONG_HEADER | FIXED_BIT {
        return false;
    }
    let Some((version, rest)) = rest.split_first_chunk() else { return false };
    let version = u32::from_be_bytes(*version);
    let is_known = VERSIONS.contains(&version) || version & 0xffff_ff00 == DRAFT_VERSIONS;
    is_known
        && (port == HTTP3_PORT || datagram.len() >= MIN_INITIAL_BYTES)
        && after_connection_id(rest).and_then(after_connection_id).is_some()
}

/// Whether a flow whose endpoints are known to use QUIC may continue with `datagram`: it has a short header.
///
/// Alone it proves nothing: the two bits that it begins with are also those of OpenVPN's data packets.
pub fn may_have_quic_short_header(datagram: &[u8]) -> bool {
    let is_short = |first: &u8| first & (LONG_HEADER | FIXED_BIT) == FIXED_BIT;
    datagram.first().is_some_and(is_short) && datagram.len() >= MIN_SHORT_BYTES
}

/// What follows a connection ID and the byte with its length (RFC 8999, Section 5.1).
fn after_connection_id(bytes: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = bytes.split_first()?;
    let length = usize::from(length);
    (length <= MAX_CONNECTION_ID_BYTES).then(|| rest.get(length..)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(head: &[u8], bytes: usize) -> Vec<u8> {
        let mut datagram = head.to_vec();
        datagram.resize(bytes, 0);
        datagram
    }

    /// A long header of version 1 with connection IDs of these lengths.
    fn long_header(destination_bytes: u8, source_bytes: u8) -> Vec<u8> {
        let mut header = vec![0xc3, 0, 0, 0, 1];
        for length in [destination_bytes, source_bytes] {
            header.push(length);
            header.resize(header.len() + usize::from(length), 0xee);
        }
        header
    }

    #[test]
    fn initial_packets_of_known_versions_are_recognised_at_every_port() {
        for version in [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf], [0xff, 0, 0, 29]] {
            let head = [&[0xc3][..], &version].concat();
            for port in [443, 8443] {
                assert!(has_quic_long_header(&datagram(&head, 1200), port), "{version:?} {port}");
            }
            assert!(!has_quic_long_header(&datagram(&head, 1199), 8443), "{version:?}");
            assert!(has_quic_long_header(&datagram(&head, 100), 443), "{version:?}");
        }
    }

    #[test]
    fn connection_ids_of_a_long_header_have_20_bytes_at_most_and_lie_in_the_datagram() {
        for (destination_bytes, source_bytes) in [(0, 0), (8, 0), (20, 20)] {
            let header = long_header(destination_bytes, source_bytes);
            assert!(has_quic_long_header(&datagram(&header, 1200), 8443));
            assert!(has_quic_long_header(&header, 443));
            assert!(!has_quic_long_header(&header[..header.len() - 1], 443), "it is cut");
        }
        for (destination_bytes, source_bytes) in [(21, 8), (8, 21), (255, 0)] {
            let header = long_header(destination_bytes, source_bytes);
            assert!(!has_quic_long_header(&datagram(&header, 1200), 443));
        }
    }

    #[test]
    fn short_headers_have_the_fixed_bit_and_a_least_length() {
        assert!(may_have_quic_short_header(&datagram(&[0x4f], 21)));
        for (first, bytes) in [(0x4f, 20), (0x0f, 21), (0xcf, 21)] {
            assert!(!may_have_quic_short_header(&datagram(&[first], bytes)), "{first:x} {bytes}");
        }
        assert!(!may_have_quic_short_header(&[]));
        assert!(!has_quic_long_header(&datagram(&[0x4f], 1200), 443));
    }

    /// First bytes of OpenVPN are an opcode, shifted by 3, and the number of a key.
    #[test]
    fn other_protocols_are_not_taken_for_quic() {
        for (name, head, bytes) in [
            ("nothing", &[][..], 0),
            ("version negotiation", &[0xc0, 0, 0, 0, 0], 1200),
            ("unknown version", &[0xc0, 0x51, 0x30, 0x34, 0x36], 1200),
            ("truncated version", &[0xc0, 0, 0, 0], 4),
            ("no fixed bit", &[0x83, 0, 0, 0, 1, 0, 0], 1200),
            ("DTLS", &[0x16, 0xfe, 0xfd, 0, 0], 1200),
            ("DTLS 1.3 record with a connection ID", &[0x2f, 1, 2, 3, 4], 1200),
            ("RTP", &[0x80, 0x60, 0, 1, 0], 1200),
            ("RTCP", &[0x80, 0xc8, 0, 6, 0], 28),
            ("STUN", &[0x00, 0x01, 0, 8, 0x21], 28),
            ("WireGuard", &[0x01, 0, 0, 0, 0], 148),
            ("OpenVPN, P_CONTROL_HARD_RESET_CLIENT_V2", &[0x38, 1, 2, 3, 4], 54),
            ("OpenVPN, P_CONTROL_HARD_RESET_CLIENT_V3", &[0x50, 1, 2, 3, 4], 1000),
            ("OpenVPN, P_CONTROL_WKC_V1", &[0x58, 1, 2, 3, 4], 1200),
            ("OpenVPN, P_DATA_V2", &[0x48, 0, 0, 1, 0], 1400),
        ] {
            assert!(!has_quic_long_header(&datagram(head, bytes), 443), "{name}");
        }
    }
}
