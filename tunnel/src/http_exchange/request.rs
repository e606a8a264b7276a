//! The request of an exchange: its head, and its content up to the end that the head says.

use millrace_wire::http_forward::{BodyFraming, ForwardedRequest};

use super::chunked::{ChunkError, ChunkOutput, ChunkedReader};

#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestBody {
    Length { left: u64 },
    Chunked(ChunkedReader),
}

/// What of a request is still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestReader {
    /// Bytes of the head that has been written for the origin.
    head_left: usize,
    body: RequestBody,
}

impl RequestReader {
    pub(crate) fn new(request: &ForwardedRequest) -> Self {
        let body = match request.framing {
            BodyFraming::Empty => RequestBody::Length { left: 0 },
            BodyFraming::Length(left) => RequestBody::Length { left },
            BodyFraming::Chunked => RequestBody::Chunked(ChunkedReader::new(ChunkOutput::Chunks)),
        };
        Self { head_left: request.head.len(), body }
    }

    /// Whether all of it has been read.
    pub(crate) fn is_complete(&self) -> bool {
        let is_body_complete = match &self.body {
            RequestBody::Length { left } => *left == 0,
            RequestBody::Chunked(reader) => reader.is_done(),
        };
        self.head_left == 0 && is_body_complete
    }

    /// Reads `bytes`; what goes to the origin. What comes after the request is dropped.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ChunkError> {
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_left));
        self.head_left -= head.len();
        let mut out = head.to_vec();
        match &mut self.body {
            RequestBody::Length { left } => {
                let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                out.extend_from_slice(&rest[..taken]);
            }
            RequestBody::Chunked(reader) => {
                reader.read(rest, &mut out)?;
            }
        }
        Ok(out)
    }
}
