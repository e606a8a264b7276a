//! The response of an exchange: its heads are written again, its content goes on as it is.

use std::borrow::Cow;

use millrace_wire::Parsed;
use millrace_wire::http_forward::{self, HttpResponseError, ResponseKind};

use super::chunked::{ChunkOutput, ChunkedReader};

#[derive(Clone, Debug, PartialEq, Eq)]
enum ResponseState {
    /// The final head has not come yet; these are its first bytes.
    Head(Vec<u8>),
    /// The content goes on as it comes, until the origin closes.
    Plain,
    /// The content goes on without its chunks.
    Chunked(ChunkedReader),
    /// The proxy answers itself.
    Replaced,
    /// The content is not what its head says.
    Broken,
}

/// Passes a response on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseWriter {
    state: ResponseState,
    to_http_10: bool,
    to_head_request: bool,
}

impl ResponseWriter {
    pub(crate) fn new(to_http_10: bool, to_head_request: bool) -> Self {
        Self { state: ResponseState::Head(Vec::new()), to_http_10, to_head_request }
    }

    /// Whether the final head has gone to the client.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.state, ResponseState::Head(_) | ResponseState::Replaced)
    }

    /// Whether the content has an error that the client can only be told by a reset.
    pub(crate) fn is_broken(&self) -> bool {
        self.state == ResponseState::Broken
    }

    /// Whether the response lacks its end, if the origin has closed now.
    pub(crate) fn is_truncated(&self) -> bool {
        match &self.state {
            ResponseState::Chunked(reader) => !reader.is_done(),
            _ => self.is_broken(),
        }
    }

    /// The proxy answers itself: nothing more of the origin goes to the client.
    pub(crate) fn replace(&mut self) {
        self.state = ResponseState::Replaced;
    }

    /// The client is told of an error by a reset.
    pub(crate) fn break_off(&mut self) {
        self.state = ResponseState::Broken;
    }

    pub(crate) fn held_bytes(&self) -> usize {
        match &self.state {
            ResponseState::Head(bytes) => bytes.capacity(),
            _ => 0,
        }
    }

    /// Takes bytes of the origin; what goes to the client.
    ///
    /// # Errors
    /// There is no response to pass on.
    pub(crate) fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, HttpResponseError> {
        match &mut self.state {
            ResponseState::Head(held) => {
                held.extend_from_slice(bytes);
                // Heads end with a line's end: what comes byte by byte is not parsed with each.
                let may_end =
                    bytes.contains(&b'\n') || held.len() >= http_forward::MAX_RESPONSE_HEAD_BYTES;
                let held = if may_end { std::mem::take(held) } else { return Ok(Cow::default()) };
                self.take_heads(held).map(Cow::from)
            }
            ResponseState::Plain => Ok(bytes.into()),
            ResponseState::Chunked(_) => Ok(self.take_chunks(bytes).into()),
            ResponseState::Replaced | ResponseState::Broken => Ok(Cow::default()),
        }
    }

    fn take_heads(&mut self, held: Vec<u8>) -> Result<Vec<u8>, HttpResponseError> {
        let (mut out, mut rest) = (Vec::new(), &held[..]);
        loop {
            let response = match http_forward::parse_response(rest, self.to_http_10)? {
                Parsed::Incomplete => {
                    self.state = ResponseState::Head(rest.to_vec());
                    return Ok(out);
                }
                Parsed::Complete { value, consumed } => {
                    rest = &rest[consumed..];
                    value
                }
            };
            match response.kind {
                // RFC 9110, Section 15.2: none to a client of HTTP/1.0.
                ResponseKind::Interim if self.to_http_10 => continue,
                ResponseKind::Interim => {
                    out.extend(response.head);
                    continue;
                }
                ResponseKind::Chunked if !self.to_head_request => {
                    self.state = ResponseState::Chunked(ChunkedReader::new(ChunkOutput::Data));
                }
                _ => self.state = ResponseState::Plain,
            }
            out.extend(response.head);
            out.extend_from_slice(&self.take(rest)?);
            return Ok(out);
        }
    }

    fn take_chunks(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if let ResponseState::Chunked(reader) = &mut self.state
            && reader.read(bytes, &mut out).is_err()
        {
            self.break_off();
        }
        out
    }
}
