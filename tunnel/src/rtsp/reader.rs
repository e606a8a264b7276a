//! One direction of an RTSP connection, cut into messages.

use millrace_wire::Parsed;
use millrace_wire::rtsp::{self, MAX_HEAD_BYTES, MessageHead, Unit};

/// Longest interleaved frame's header.
const FRAME_HEAD_BYTES: usize = 4;

/// Finds the messages in a stream. At most one head is kept. A stream whose first bytes are not RTSP passes unchanged.
/// Within RTSP, bytes that belong to no message pass unchanged up to the next line that begins one.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of a head.
    head: Vec<u8>,
    /// How much of it has been passed on.
    passed: usize,
    content: Content,
    /// The rest of the line belongs to no message.
    skips_line: bool,
    protocol: StreamProtocol,
    /// Messages that have gone on, from which the next end knows the protocol.
    passed_messages: u64,
}

/// What follows the last head.
#[derive(Debug, Default)]
struct Content {
    left: u64,
    /// It is not passed on.
    discarded: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum StreamProtocol {
    #[default]
    Unknown,
    Rtsp,
    Other,
}

/// Heads that wait until they are whole, so that they can be rewritten.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeldHeads {
    /// None.
    None,
    /// SETUP requests from the end of the method on. What comes before it may be the whole of what a client of another
    /// protocol sends before it is answered.
    SetUps,
    /// Responses, from their first byte on. That the stream is RTSP is known then.
    Responses,
}

impl HeldHeads {
    /// Whether a head with this beginning waits.
    fn includes(self, head: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::SetUps => head.starts_with(b"SETUP "),
            Self::Responses => head.iter().zip(b"RTSP/").all(|(byte, wanted)| byte == wanted),
        }
    }
}

/// A whole head.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) head: MessageHead,
    pub(super) bytes: Vec<u8>,
    /// How much of it has been passed on: nothing of a held response, less than the method of a held request.
    pub(super) passed: usize,
}

/// What a call of [`Reader::next`] ended at.
#[derive(Debug)]
pub(super) enum Next {
    /// A whole head, which the caller passes on.
    Message(Message),
    /// The end of something that has passed unchanged: content, a frame, a line. A message can be inserted here where
    /// [`Reader::is_between_messages`].
    Passed,
    /// All bytes are taken.
    AllTaken,
}

impl Message {
    /// What has not been passed on.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.passed..]
    }
}

impl Reader {
    /// Takes from `bytes` up to the end of the next head, or of what passes unchanged to `out`. Heads that `held` names wait
    /// until they are whole. Others do not: in another protocol, the rest may never come.
    pub(super) fn next(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>, held: HeldHeads) -> Next {
        if bytes.is_empty() {
            return Next::AllTaken;
        }
        if self.protocol == StreamProtocol::Other {
            out.extend_from_slice(std::mem::take(bytes));
        } else if self.skips_line {
            self.pass_line(bytes, out);
        } else if self.content.left > 0 {
            self.pass_content(bytes, out);
        } else if let ([b'$', _, high, low, ..], true) = (&**bytes, self.head.is_empty()) {
            // Media in the connection itself is not copied for this.
            let length = u64::from(u16::from_be_bytes([*high, *low]));
            self.content = Content { left: FRAME_HEAD_BYTES as u64 + length, discarded: false };
            self.pass_content(bytes, out);
        } else if let Some(message) = self.read_head(bytes, out, held) {
            return Next::Message(message);
        }
        Next::Passed
    }

    /// Passes on the rest of a line that belongs to no message.
    fn pass_line(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        out.extend_from_slice(line);
        *bytes = rest;
        self.skips_line = end.is_none();
    }

    fn pass_content(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) {
        let left = usize::try_from(self.content.left).unwrap_or(usize::MAX);
        let (content, rest) = bytes.split_at(bytes.len().min(left));
        if !self.content.discarded {
            out.extend_from_slice(content);
        }
        self.content.left -= content.len() as u64;
        *bytes = rest;
    }

    /// Takes bytes of a head, all of them unless it ends before.
    fn read_head(
        &mut self,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
        held: HeldHeads,
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
                if !held.includes(&self.head) {
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
                        self.protocol = StreamProtocol::Rtsp;
                        self.passed_messages += 1;
                        self.content = Content { left: value.content_bytes, discarded: false };
                        return Some(Message { head: value, bytes: head, passed });
                    }
                    Unit::Frame { content_bytes } => {
                        self.content = Content { left: content_bytes.into(), discarded: false };
                    }
                    Unit::Blank => {}
                }
                out.extend_from_slice(&head[passed..]);
                None
            }
            Err(error) => {
                let head = std::mem::take(&mut self.head);
                let line = head.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
                // The lines behind it may begin a message. The one that is refused ends in what has just come.
                let passed = line.filter(|end| *end > before).unwrap_or(head.len());
                *bytes = &bytes[passed - before..];
                self.pass_unreadable(&head[..passed], out, error);
                None
            }
        }
    }

    /// Passes on what is no head.
    fn pass_unreadable(&mut self, bytes: &[u8], out: &mut Vec<u8>, error: rtsp::RtspError) {
        out.extend_from_slice(&bytes[std::mem::take(&mut self.passed)..]);
        if self.passed_messages == 0 {
            // The next end relays the rest unchanged too.
            self.protocol = StreamProtocol::Other;
            tracing::debug!(%error, "not RTSP; connection relayed unchanged");
            return;
        }
        tracing::debug!(%error, "bytes between RTSP messages relayed unchanged");
        self.skips_line = !bytes.ends_with(b"\n");
    }

    /// The message that was read last is not passed on, nor its content.
    pub(super) fn discard_message(&mut self) {
        self.passed_messages -= 1;
        self.discard_content();
    }

    /// The content of the message that was read last is not passed on; another message is, instead of its head or before.
    pub(super) fn discard_content(&mut self) {
        self.content.discarded = true;
    }

    /// Whether a message can be inserted into what was passed on.
    pub(super) fn is_between_messages(&self) -> bool {
        self.passed == 0 && self.content.left == 0 && !self.skips_line
    }

    /// Whether a message was found.
    pub(super) fn is_rtsp(&self) -> bool {
        self.protocol == StreamProtocol::Rtsp
    }

    /// Whether the stream has begun with something else than RTSP.
    pub(super) fn is_other_protocol(&self) -> bool {
        self.protocol == StreamProtocol::Other
    }

    /// The stream has ended: what was held.
    pub(super) fn end(&mut self) -> Vec<u8> {
        let held = self.head.split_off(self.passed);
        *self = Self { protocol: StreamProtocol::Other, ..Self::default() };
        held
    }

    /// Bytes of an incomplete head.
    #[cfg(feature = "fuzzing")]
    pub(super) fn held_bytes(&self) -> usize {
        self.head.len()
    }
}
