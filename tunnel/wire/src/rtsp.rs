//! RTSP 1.0 (RFC 2326): the bounds of messages, and the fields of SETUP that are rewritten while everything else stays
//! unchanged.
//!
//! Cameras and players deviate from the RFC: folded, repeated and malformed field lines are accepted, as their peers
//! accept them. Only a stream that does not consist of RTSP messages is refused.

mod transport;

use std::ops::Range;
use std::str::FromStr;

use crate::Parsed;

pub use transport::{PortPair, TransportHeader, TransportSpec};

/// Longest head of a message, with its empty line, in bytes.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The parameter of a Transport field by which the two ends of a tunnel agree on one SETUP: the client requests ports
/// with it, and the server announces them with it. It reaches neither the player nor the origin.
pub const MARK: &str = "x-millrace-udp";

/// What a byte stream of RTSP consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unit {
    /// An empty line before a message, which means nothing.
    Blank,
    /// The header of an interleaved frame (Section 10.12).
    Frame {
        /// Bytes that follow.
        content_bytes: u16,
    },
    /// The head of a message.
    Message(MessageHead),
}

/// The head of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHead {
    /// Its first line.
    pub start: Start,
    /// `CSeq` (Section 12.17), if there is a number. The first one of several.
    pub cseq: Option<u32>,
    /// The identifier in `Session` (Section 12.37), without its time-out.
    pub session: Option<String>,
    /// Where the values of its `Transport` fields are in the head, in bytes, folded lines included. Each is UTF-8.
    pub transports: Vec<Range<usize>>,
    /// Where its `Authorization` field is, if there is one.
    pub authorization: Option<Authorization>,
    /// Bytes of content that follow. The last one of several `Content-Length` fields.
    pub content_bytes: u64,
}

/// How a request is authorized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// By credentials that fit any request (RFC 7617): the field's value is here in the head, in bytes.
    Basic(Range<usize>),
    /// By a value that fits this request alone, such as Digest (RFC 7616).
    OfRequest,
}

/// A message's first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Of a request.
    Request {
        /// `SETUP`, for one.
        method: String,
        /// The resource.
        uri: String,
    },
    /// Of a response.
    Response {
        /// 100 to 599 where the server keeps to the rules; any three digits.
        status: u16,
    },
}

/// Why the next message of a stream is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RtspError {
    /// The line is the first one of no message: another protocol, such as HTTP or TLS, or bytes after a message whose
    /// `Content-Length` is too small.
    #[error("not RTSP")]
    NotRtsp,
    /// The head is longer than [`MAX_HEAD_BYTES`].
    #[error("the message's head is longer than {MAX_HEAD_BYTES} bytes")]
    TooLong,
}

/// Parses one unit. Lines may end with LF alone (Section 4).
///
/// # Errors
/// The stream is not RTSP, or the head is too long.
pub fn parse(buf: &[u8]) -> Result<Parsed<Unit>, RtspError> {
    let complete = |value, consumed| Ok(Parsed::Complete { value, consumed });
    match buf {
        [b'\n', ..] => return complete(Unit::Blank, 1),
        [b'\r', b'\n', ..] => return complete(Unit::Blank, 2),
        [b'$', _, high, low, ..] => {
            let content_bytes = u16::from_be_bytes([*high, *low]);
            return complete(Unit::Frame { content_bytes }, 4);
        }
        [b'$', ..] => return Ok(Parsed::Incomplete),
        _ => {}
    }
    let window = &buf[..buf.len().min(MAX_HEAD_BYTES)];
    let mut lines = Lines { head: window, at: 0 };
    let Some(first) = lines.next() else {
        // Another protocol is told from a line that is not complete yet.
        let binary = window.iter().any(|byte| *byte < b' ' && *byte != b'\r');
        return if binary { Err(RtspError::NotRtsp) } else { incomplete(window) };
    };
    let mut fields = Fields::new(parse_start(&window[first]).ok_or(RtspError::NotRtsp)?);
    // A field goes on in lines that begin with a space (Section 15.1, by way of RFC 2068).
    let mut field: Option<Range<usize>> = None;
    while let Some(line) = lines.next() {
        match (&mut field, window.get(line.start)) {
            (Some(field), Some(b' ' | b'\t')) => field.end = line.end,
            _ => {
                if let Some(field) = field.replace(line.clone()) {
                    fields.take(window, field);
                }
                if line.is_empty() {
                    return complete(Unit::Message(fields.head), lines.at);
                }
            }
        }
    }
    incomplete(window)
}

