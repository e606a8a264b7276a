//! Cuts what goes to a player into units that are sent or dropped whole.

use millrace_wire::Parsed;
use millrace_wire::rtsp::{self, MAX_HEAD_BYTES, MessageHead, Start, Unit};
use millrace_wire::sdp::{self, MAX_DESCRIPTION_BYTES};

/// Header of an interleaved packet (RFC 2326, Section 10.12).
pub(super) const INTERLEAVED_HEAD_BYTES: usize = 4;

/// A part of an RTSP connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamPart {
    /// A whole packet in the connection, with its header.
    Packet(Vec<u8>),
    /// Messages, or bytes that belong to nothing.
    Other(Vec<u8>),
}

/// Finds the packets in an RTSP connection. At most one packet, or one head, is kept until it is whole.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// The beginning of a packet or head.
    pending: Vec<u8>,
    /// Content of the last message that has not come.
    content_left: u64,
    /// The content so far, where it may be a description.
    content: Option<Vec<u8>>,
    description: Option<Vec<u8>>,
    /// The rest of the line belongs to no message.
    skips_line: bool,
}

impl Splitter {
    /// Takes the next bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut give: impl FnMut(StreamPart)) {
        while !bytes.is_empty() {
            let part = if self.skips_line {
                Some(StreamPart::Other(self.take_line(&mut bytes)))
            } else if self.content_left > 0 {
                Some(StreamPart::Other(self.take_content(&mut bytes)))
            } else if self.pending.first().unwrap_or(&bytes[0]) == &b'$' {
                self.take_packet(&mut bytes).map(StreamPart::Packet)
            } else {
                self.take_head(&mut bytes).map(StreamPart::Other)
            };
            if let Some(part) = part {
                give(part);
            }
        }
    }

    /// The stream has ended: what was kept.
    pub(super) fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// The session description that has come since the last call.
    pub(super) fn take_description(&mut self) -> Option<Vec<u8>> {
        self.description.take()
    }

    /// Whether it keeps nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.pending.capacity() + self.content.as_ref().map_or(0, Vec::capacity)
    }

    fn take_line(&mut self, bytes: &mut &[u8]) -> Vec<u8> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.skips_line = end.is_none();
        split_off(bytes, end.map_or(bytes.len(), |end| end + 1)).to_vec()
    }

    fn take_content(&mut self, bytes: &mut &[u8]) -> Vec<u8> {
        let left = usize::try_from(self.content_left).unwrap_or(usize::MAX);
        let part = split_off(bytes, bytes.len().min(left));
        self.content_left -= part.len() as u64;
        if let Some(content) = &mut self.content {
            content.extend_from_slice(part);
        }
        if self.content_left == 0 {
            self.description = self.content.take().filter(|it| sdp::is_description(it));
        }
        part.to_vec()
    }

    fn take_packet(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        if let ([], [_, _, high, low, ..]) = (&self.pending[..], &**bytes) {
            let whole = INTERLEAVED_HEAD_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
            if bytes.len() >= whole {
                return Some(split_off(bytes, whole).to_vec());
            }
            self.pending.reserve_exact(whole);
        }
        let wanted = match self.pending[..] {
            [_, _, high, low, ..] => {
                INTERLEAVED_HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]))
            }
            _ => INTERLEAVED_HEAD_BYTES,
        };
        let part = split_off(bytes, bytes.len().min(wanted - self.pending.len()));
        self.pending.extend_from_slice(part);
        let is_whole = match self.pending[..] {
            [_, _, high, low, ref content @ ..] => {
                content.len() == usize::from(u16::from_be_bytes([high, low]))
            }
            _ => false,
        };
        is_whole.then(|| std::mem::take(&mut self.pending))
    }

    fn take_head(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let before = self.pending.len();
        let part = &bytes[..bytes.len().min(MAX_HEAD_BYTES - before)];
        // Of a head that comes whole, nothing is copied that is behind it.
        let head = if before == 0 {
            part
        } else {
            self.pending.extend_from_slice(part);
            &self.pending[..]
        };
        // A head ends with a line; one that comes byte by byte is not parsed with each.
        let goes_on = before >= INTERLEAVED_HEAD_BYTES
            && !part.contains(&b'\n')
            && head.len() < MAX_HEAD_BYTES;
        let parsed = if goes_on { Ok(Parsed::Incomplete) } else { rtsp::parse(head) };
        let end = match parsed {
            Ok(Parsed::Incomplete) => {
                if before == 0 {
                    self.pending.extend_from_slice(part);
                }
                *bytes = &bytes[part.len()..];
                return None;
            }
            Ok(Parsed::Complete { value, consumed }) => {
                if let Unit::Message(head) = value {
                    self.content_left = head.content_bytes;
                    self.content = may_be_description(&head).then(Vec::new);
                }
                consumed
            }
            Err(_) => {
                let line = head.iter().position(|byte| *byte == b'\n').map(|it| it + 1);
                // The lines behind it may begin a message.
                let end = line.filter(|end| *end > before).unwrap_or(head.len());
                self.skips_line = head[end - 1] != b'\n';
                end
            }
        };
        let head = head[..end].to_vec();
        self.pending = Vec::new();
        *bytes = &bytes[end - before..];
        Some(head)
    }
}

