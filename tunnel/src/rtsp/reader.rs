//! One direction of an RTSP connection, cut into messages.

use millrace_wire::Parsed;
use millrace_wire::rtsp::{self, Head, MAX_HEAD_BYTES, Unit};

/// Longest interleaved frame's header.
const FRAME_HEAD_BYTES: usize = 4;

/// Finds the messages in a stream. At most one head is kept; where the next message can't be found,
/// all that follows passes as it is.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of a head.
    head: Vec<u8>,
    /// How much of it has been passed on.
    passed: usize,
    content_left: u64,
    lost: bool,
}

/// A whole head.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) head: Head,
    pub(super) bytes: Vec<u8>,
    /// How much of it has been passed on, which is nothing if such heads are held.
    pub(super) passed: usize,
}

impl Reader {
    /// A reader of a stream that begins with `passed`, the beginning of a head, which has been passed on.
    pub(super) fn after(passed: Vec<u8>) -> Self {
        Self { passed: passed.len(), head: passed, ..Self::default() }
    }

    /// Reads up to the next message's head, and takes what it reads from `bytes`. What is no head
    /// goes to `out`; the head is the caller's to pass on. Heads whose beginning is that of `held`
    /// wait until they are whole: others might be of a protocol in which there is nothing to wait for.
    pub(super) fn next(
        &mut self,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
        held: Option<&[u8]>,
    ) -> Option<Message> {
        while !bytes.is_empty() {
            if self.lost {
                out.extend_from_slice(std::mem::take(bytes));
                return None;
            }
            if self.content_left > 0 {
                let left = usize::try_from(self.content_left).unwrap_or(usize::MAX);
                let (content, rest) = bytes.split_at(bytes.len().min(left));
                out.extend_from_slice(content);
                self.content_left -= content.len() as u64;
                *bytes = rest;
                continue;
            }
            // Media in the connection itself is not copied for this.
            if let ([b'$', _, high, low, ..], true) = (&**bytes, self.head.is_empty()) {
                let length = u64::from(u16::from_be_bytes([*high, *low]));
                self.content_left = FRAME_HEAD_BYTES as u64 + length;
                continue;
            }
            if let Some(message) = self.read_head(bytes, out, held) {
                return Some(message);
            }
        }
        None
    }

    /// Takes bytes of a head, all of them unless it ends before.
    fn read_head(
        &mut self,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
        held: Option<&[u8]>,
    ) -> Option<Message> {
        let before = self.head.len();
        let (taken, rest) = bytes.split_at(bytes.len().min(MAX_HEAD_BYTES - before));
        self.head.extend_from_slice(taken);
        // A head ends with a line; one that comes byte by byte is not parsed with each.
        let same = before >= FRAME_HEAD_BYTES
            && !taken.contains(&b'\n')
            && self.head.len() < MAX_HEAD_BYTES;
        let parsed = if same { Ok(Parsed::Incomplete) } else { rtsp::parse(&self.head) };
        match parsed {
            Ok(Parsed::Incomplete) => {
                *bytes = rest;
                let common = held.unwrap_or_default().iter().zip(&self.head);
                if held.is_none() || !common.into_iter().all(|(held, byte)| held == byte) {
                    out.extend_from_slice(&self.head[self.passed..]);
                    self.passed = self.head.len();
                }
                None
            }
            Ok(Parsed::Complete { value, consumed }) => {
                // A head that was complete before would have been taken before.
                *bytes = &bytes[consumed - before..];
                let mut head = std::mem::take(&mut self.head);
                head.truncate(consumed);
                let passed = std::mem::take(&mut self.passed);
                match value {
                    Unit::Message(value) => {
                        self.content_left = value.content_bytes;
                        return Some(Message { head: value, bytes: head, passed });
                    }
                    Unit::Frame { content_bytes } => self.content_left = content_bytes.into(),
                    Unit::Blank => {}
                }
                out.extend_from_slice(&head[passed..]);
                None
            }
            Err(error) => {
                tracing::debug!(%error, "RTSP parsing stopped; connection relayed unchanged");
                *bytes = rest;
                out.extend_from_slice(&self.head[self.passed..]);
                *self = Self { lost: true, ..Self::default() };
                None
            }
        }
    }

    /// The stream has ended: what was held.
    pub(super) fn end(&mut self) -> Vec<u8> {
        let held = self.head.split_off(self.passed);
        *self = Self { lost: true, ..Self::default() };
        held
    }

    /// Bytes of an incomplete head.
    #[cfg(fuzzing)]
    pub(super) fn held_bytes(&self) -> usize {
        self.head.len()
    }

    #[cfg(test)]
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }
}