fn incomplete(window: &[u8]) -> Result<Parsed<Unit>, RtspError> {
    if window.len() == MAX_HEAD_BYTES { Err(RtspError::TooLong) } else { Ok(Parsed::Incomplete) }
}

/// The complete lines of a head, without their ends.
struct Lines<'a> {
    head: &'a [u8],
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let begin = self.at;
        let length = self.head[begin..].iter().position(|byte| *byte == b'\n')?;
        self.at = begin + length + 1;
        let line = &self.head[begin..begin + length];
        Some(begin..begin + line.strip_suffix(b"\r").unwrap_or(line).len())
    }
}

fn parse_start(line: &[u8]) -> Option<Start> {
    let line = str::from_utf8(line).ok().filter(|line| !line.contains(char::is_control))?;
    let is_version = |text: &str| {
        matches!(text.strip_prefix("RTSP/").map(str::as_bytes), Some([major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit())
    };
    let (first, rest) = line.trim_end().split_once(' ')?;
    let rest = rest.trim_start();
    if is_version(first) {
        let status = rest.split(' ').next()?;
        let digits = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
        let status = digits.then(|| status.parse().ok()).flatten()?;
        return Some(Start::Response { status });
    }
    let is_method = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-.".contains(&it))
    };
    // Some names of streams have spaces in them.
    let (uri, version) = rest.rsplit_once(' ')?;
    let uri = uri.trim_end();
    let request = is_method(first) && !uri.is_empty() && is_version(version);
    request.then(|| Start::Request { method: first.to_owned(), uri: uri.to_owned() })
}

/// A head's fields as far as they are known.
struct Fields {
    head: MessageHead,
}

impl Fields {
    fn new(start: Start) -> Self {
        let head = MessageHead {
            start,
            cseq: None,
            session: None,
            transports: Vec::new(),
            authorization: None,
            content_bytes: 0,
        };
        Self { head }
    }

    /// Takes a field with its folded lines. A line without a colon is no field.
    fn take(&mut self, window: &[u8], field: Range<usize>) {
        let line = &window[field.clone()];
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        let Ok(text) = str::from_utf8(value) else { return };
        let begin = field.end - line[colon + 1..].trim_ascii_start().len();
        let range = begin..begin + value.len();
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        let head = &mut self.head;
        if is("content-length") {
            // As C's atoi() reads it, which most peers use.
            head.content_bytes = leading_number(text).unwrap_or(0);
        } else if is("cseq") {
            head.cseq = head.cseq.or_else(|| leading_number(text));
        } else if is("session") {
            head.session = text.split(';').next().map(|it| it.trim().to_owned());
        } else if is("transport") {
            head.transports.push(range);
        } else if is("authorization") {
            let scheme = text.split(' ').next().unwrap_or_default();
            let basic = scheme.eq_ignore_ascii_case("basic") && !value.contains(&b'\n');
            head.authorization = Some(match basic {
                true => Authorization::Basic(range),
                false => Authorization::OfRequest,
            });
        }
    }
}

/// The digits that a value begins with.
fn leading_number<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

/// A head with `value` as its one Transport field: in place of the first of `transports`, without the others, or as
/// the last field if there is none.
pub fn with_transport(head: &[u8], transports: &[Range<usize>], value: &str) -> Vec<u8> {
    let Some((first, others)) = transports.split_first() else {
        let end = head.len() - if head.ends_with(b"\r\n") { 2 } else { 1 };
        return [&head[..end], b"Transport: ", value.as_bytes(), b"\r\n", &head[end..]].concat();
    };
    let mut written = [&head[..first.start], value.as_bytes()].concat();
    let mut at = first.end;
    for other in others {
        // A field's name is on the line on which its value begins, or on one before it.
        let name = head[..other.start].iter().rposition(|byte| *byte == b':').unwrap_or(at);
        let line = head[..name].iter().rposition(|byte| *byte == b'\n').map_or(at, |end| end + 1);
        written.extend_from_slice(&head[at..line.max(at)]);
        let end = head[other.end..].iter().position(|byte| *byte == b'\n');
        at = end.map_or(head.len(), |end| other.end + end + 1);
    }
    written.extend_from_slice(&head[at..]);
    written
}

#[cfg(test)]
#[path = "rtsp_tests.rs"]
mod tests;
