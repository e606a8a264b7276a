//! RTSP 1.0 (RFC 2326): the bounds of messages, and the Transport field (Section 12.39) of SETUP,
//! which can be rewritten while everything else stays unchanged.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::Parsed;

/// Longest head of a message, with its empty line, in bytes.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The parameter of a Transport field by which the two ends of a tunnel agree on one SETUP: the client
/// asks for ports with it, the server says with it that there are some. Neither the player nor the
/// origin gets to see it.
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
    Message(Head),
}

/// The head of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its first line.
    pub start: Start,
    /// `CSeq` (Section 12.17), if present.
    pub cseq: Option<u32>,
    /// The identifier in `Session` (Section 12.37), without its time-out.
    pub session: Option<String>,
    /// Where in the head the value of its one `Transport` field is, in bytes. It is UTF-8.
    pub transport: Option<Range<usize>>,
    /// Bytes of content that follow.
    pub content_bytes: u64,
}

/// A message's first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Of a request.
    Request {
        /// `SETUP`, for one.
        method: String,
        /// Of what.
        uri: String,
    },
    /// Of a response.
    Response {
        /// 100 to 599 where the server keeps to the rules; any three digits.
        status: u16,
    },
}

/// Why nothing can be read of a stream any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another protocol, such as HTTP or TLS.
    #[error("not RTSP")]
    NotRtsp,
    /// The head is longer than [`MAX_HEAD_BYTES`].
    #[error("the message's head is longer than {MAX_HEAD_BYTES} bytes")]
    TooLong,
    /// Readers may differ in what it means: a folded line, a repeated or bad field, a coding.
    #[error("the message can be read in more than one way")]
    Opaque,
}

/// Parses one unit. Lines may end with LF alone (Section 4).
///
/// # Errors
/// The stream is not RTSP, or can't be read unambiguously.
pub fn parse(buf: &[u8]) -> Result<Parsed<Unit>, Error> {
    let complete = |value, consumed| Ok(Parsed::Complete { value, consumed });
    match buf {
        [] | [b'\r'] => return Ok(Parsed::Incomplete),
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
    let mut head = None;
    let mut at = 0;
    while let Some(length) = window[at..].iter().position(|byte| *byte == b'\n') {
        let line = &window[at..at + length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match &mut head {
            None => head = Some(Fields::new(parse_start(line).ok_or(Error::NotRtsp)?)),
            Some(fields) if line.is_empty() => {
                let value = Unit::Message(fields.head());
                return complete(value, at + length + 1);
            }
            Some(fields) => fields.take(line, at)?,
        }
        at += length + 1;
    }
    // Whatever speaks another protocol need not be waited for.
    if head.is_none() && window.iter().any(|byte| *byte < b' ' && *byte != b'\r') {
        return Err(Error::NotRtsp);
    }
    if window.len() == MAX_HEAD_BYTES { Err(Error::TooLong) } else { Ok(Parsed::Incomplete) }
}

fn parse_start(line: &[u8]) -> Option<Start> {
    let line = str::from_utf8(line).ok().filter(|line| !line.contains(char::is_control))?;
    let is_version = |text: &str| {
        matches!(text.strip_prefix("RTSP/").map(str::as_bytes), Some([major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit())
    };
    let mut words = line.splitn(3, ' ');
    let (first, second) = (words.next()?, words.next()?);
    if is_version(first) {
        let digits = second.len() == 3 && second.bytes().all(|byte| byte.is_ascii_digit());
        return digits
            .then(|| second.parse().ok())
            .flatten()
            .map(|status| Start::Response { status });
    }
    let is_method = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-.".contains(&it))
    };
    let request = is_method(first) && !second.is_empty() && words.next().is_some_and(is_version);
    request.then(|| Start::Request { method: first.to_owned(), uri: second.to_owned() })
}

/// A head's fields as far as they are known.
struct Fields {
    start: Start,
    cseq: Option<u32>,
    session: Option<String>,
    content_bytes: Option<u64>,
    transport: Option<Range<usize>>,
    transports: usize,
}

impl Fields {
    fn new(start: Start) -> Self {
        Self {
            start,
            cseq: None,
            session: None,
            content_bytes: None,
            transport: None,
            transports: 0,
        }
    }

    /// Takes a line that begins at `at` in the head.
    fn take(&mut self, line: &[u8], at: usize) -> Result<(), Error> {
        // A line that goes on with the one before it may change any field.
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(Error::Opaque);
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Error::NotRtsp)?;
        let name = line[..colon].trim_ascii_end();
        let value = line[colon + 1..].trim_ascii();
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        let text = str::from_utf8(value).ok();
        if is("transfer-encoding") {
            return Err(Error::Opaque);
        } else if is("content-length") {
            once(&mut self.content_bytes, text.and_then(number))?;
        } else if is("cseq") {
            once(&mut self.cseq, text.and_then(number))?;
        } else if is("session") {
            self.session = text.and_then(|it| it.split(';').next()).map(|it| it.trim().to_owned());
        } else if is("transport") {
            self.transports += 1;
            let begin = at + line.len() - line[colon + 1..].trim_ascii_start().len();
            self.transport = text.map(|text| begin..begin + text.len());
        }
        Ok(())
    }

    fn head(&mut self) -> Head {
        Head {
            start: self.start.clone(),
            cseq: self.cseq,
            session: self.session.take(),
            // Which of several counts is the reader's choice.
            transport: self.transport.take().filter(|_| self.transports == 1),
            content_bytes: self.content_bytes.unwrap_or(0),
        }
    }
}

fn once<T>(slot: &mut Option<T>, value: Option<T>) -> Result<(), Error> {
    match (slot.is_none(), value) {
        (true, Some(value)) => *slot = Some(value),
        _ => return Err(Error::Opaque),
    }
    Ok(())
}

/// Digits only: no sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A head with another value of its Transport field, which is at `range`.
pub fn with_transport(head: &[u8], range: Range<usize>, value: &str) -> Vec<u8> {
    [&head[..range.start], value.as_bytes(), &head[range.end..]].concat()
}

/// The value of a Transport field: the ways that a player can take, or the one that the server chose.
/// It is written as it was read, but for the parameters that were changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transport {
    ways: Vec<Way>,
}

/// One way to send media: a protocol and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    parts: Vec<String>,
}

