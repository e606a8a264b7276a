//! RTP packets (RFC 3550): the header, and whether a packet begins a group of pictures.

mod pictures;

use std::ops::Range;

pub use pictures::{PictureKind, h264, h265};

/// The fixed part of a header (Section 5.1).
const FIXED_BYTES: usize = 12;
/// Where the sequence number is in a packet.
pub const SEQUENCE: Range<usize> = 2..4;

/// The header of a packet (Section 5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpHeader {
    /// With most encodings, the packet is the last of its frame.
    pub marker: bool,
    /// What the payload is; a session description says it.
    pub payload_type: u8,
    /// One more with each packet.
    pub sequence: u16,
    /// Time of the first byte of the payload, in units of the encoding's clock. All packets of a frame have the same.
    pub timestamp: u32,
    /// The source of the stream.
    pub ssrc: u32,
    /// Where the payload is in the packet, without padding.
    pub payload: Range<usize>,
}

/// Whether a packet is RTCP, where both use one port or channel (RFC 5761, Section 4).
pub fn is_rtcp(packet: &[u8]) -> bool {
    matches!(packet, [_, 192..=223, ..])
}

/// Reads the header of a whole packet; `None` if it is no RTP.
pub fn parse(packet: &[u8]) -> Option<RtpHeader> {
    let fixed: &[u8; FIXED_BYTES] = packet.first_chunk()?;
    let [first, second, sequence @ .., t0, t1, t2, t3, s0, s1, s2, s3] = *fixed;
    if first >> 6 != 2 || is_rtcp(packet) {
        return None;
    }
    let sources_bytes = 4 * usize::from(first & 0x0f);
    let mut begin = FIXED_BYTES + sources_bytes;
    if first & 0x10 != 0 {
        // Section 5.3.1: the length is in words.
        let [_, _, high, low] = *packet.get(begin..)?.first_chunk::<4>()?;
        begin += 4 + 4 * usize::from(u16::from_be_bytes([high, low]));
    }
    let has_padding = first & 0x20 != 0;
    let padding_bytes = if has_padding { usize::from(*packet.last()?) } else { 0 };
    let end = packet.len().checked_sub(padding_bytes).filter(|end| *end >= begin)?;
    Some(RtpHeader {
        marker: second & 0x80 != 0,
        payload_type: second & 0x7f,
        sequence: u16::from_be_bytes(sequence),
        timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
        ssrc: u32::from_be_bytes([s0, s1, s2, s3]),
        payload: begin..end,
    })
}

#[cfg(test)]
#[path = "rtp/header_tests.rs"]
mod tests;
