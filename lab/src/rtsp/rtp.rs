//! RTP packets (RFC 3550) of H.264 (RFC 6184).

use super::annex_b::is_slice;

/// The fixed part of an RTP packet's header (RFC 3550, Section 5.1).
const HEADER_BYTES: usize = 12;

/// An RTP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpPacket {
    /// Rises by one with each packet.
    pub sequence: u16,
    /// Sampling instant, in units of the payload's clock (90 kHz for video).
    pub timestamp: u32,
    /// Last packet of a frame.
    pub marker: bool,
    /// Whole packet, header included.
    pub bytes: usize,
    /// Bytes of slices in it, as they are in the file: NAL units without start codes.
    pub slice_bytes: usize,
}

/// Parses a packet; `None` for anything but RTP.
#[must_use]
pub fn read(packet: &[u8]) -> Option<RtpPacket> {
    const VERSION: u8 = 2;
    let header: &[u8; HEADER_BYTES] = packet.first_chunk()?;
    if header[0] >> 6 != VERSION {
        return None;
    }
    Some(RtpPacket {
        sequence: u16::from_be_bytes([header[2], header[3]]),
        timestamp: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        marker: header[1] & 0x80 != 0,
        bytes: packet.len(),
        slice_bytes: slice_bytes(packet),
    })
}

/// A whole NAL unit, or a fragment (FU-A), with two bytes in place of the unit's first.
fn slice_bytes(packet: &[u8]) -> usize {
    const FU_A: u8 = 28;
    const START: u8 = 0x80;
    let sources = usize::from(packet[0] & 0x0f);
    match packet.get(HEADER_BYTES + 4 * sources..) {
        Some([first, header, data @ ..]) if first & 0x1f == FU_A && is_slice(*header) => {
            data.len() + usize::from(header & START != 0)
        }
        Some(unit @ [first, ..]) if is_slice(*first) => unit.len(),
        _ => 0,
    }
}

/// Packets that came over UDP, each once, in the order in which they were sent. A packet may be up to half
/// of the sequence numbers late.
#[must_use]
pub fn in_order<T>(packets: impl IntoIterator<Item = (T, RtpPacket)>) -> Vec<(T, RtpPacket)> {
    let mut highest: Option<i64> = None;
    let mut numbered: Vec<(i64, (T, RtpPacket))> = packets
        .into_iter()
        .map(|(at, packet)| {
            // RFC 3550, Appendix A.1: continued beyond 16 bits.
            let ahead =
                |highest: i64| i64::from(packet.sequence.wrapping_sub(highest as u16) as i16);
            let number = highest.map_or(i64::from(packet.sequence), |it| it + ahead(it));
            highest = highest.max(Some(number));
            (number, (at, packet))
        })
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.dedup_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, packet)| packet).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn packet(sequence: u16, timestamp: u32, marker: bool) -> Vec<u8> {
        let [sequence, timestamp] =
            [sequence.to_be_bytes().to_vec(), timestamp.to_be_bytes().to_vec()];
        let kind = 96 | if marker { 0x80 } else { 0 };
        [vec![0x80, kind], sequence, timestamp, vec![0; 4], vec![0x5a; 100]].concat()
    }

    #[test]
    fn fragments_add_up_to_the_slice_and_parameter_sets_do_not_count() {
        let header = packet(0, 0, false)[..HEADER_BYTES].to_vec();
        let bytes = |payload: &[u8]| slice_bytes(&[header.as_slice(), payload].concat());
        // An IDR slice of 7 bytes: its first, then 2, 3 and 1.
        assert_eq!(bytes(&[0x7c, 0x85, 1, 2]), 3);
        assert_eq!(bytes(&[0x7c, 0x05, 3, 4, 5]), 3);
        assert_eq!(bytes(&[0x7c, 0x45, 6]), 1);
        assert_eq!(bytes(&[0x41, 1, 2, 3]), 4);
        assert_eq!(bytes(&[0x67, 1, 2, 3]), 0, "a parameter set");
        assert_eq!(bytes(&[]), 0);
    }

    #[test]
    fn what_is_no_rtp_is_none() {
        assert!(read(&packet(7, 9, true)).is_some_and(|it| it.sequence == 7 && it.marker));
        assert_eq!(read(&packet(7, 9, true)[..11]), None);
        assert_eq!(read(&[0x40; 20]), None);
    }

    #[test]
    fn packets_that_overtook_each_other_are_put_in_order_once_each() {
        let came = [65_534, 0, 65_535, 0, 3, 1, 65_534, 2];
        let packets = came.iter().map(|sequence| (*sequence, read(&packet(*sequence, 0, false))));
        let packets = packets.map(|(at, packet)| (at, packet.unwrap()));
        let order: Vec<u16> = in_order(packets).iter().map(|(_, it)| it.sequence).collect();
        assert_eq!(order, [65_534, 65_535, 0, 1, 2, 3]);
        // The first may have been overtaken too, also across zero.
        let late = [1, 65_535, 0].map(|it| ((), read(&packet(it, 0, false)).unwrap()));
        let order: Vec<u16> = in_order(late).iter().map(|(_, it)| it.sequence).collect();
        assert_eq!(order, [65_535, 0, 1]);
    }
}
