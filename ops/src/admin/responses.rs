//! Answers that several resources give.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// Hexadecimal digits of the longest connection ID (RFC 9000, Section 17.2).
const MAX_CONNECTION_DIGITS: usize = 40;

/// Whether it could be the name of a connection: its ID in hexadecimal, as `/flows` shows it.
pub(super) fn is_connection(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (1..=MAX_CONNECTION_DIGITS).contains(&name.len()) && name.bytes().all(is_digit)
}

pub(super) fn failed(error: &dyn std::error::Error) -> Response<Full<Bytes>> {
    tracing::error!(%error, "admin request failed");
    response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "failed; see the log\n")
}

pub(super) fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
