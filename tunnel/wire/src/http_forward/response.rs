//! The head of a response to a forwarded request.

use super::fields::{self, is_named, nominated, values_of};
use super::framing;
use crate::{Parsed, http_reply};

/// Longest response head with its empty line, in bytes. Pages set many cookies; curl takes 300 KiB, nginx 4 KiB.
pub const MAX_RESPONSE_HEAD_BYTES: usize = 32 * 1024;

/// Most fields in a response head.
const MAX_RESPONSE_FIELDS: usize = 128;

/// How each response head begins, without its minor version.
const VERSION: &[u8] = b"HTTP/1.";

/// Fields of a response that are not passed on: those of one connection (RFC 9110 §7.6.1), and those of a proxy.
const NOT_FORWARDED: [&str; 6] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "upgrade",
];

/// Why a response can't be passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpResponseError {
    /// Not HTTP/1.x, or bytes that HTTP does not allow.
    #[error("the origin's response is not HTTP/1: {0}")]
    Malformed(httparse::Error),
    /// 101, although the request asked for no other protocol.
    #[error("the origin changes to another protocol without being asked")]
    Switched,
    /// Lengths that differ, or are no numbers (RFC 9112 §6.3).
    #[error("the origin's response has a Content-Length that is not one decimal number")]
    BadContentLength,
    /// A transfer coding that a client of HTTP/1.0 does not know and that can't be taken off.
    #[error(
        "the origin's response has a transfer coding other than chunked, for a client of HTTP/1.0"
    )]
    UnsupportedCoding,
    /// No end of the head within [`MAX_RESPONSE_HEAD_BYTES`], or more than 128 fields.
    #[error(
        "the head of the origin's response is longer than {MAX_RESPONSE_HEAD_BYTES} bytes or {MAX_RESPONSE_FIELDS} fields"
    )]
    HeadTooLarge,
}

impl HttpResponseError {
    /// The whole answer to send in place of the response.
    pub fn response(&self) -> Vec<u8> {
        let field = "Proxy-Status: millrace; error=http_protocol_error\r\n";
        http_reply::encode(502, field, &self.to_string())
    }
}

/// What follows a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// Another head: this is an interim response (RFC 9110 §15.2).
    Interim,
    /// Content as it is, or none.
    Plain,
    /// Content in chunks that the client does not know: they are to be taken off.
    Chunked,
}

/// A response head as the client gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedResponse {
    /// The whole head.
    pub head: Vec<u8>,
    /// What follows it.
    pub kind: ResponseKind,
}

/// Parses a whole response head, for a client of HTTP/1.0 or 1.1.
///
/// # Errors
/// The response can't be passed on; [`HttpResponseError::response`] is the answer to send instead.
pub fn parse_response(
    buf: &[u8],
    to_http_10: bool,
) -> Result<Parsed<ForwardedResponse>, HttpResponseError> {
    let start = buf.len().min(VERSION.len());
    if buf[..start] != VERSION[..start] {
        return Err(HttpResponseError::Malformed(httparse::Error::Version));
    }
    let window = &buf[..buf.len().min(MAX_RESPONSE_HEAD_BYTES)];
    let mut fields = [httparse::EMPTY_HEADER; MAX_RESPONSE_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let mut parser = httparse::ParserConfig::default();
    // RFC 9112 §5.1: a proxy removes such a space from a response.
    parser.allow_spaces_after_header_name_in_responses(true);
    let consumed = match parser.parse_response(&mut response, window) {
        Ok(httparse::Status::Complete(consumed)) => consumed,
        Ok(httparse::Status::Partial) if window.len() == MAX_RESPONSE_HEAD_BYTES => {
            return Err(HttpResponseError::HeadTooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(Parsed::Incomplete),
        Err(httparse::Error::TooManyHeaders) => return Err(HttpResponseError::HeadTooLarge),
        Err(error) => return Err(HttpResponseError::Malformed(error)),
    };
    let (status, fields) = (response.code.unwrap_or_default(), &*response.headers);
    match status {
        0..=99 => return Err(HttpResponseError::Malformed(httparse::Error::Status)),
        101 => return Err(HttpResponseError::Switched),
        _ => {}
    }
    let is_interim = status < 200;
    let is_encoded = values_of(fields, "transfer-encoding").next().is_some();
    let mut head =
        format!("HTTP/1.1 {status} {}\r\n", response.reason.unwrap_or_default()).into_bytes();
    write_framing(&mut head, fields, is_encoded, to_http_10)?;
    let nominated = nominated(fields);
    for field in fields {
        let is_framing = is_named(field, "content-length") || is_named(field, "transfer-encoding");
        let is_hop_by_hop = NOT_FORWARDED.iter().any(|name| is_named(field, name))
            || nominated.iter().any(|name| is_named(field, name));
        if !is_framing && !is_hop_by_hop {
            fields::write(&mut head, field.name, field.value);
        }
    }
    let kind = match status {
        _ if is_interim => ResponseKind::Interim,
        204 | 304 => ResponseKind::Plain,
        _ if is_encoded && to_http_10 => ResponseKind::Chunked,
        _ => ResponseKind::Plain,
    };
    if is_interim {
        head.extend_from_slice(b"\r\n");
    } else {
        fields::end_head(&mut head, response.version == Some(0));
    }
    Ok(Parsed::Complete { value: ForwardedResponse { head, kind }, consumed })
}

/// Writes how the client finds the end: the length goes where there is a transfer coding (RFC 9112 §6.3), and the
/// coding goes for a client of HTTP/1.0.
fn write_framing(
    head: &mut Vec<u8>,
    fields: &[httparse::Header<'_>],
    is_encoded: bool,
    to_http_10: bool,
) -> Result<(), HttpResponseError> {
    for value in values_of(fields, "transfer-encoding") {
        match to_http_10 {
            true if value.eq_ignore_ascii_case(b"chunked") => {}
            true => return Err(HttpResponseError::UnsupportedCoding),
            false => fields::write(head, "Transfer-Encoding", value),
        }
    }
    let mut lengths = values_of(fields, "content-length").filter(|_| !is_encoded);
    let Some(first) = lengths.next() else { return Ok(()) };
    if framing::decimal(first).is_none() || lengths.any(|other| other != first) {
        return Err(HttpResponseError::BadContentLength);
    }
    fields::write(head, "Content-Length", first);
    Ok(())
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
