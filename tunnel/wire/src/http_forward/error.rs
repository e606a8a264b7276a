//! What a client gets whose request can't be forwarded, or whose origin sends no response.

use crate::request_head::{MAX_FIELDS, MAX_HEAD_BYTES, RequestHeadError};
use crate::{AuthorityError, http_reply};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpForwardError {
    /// Not HTTP/1.x at all, or bytes that HTTP does not allow.
    #[error("the request head is not HTTP/1: {0}")]
    Malformed(httparse::Error),
    /// A line that ends without a carriage return. Parsers disagree about such lines.
    #[error("a line of the request head ends without CR")]
    BareLineFeed,
    /// HTTP, but neither version 1.0 nor 1.1.
    #[error("the request is not HTTP/1.0 or HTTP/1.1")]
    UnsupportedVersion,
    /// The target is not a URI with its scheme, as `/path`, which is for origins.
    #[error(
        "the request's target is not an absolute URI; this is a proxy: expected http://host/path"
    )]
    NotAbsolute,
    /// `https://`: the proxy would have to decrypt.
    #[error("https:// URIs need a CONNECT request; this proxy forwards http:// only")]
    HttpsTarget,
    /// A scheme other than `http`.
    #[error("the request's target has an unknown scheme; this proxy forwards http:// only")]
    UnsupportedScheme,
    /// The path has bytes that no URI has, or there is a fragment.
    #[error("the request's target has a fragment, or bytes that a URI does not have")]
    BadTarget,
    /// The target names no usable destination.
    #[error("the host of the request's target is not usable: {0}")]
    BadAuthority(#[from] AuthorityError),
    /// No Host field in HTTP/1.1, or more than one (RFC 9112 §3.2).
    #[error("the request has no Host field, or more than one")]
    BadHost,
    /// Not one plain decimal number (RFC 9112 §6.3).
    #[error("the request's Content-Length is not one decimal number")]
    BadContentLength,
    /// Two different lengths (RFC 9112 §6.1).
    #[error("the request has both Content-Length and Transfer-Encoding")]
    TwoFramings,
    /// Transfer-Encoding in HTTP/1.0, which does not have it (RFC 9112 §6.1).
    #[error("the request has Transfer-Encoding, which HTTP/1.0 does not have")]
    EncodedHttp10,
    /// A transfer coding other than `chunked` alone (RFC 9112 §7).
    #[error("the request's Transfer-Encoding is not chunked alone")]
    UnsupportedCoding,
    /// `Max-Forwards: 0`, so that the proxy would have to answer for itself (RFC 9110 §7.6.2).
    #[error("Max-Forwards is 0 or not a number, and this proxy answers no TRACE or OPTIONS itself")]
    NoMoreForwards,
    /// No end of the head within [`MAX_HEAD_BYTES`].
    #[error("the request head is longer than {MAX_HEAD_BYTES} bytes")]
    HeadTooLarge,
    /// More than [`MAX_FIELDS`] fields.
    #[error("the request head has more than {MAX_FIELDS} fields")]
    TooManyFields,
}

impl From<RequestHeadError> for HttpForwardError {
    fn from(error: RequestHeadError) -> Self {
        match error {
            RequestHeadError::Malformed(error) => Self::Malformed(error),
            RequestHeadError::UnsupportedVersion => Self::UnsupportedVersion,
            RequestHeadError::TooLarge => Self::HeadTooLarge,
            RequestHeadError::TooManyFields => Self::TooManyFields,
        }
    }
}

impl HttpForwardError {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::HeadTooLarge | Self::TooManyFields => 431,
            Self::UnsupportedCoding | Self::NoMoreForwards => 501,
            Self::UnsupportedVersion => 505,
            _ => 400,
        }
    }

    /// The whole answer to send before closing, with the reason as text.
    pub fn response(&self) -> Vec<u8> {
        let field = "Proxy-Status: millrace; error=http_request_error\r\n";
        http_reply::encode(self.status(), field, &self.to_string())
    }
}

/// The answer to a request whose content breaks its framing.
pub fn bad_content(reason: &str) -> Vec<u8> {
    let field = "Proxy-Status: millrace; error=http_request_error\r\n";
    http_reply::encode(400, field, reason)
}

/// The answer where the origin has closed its connection without a response.
pub fn no_response() -> Vec<u8> {
    let field = "Proxy-Status: millrace; error=connection_terminated\r\n";
    http_reply::encode(502, field, "the origin closed the connection without a response")
}