/// Whether a message is an answer whose content is a description; only DESCRIBE has one.
fn may_be_description(head: &MessageHead) -> bool {
    let bytes = head.content_bytes;
    head.start == Start::Response { status: 200 }
        && (1..=MAX_DESCRIPTION_BYTES as u64).contains(&bytes)
}

fn split_off<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (part, rest) = bytes.split_at(length);
    *bytes = rest;
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTION: &str = "v=0\r\nm=video 0 RTP/AVP 26\r\n";

    fn stream() -> Vec<(bool, Vec<u8>)> {
        let answer = format!("RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: {}\r\n\r\n", 27);
        [
            (false, answer.as_bytes()),
            (false, DESCRIPTION.as_bytes()),
            (true, b"$\x00\x00\x05hello"),
            (true, b"$\x01\x00\x00"),
            (false, b"\r\n"),
            (false, b"RTSP/1.0 200 OK\r\nCSeq: 3\r\n\r\n"),
            (false, b"neither this nor\n"),
            (true, b"$\x00\x00\x03$$$"),
        ]
        .map(|(is_packet, bytes)| (is_packet, bytes.to_vec()))
        .to_vec()
    }

    #[test]
    fn packets_are_whole_however_the_stream_is_cut() {
        let expected = stream();
        let whole: Vec<u8> = expected.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        for piece in [1, 2, 3, 7, 50, whole.len()] {
            let (mut splitter, mut parts) = (Splitter::default(), Vec::new());
            for bytes in whole.chunks(piece) {
                splitter.take(bytes, |part| parts.push(part));
            }
            let packets: Vec<_> = parts
                .iter()
                .filter_map(|part| match part {
                    StreamPart::Packet(bytes) => Some(bytes.clone()),
                    StreamPart::Other(_) => None,
                })
                .collect();
            let wanted: Vec<_> = expected.iter().filter(|it| it.0).map(|it| it.1.clone()).collect();
            assert_eq!(packets, wanted, "pieces of {piece}");
            let all: Vec<u8> = parts
                .into_iter()
                .flat_map(|part| match part {
                    StreamPart::Packet(bytes) | StreamPart::Other(bytes) => bytes,
                })
                .collect();
            assert_eq!(all, whole, "pieces of {piece}");
            assert_eq!(splitter.take_description().as_deref(), Some(DESCRIPTION.as_bytes()));
            assert!(splitter.end().is_empty());
        }
    }

    #[test]
    fn the_beginning_of_a_packet_is_given_back_at_the_end() {
        let mut splitter = Splitter::default();
        splitter.take(b"$\x00\x00\x05hel", |part| panic!("{part:?}"));
        assert!(splitter.held_bytes() >= 7);
        assert_eq!(splitter.end(), b"$\x00\x00\x05hel");
    }

    #[test]
    fn a_short_head_takes_no_room_for_what_is_behind_it() {
        let stream = [&b"\r\nRTSP/1.0 200 OK\r\n\r\nneither\n"[..], &[b'x'; 4000], b"\n"].concat();
        // Whole, and with a head in two pieces.
        for first in [stream.len(), 10] {
            let (mut splitter, mut heads) = (Splitter::default(), Vec::new());
            for piece in [&stream[..first], &stream[first..]] {
                splitter.take(piece, |part| match part {
                    StreamPart::Other(head) => heads.push(head),
                    StreamPart::Packet(packet) => panic!("{packet:?}"),
                });
            }
            assert!(heads.concat() == stream);
            for head in heads.iter().filter(|it| it.len() < 100) {
                assert!(head.capacity() < 200, "{} of {}", head.len(), head.capacity());
            }
            assert!(heads.iter().filter(|it| it.len() < 100).count() >= 3);
        }
    }

    #[test]
    fn other_content_is_no_description() {
        let mut splitter = Splitter::default();
        splitter.take(b"RTSP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", |_| ());
        assert_eq!(splitter.take_description(), None);
        splitter.take(b"RTSP/1.0 404 No\r\nContent-Length: 3\r\n\r\nv=0", |_| ());
        assert_eq!(splitter.take_description(), None);
    }
}
