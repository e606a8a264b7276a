//! RTP packets in an RTSP connection (RFC 2326, Section 10.12), as they come.

use anyhow::{Result, bail};

use super::annex_b::is_slice;

/// A response's head; a longer one is no RTSP.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// A response's body, an SDP description.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The fixed part of an RTP packet's header (RFC 3550, Section 5.1).
const RTP_HEADER_BYTES: usize = 12;

/// An RTP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtpPacket {
    /// Channel that it came on; RTCP has the odd ones.
    pub channel: u8,
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

/// Takes a connection's bytes in pieces of any size and finds the RTP packets among them.
#[derive(Debug, Default)]
pub struct Parser {
    pending: Vec<u8>,
}

impl Parser {
    /// Takes further bytes; `each` sees every RTP packet that they complete.
    ///
    /// # Errors
    /// When this is neither RTSP nor an interleaved packet, or too long to be one.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(RtpPacket)) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(used) = self.next(from, &mut each)? {
            from += used;
        }
        self.pending.drain(..from);
        Ok(())
    }

    /// The length of the whole item that begins at `from`, if all of it is there.
    fn next(&self, from: usize, each: &mut impl FnMut(RtpPacket)) -> Result<Option<usize>> {
        match self.pending.get(from..).unwrap_or_default() {
            [] => Ok(None),
            [b'$', rest @ ..] => {
                let [channel, high, low, data @ ..] = rest else { return Ok(None) };
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                let Some(packet) = data.get(..length) else { return Ok(None) };
                if let Some(packet) = rtp(*channel, packet) {
                    each(packet);
                }
                Ok(Some(4 + length))
            }
            message @ [first, ..] if first.is_ascii_alphabetic() => message_length(message),
            [first, ..] => {
                bail!("neither RTSP nor an interleaved packet begins with 0x{first:02x}")
            }
        }
    }
}

/// `None` of what is no RTP, such as RTCP.
fn rtp(channel: u8, packet: &[u8]) -> Option<RtpPacket> {
    const VERSION: u8 = 2;
    let header: &[u8; RTP_HEADER_BYTES] = packet.first_chunk()?;
    if !channel.is_multiple_of(2) || header[0] >> 6 != VERSION {
        return None;
    }
    Some(RtpPacket {
        channel,
        sequence: u16::from_be_bytes([header[2], header[3]]),
        timestamp: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        marker: header[1] & 0x80 != 0,
        bytes: packet.len(),
        slice_bytes: slice_bytes(packet),
    })
}

/// Of H.264 (RFC 6184): a whole NAL unit, or a fragment of one (FU-A), whose first two bytes stand for
/// the unit's first.
fn slice_bytes(packet: &[u8]) -> usize {
    const FU_A: u8 = 28;
    const START: u8 = 0x80;
    let sources = usize::from(packet[0] & 0x0f);
    match packet.get(RTP_HEADER_BYTES + 4 * sources..) {
        Some([first, header, data @ ..]) if first & 0x1f == FU_A && is_slice(*header) => {
            data.len() + usize::from(header & START != 0)
        }
        Some(unit @ [first, ..]) if is_slice(*first) => unit.len(),
        _ => 0,
    }
}

/// Of a request or response with its body; `None` while a part is missing.
fn message_length(message: &[u8]) -> Result<Option<usize>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = message.windows(END.len()).position(|window| window == END) else {
        if message.len() > MAX_HEAD_BYTES {
            bail!("an RTSP message whose head has more than {MAX_HEAD_BYTES} bytes");
        }
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&message[..head]);
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    let body = match length {
        None => 0,
        Some(Ok(length)) if length <= MAX_BODY_BYTES => length,
        Some(_) => bail!("an RTSP message with a Content-Length that is none, or too long"),
    };
    let whole = head + END.len() + body;
    Ok((message.len() >= whole).then_some(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interleaved(channel: u8, packet: &[u8]) -> Vec<u8> {
        let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
        [&[b'$', channel], length.as_slice(), packet].concat()
    }

    fn rtp_packet(sequence: u16, timestamp: u32, marker: bool) -> Vec<u8> {
        let [sequence, timestamp] =
            [sequence.to_be_bytes().to_vec(), timestamp.to_be_bytes().to_vec()];
        let kind = 96 | if marker { 0x80 } else { 0 };
        [vec![0x80, kind], sequence, timestamp, vec![0; 4], vec![0x5a; 100]].concat()
    }

    fn stream() -> Vec<u8> {
        [
            b"RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: 5\r\n\r\nv=0\r\n".to_vec(),
            b"RTSP/1.0 200 OK\r\nCSeq: 4\r\n\r\n".to_vec(),
            interleaved(0, &rtp_packet(65_535, 900_000, false)),
            interleaved(1, &[0x80, 200, 0, 0]),
            interleaved(0, &rtp_packet(0, 900_000, true)),
        ]
        .concat()
    }

    #[test]
    fn packets_are_found_however_the_bytes_come() {
        for piece in [1, 3, 7, 50, 1000] {
            let (mut parser, mut found) = (Parser::default(), Vec::new());
            for bytes in stream().chunks(piece) {
                parser.take(bytes, |packet| found.push(packet)).unwrap();
            }
            let seen: Vec<_> = found.iter().map(|it| (it.sequence, it.marker, it.bytes)).collect();
            assert_eq!(seen, [(65_535, false, 112), (0, true, 112)], "pieces of {piece}");
            assert!(found.iter().all(|it| it.timestamp == 900_000 && it.channel == 0));
            assert!(parser.pending.is_empty());
        }
    }

    #[test]
    fn fragments_add_up_to_the_slice_and_parameter_sets_do_not_count() {
        let header = rtp_packet(0, 0, false)[..RTP_HEADER_BYTES].to_vec();
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
    fn what_is_no_rtsp_is_refused() {
        for bytes in [&b"\x00\x01"[..], b"RTSP/1.0 200 OK\r\nContent-Length: x\r\n\r\n"] {
            assert!(Parser::default().take(bytes, |_| ()).is_err());
        }
        let endless = vec![b'a'; MAX_HEAD_BYTES + 1];
        assert!(Parser::default().take(&endless, |_| ()).is_err());
    }
}
