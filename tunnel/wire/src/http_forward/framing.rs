//! Where the content of a request ends (RFC 9112 §6.3).

use httparse::Header;

use super::error::HttpForwardError;
use super::fields::{self, values_of};

/// Where the content of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// At the end of the head: the request has no content.
    Empty,
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
}

impl BodyFraming {
    /// Of a request with these fields. Each doubt is an error.
    pub(super) fn of_request(
        fields: &[Header<'_>],
        is_http_10: bool,
    ) -> Result<Self, HttpForwardError> {
        let mut lengths = values_of(fields, "content-length");
        let mut codings = values_of(fields, "transfer-encoding");
        match (lengths.next(), codings.next()) {
            (None, None) => Ok(Self::Empty),
            (Some(_), Some(_)) => Err(HttpForwardError::TwoFramings),
            (Some(value), None) => {
                let length = decimal(value).filter(|_| lengths.next().is_none());
                length.map(Self::Length).ok_or(HttpForwardError::BadContentLength)
            }
            (None, Some(_)) if is_http_10 => Err(HttpForwardError::EncodedHttp10),
            (None, Some(value)) if value.eq_ignore_ascii_case(b"chunked") => match codings.next() {
                None => Ok(Self::Chunked),
                Some(_) => Err(HttpForwardError::UnsupportedCoding),
            },
            (None, Some(_)) => Err(HttpForwardError::UnsupportedCoding),
        }
    }

    /// Writes its field.
    pub(super) fn write(self, head: &mut Vec<u8>) {
        match self {
            Self::Empty => {}
            Self::Length(bytes) => {
                fields::write(head, "Content-Length", bytes.to_string().as_bytes());
            }
            Self::Chunked => fields::write(head, "Transfer-Encoding", b"chunked"),
        }
    }
}

/// A number of decimal digits and nothing else (RFC 9110 §8.6).
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    // The parser of u64 takes "+5" too.
    let is_plain = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_plain)?.parse().ok()
}
