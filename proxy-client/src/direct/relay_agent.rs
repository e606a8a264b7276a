//! What rewrites the bytes of a bypassed flow.

use std::borrow::Cow;
use std::io;

use millrace_tunnel::http_exchange::HttpExchange;
use millrace_tunnel::rtsp::UdpRefuser;
use millrace_wire::ConnectFailure;

/// What rewrites both directions of a relay.
#[derive(Debug)]
pub(super) enum RelayAgent {
    /// The flow may be RTSP.
    Rtsp(Box<UdpRefuser>),
    /// The flow carries one HTTP request.
    Http(Box<HttpExchange>),
}

impl RelayAgent {
    pub(super) fn new(exchange: Option<Box<HttpExchange>>) -> Self {
        exchange.map_or_else(|| Self::Rtsp(Box::default()), Self::Http)
    }

    pub(super) fn requests(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Rtsp(rtsp) => rtsp.requests(bytes),
            Self::Http(exchange) => exchange.on_request_bytes(bytes),
        }
    }

    pub(super) fn answers<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::Rtsp(rtsp) => rtsp.answers(bytes).into(),
            Self::Http(exchange) => exchange.on_response_bytes(bytes),
        }
    }

    /// What goes to the client after [`Self::requests`].
    pub(super) fn replies(&mut self) -> Vec<u8> {
        match self {
            Self::Rtsp(rtsp) => rtsp.replies(),
            Self::Http(_) => Vec::new(),
        }
    }

    /// The client's direction has ended: what was held of it. An error if its request lacks its end.
    pub(super) fn end_requests(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Rtsp(rtsp) => Ok(rtsp.end_requests()),
            Self::Http(exchange) if exchange.is_request_complete() || exchange.has_answer() => {
                Ok(Vec::new())
            }
            Self::Http(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The destination's direction has ended: what was held of it. An error if its response lacks its end.
    pub(super) fn end_answers(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Rtsp(rtsp) => Ok(rtsp.end_answers()),
            Self::Http(exchange) if exchange.is_response_truncated() => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Self::Http(exchange) => {
                exchange.end_response();
                Ok(match exchange.has_answer() {
                    true => exchange.answer(ConnectFailure::Internal),
                    false => Vec::new(),
                })
            }
        }
    }

    /// Whether all that follows passes unchanged.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Rtsp(rtsp) if rtsp.is_over())
    }

    /// Whether all of a request that was begun has gone to the destination.
    pub(super) fn is_request_whole(&self) -> bool {
        match self {
            Self::Rtsp(_) => true,
            Self::Http(exchange) => exchange.is_request_complete(),
        }
    }
}