/// The ports of one medium's RTP and RTCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortPair {
    /// Of RTP.
    pub rtp: u16,
    /// Of RTCP.
    pub rtcp: u16,
}

impl Transport {
    /// Reads a value; commas and semicolons in quotes belong to the quoted.
    pub fn parse(value: &str) -> Self {
        let way = |text: &str| Way { parts: split(text, ';').map(str::to_owned).collect() };
        Self { ways: split(value, ',').map(way).collect() }
    }

    /// The one way over UDP to a single receiver. `None` when there are several, which would need
    /// ports each.
    pub fn unicast_udp(&mut self) -> Option<&mut Way> {
        // What would come after a quote that does not end belongs to it.
        let quotes =
            |way: &Way| way.parts.last().is_some_and(|it| it.matches('"').count() % 2 == 1);
        if self.ways.last().is_some_and(quotes) {
            return None;
        }
        let mut ways = self.ways.iter_mut().filter(|way| way.is_unicast_udp());
        let way = ways.next()?;
        ways.next().is_none().then_some(way)
    }

    /// What a server chose, where that is over UDP to a single receiver.
    pub fn chosen_udp(&mut self) -> Option<&mut Way> {
        if self.ways.len() == 1 { self.unicast_udp() } else { None }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, way) in self.ways.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", way.parts.join(";"))?;
        }
        Ok(())
    }
}

impl Way {
    /// RTP over UDP, which is what a profile without a lower transport means.
    fn is_unicast_udp(&self) -> bool {
        let protocol = self.parts[0].trim().to_ascii_uppercase();
        let rtp = match protocol.strip_prefix("RTP/").and_then(|rest| rest.split_once('/')) {
            Some((_, lower)) => lower == "UDP",
            None => protocol.starts_with("RTP/"),
        };
        rtp && self.get("multicast").is_none() && self.get("interleaved").is_none()
    }

    /// A parameter's value; an empty one where it has none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parts.iter().skip(1).find_map(|part| match part.split_once('=') {
            Some((key, value)) => key.trim().eq_ignore_ascii_case(name).then(|| value.trim()),
            None => part.trim().eq_ignore_ascii_case(name).then_some(""),
        })
    }

    /// The ports in a parameter; see [`PortPair::parse`].
    pub fn ports(&self, name: &str) -> Option<PortPair> {
        PortPair::parse(self.get(name)?)
    }

    /// Takes a parameter out, however often it is there.
    pub fn remove(&mut self, name: &str) {
        let mut first = true;
        self.parts.retain(|part| {
            let key = part.split('=').next().unwrap_or_default();
            std::mem::take(&mut first) || !key.trim().eq_ignore_ascii_case(name)
        });
    }

    /// Sets a parameter, at its place or at the end; an empty value removes the value.
    pub fn set(&mut self, name: &str, value: &str) {
        let shown = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
        let is_it = |part: &String| {
            part.split('=').next().is_some_and(|key| key.trim().eq_ignore_ascii_case(name))
        };
        match self.parts.iter().skip(1).position(is_it) {
            Some(index) => self.parts[index + 1] = shown,
            // After a semicolon at the end nothing is missing.
            None if self.parts.len() > 1 && self.parts.last().is_some_and(|it| it.is_empty()) => {
                let last = self.parts.len() - 1;
                self.parts.insert(last, shown);
            }
            None => self.parts.push(shown),
        }
    }
}

impl PortPair {
    /// Of `RTP-RTCP` or of `RTP`, where RTCP has the next port (RFC 3550, Section 11). `None` if
    /// both are equal or one is 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (rtp, rtcp) = match text.split_once('-') {
            Some((rtp, rtcp)) => (number::<u16>(rtp.trim())?, number::<u16>(rtcp.trim())?),
            None => {
                let rtp = number::<u16>(text.trim())?;
                (rtp, rtp.checked_add(1)?)
            }
        };
        (rtp != rtcp && rtp > 0 && rtcp > 0).then_some(Self { rtp, rtcp })
    }
}

impl fmt::Display for PortPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.rtp, self.rtcp)
    }
}

/// The parts between separators outside of quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |character| {
        quoted ^= character == '"';
        character == separator && !quoted
    })
}

#[cfg(test)]
#[path = "rtsp_tests.rs"]
mod tests;
