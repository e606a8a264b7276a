//! HTTP datagrams: in QUIC DATAGRAM frames (RFC 9297 §2.1), with the context IDs of CONNECT-UDP
//! (RFC 9298 §4).

use octets::{Octets, varint_len};

/// RFC 9297 §5.2: the error of a connection with a DATAGRAM frame that can belong to no request.
pub const H3_DATAGRAM_ERROR: u64 = 0x33;

/// Largest UDP payload there is: RFC 9298 §4. A longer one ends its flow.
pub const MAX_UDP_PAYLOAD_BYTES: usize = 65_527;

/// The context whose payloads are those of UDP (RFC 9298 §4). [`crate::repair::CONTEXT`] is the other one.
pub const UDP_CONTEXT: u64 = 0;

/// Largest quarter stream ID: that of the largest stream ID, 2^62 - 1 (RFC 9297 §2.1).
const MAX_QUARTER_STREAM_ID: u64 = (1 << 60) - 1;

/// A DATAGRAM frame that ends its connection with [`H3_DATAGRAM_ERROR`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the datagram has no quarter stream ID, or one above 2^60 - 1")]
pub struct NoStream;

/// Takes a DATAGRAM frame's payload apart: the request's stream, and the HTTP datagram.
///
/// # Errors
/// The frame has no valid quarter stream ID.
pub fn parse(frame: &[u8]) -> Result<(u64, &[u8]), NoStream> {
    let (quarter, rest) = split_varint(frame).ok_or(NoStream)?;
    match quarter {
        0..=MAX_QUARTER_STREAM_ID => Ok((quarter * 4, rest)),
        _ => Err(NoStream),
    }
}

/// Takes an HTTP datagram of CONNECT-UDP apart: context ID and payload. `None` when it is too short
/// to have a context ID.
pub fn parse_context(datagram: &[u8]) -> Option<(u64, &[u8])> {
    split_varint(datagram)
}

/// What precedes the payload of a context in a DATAGRAM frame: the stream, which is one that a client
/// opened, and the context ID, below 64.
pub fn head(stream: u64, context: u64) -> DatagramHead {
    let quarter = stream / 4;
    let mut bytes = [0; 9];
    let len = varint_len(quarter);
    octets::OctetsMut::with_slice(&mut bytes).put_varint(quarter).expect("it has room for any");
    debug_assert!(context < 64, "a varint of one byte");
    bytes[len] = context as u8;
    DatagramHead { bytes, len: len + 1 }
}

/// The bytes before the payload of a context in a DATAGRAM frame.
#[derive(Debug, Clone, Copy)]
pub struct DatagramHead {
    bytes: [u8; 9],
    len: usize,
}

impl DatagramHead {
    /// The part of it that an HTTP datagram has in a capsule too: the context ID.
    pub const CONTEXT_BYTES: usize = 1;
    /// Largest one, in bytes.
    pub const MAX_BYTES: usize = 9;

    /// As it is sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn split_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut octets = Octets::with_slice(bytes);
    let value = octets.get_varint().ok()?;
    Some((value, &bytes[octets.off()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read_back() {
        for stream in [0, 4, 252, 256, 65_532, 1 << 32, (1 << 62) - 4] {
            let head = head(stream, UDP_CONTEXT);
            assert!(head.as_bytes().len() <= DatagramHead::MAX_BYTES);
            let frame = [head.as_bytes(), b"payload"].concat();
            let (of, datagram) = parse(&frame).unwrap();
            assert_eq!(of, stream);
            assert_eq!(parse_context(datagram), Some((UDP_CONTEXT, &b"payload"[..])));
        }
    }

    #[test]
    fn empty_payloads_and_other_contexts() {
        assert_eq!(parse(&[1, 0]), Ok((4, &[0][..])));
        assert_eq!(parse_context(&[0]), Some((0, &[][..])));
        assert_eq!(parse_context(&[0x40, 0x42, 9]), Some((0x42, &[9][..])));
        // A longer form of the same number (RFC 9000 §16).
        assert_eq!(parse_context(&[0x40, 0, 9]), Some((0, &[9][..])));
        assert_eq!(parse_context(&[]), None);
        assert_eq!(parse_context(&[0x40]), None);
    }

    #[test]
    fn without_a_stream() {
        assert_eq!(parse(&[]), Err(NoStream));
        assert_eq!(parse(&[0xc0, 1, 2]), Err(NoStream));
        assert_eq!(parse(&[0xd0, 0, 0, 0, 0, 0, 0, 0]), Err(NoStream));
        let largest = [0xcf, 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(parse(&largest), Ok(((1 << 62) - 4, &[][..])));
    }
}
