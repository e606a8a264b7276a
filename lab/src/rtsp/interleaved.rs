//! RTP packets in an RTSP connection (RFC 2326, Section 10.12), as they come.

use anyhow::{Result, bail};

use super::rtp::{self, RtpPacket};

/// Longest head of a response.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Longest body of a response, an SDP description.
const MAX_BODY_BYTES: usize = 1 << 20;

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
        let taken = loop {
            match self.next(from, &mut each) {
                Ok(Some(used)) => from += used,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.pending.drain(..from);
        taken
    }

    /// Bytes that are not parsed yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// The length of the whole item that begins at `from`, if all of it is there.
    fn next(&self, from: usize, each: &mut impl FnMut(RtpPacket)) -> Result<Option<usize>> {
        match self.pending.get(from..).unwrap_or_default() {
            [] => Ok(None),
            [b'$', rest @ ..] => {
                let [channel, high, low, data @ ..] = rest else { return Ok(None) };
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                let Some(packet) = data.get(..length) else { return Ok(None) };
                // RTCP has the odd channels.
                if channel.is_multiple_of(2)
                    && let Some(packet) = rtp::read(packet)
                {
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
        Some(_) => bail!("an RTSP message with a malformed or too large Content-Length"),
    };
    let whole = head + END.len() + body;
    Ok((message.len() >= whole).then_some(whole))
}

#[cfg(test)]
mod tests {
    use super::super::rtp::tests::packet;
    use super::*;

    fn interleaved(channel: u8, packet: &[u8]) -> Vec<u8> {
        let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
        [&[b'$', channel], length.as_slice(), packet].concat()
    }

    fn stream() -> Vec<u8> {
        [
            b"RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: 5\r\n\r\nv=0\r\n".to_vec(),
            b"RTSP/1.0 200 OK\r\nCSeq: 4\r\n\r\n".to_vec(),
            interleaved(0, &packet(65_535, 900_000, false)),
            interleaved(1, &[0x80, 200, 0, 0]),
            interleaved(0, &packet(0, 900_000, true)),
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
            assert!(found.iter().all(|it| it.timestamp == 900_000));
            assert!(parser.pending.is_empty());
        }
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
