//! Packets of QUIC versions that are not supported.
//!
//! Only what all versions have in common may be read of them (RFC 8999, Section 5.1): version 2, for
//! example, has other packet types in the same bits (RFC 9369, Section 3.2).

/// The version of Version Negotiation packets (RFC 8999, Section 6), which only clients get.
const NEGOTIATION: u32 = 0;

/// The connection IDs of a packet with a long header, in any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invariants<'a> {
    pub(crate) dcid: &'a [u8],
    pub(crate) scid: &'a [u8],
}

/// What is known of a packet whose version is not supported; `None` for all other packets.
pub(crate) fn unsupported(datagram: &[u8]) -> Option<Invariants<'_>> {
    let (first, rest) = datagram.split_first()?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    let version = u32::from_be_bytes(*version);
    if first & 0x80 == 0 || version == NEGOTIATION || quiche::version_is_supported(version) {
        return None;
    }
    let (dcid, rest) = split_id(rest)?;
    let (scid, _) = split_id(rest)?;
    Some(Invariants { dcid, scid })
}

/// An ID with its length ahead of it, and what follows.
fn split_id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u32, dcid: &[u8], scid: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xd0];
        packet.extend(version.to_be_bytes());
        for id in [dcid, scid] {
            packet.push(id.len() as u8);
            packet.extend(id);
        }
        packet
    }

    #[test]
    fn ids_of_other_versions_are_read_whatever_their_length() {
        for (dcid, scid) in [(&[1; 8][..], &[][..]), (&[], &[2; 20]), (&[3; 255], &[4; 255])] {
            let packet = packet(0x6b33_43cf, dcid, scid);
            assert_eq!(unsupported(&packet), Some(Invariants { dcid, scid }));
        }
    }

    #[test]
    fn supported_versions_negotiations_and_short_headers_are_left_alone() {
        assert_eq!(unsupported(&packet(quiche::PROTOCOL_VERSION, &[1; 8], &[])), None);
        assert_eq!(unsupported(&packet(NEGOTIATION, &[1; 8], &[])), None);
        assert_eq!(unsupported(&[0x40; 1200]), None);
    }

    #[test]
    fn a_packet_that_is_cut_off_is_none() {
        let whole = packet(0x6b33_43cf, &[1; 8], &[2; 8]);
        for len in 0..whole.len() {
            assert_eq!(unsupported(&whole[..len]), None, "{len} bytes");
        }
    }
}
