//! The state of an exchange.

use std::borrow::Cow;

use millrace_wire::ConnectFailure;
use millrace_wire::http_connect;
use millrace_wire::http_forward::{self, ForwardedRequest};
use millrace_wire::http_reply::without_content;

use super::request::RequestReader;
use super::response::ResponseWriter;

/// The state of an exchange, at the client's end of the tunnel. It holds no more than a response head of
/// [`http_forward::MAX_RESPONSE_HEAD_BYTES`] and one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpExchange {
    request: RequestReader,
    /// The request before any byte of it was read, for a retry.
    request_at_start: RequestReader,
    response: ResponseWriter,
    is_head_request: bool,
    /// The proxy's own answer, once it is to replace the response.
    answer: Option<Vec<u8>>,
}

impl HttpExchange {
    /// The exchange that `request` begins. Its first bytes must be those of the request's new head.
    pub fn new(request: &ForwardedRequest) -> Self {
        let reader = RequestReader::new(request);
        Self {
            request: reader.clone(),
            request_at_start: reader,
            response: ResponseWriter::new(request.is_http_10, request.is_head),
            is_head_request: request.is_head,
            answer: None,
        }
    }

    /// The same exchange before any byte of it.
    pub(crate) fn restarted(mut self: Box<Self>) -> Box<Self> {
        self.request = self.request_at_start.clone();
        self
    }

    /// Takes bytes of the client; what goes to the origin.
    pub fn on_request_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.is_over() {
            return Vec::new();
        }
        self.request.read(bytes).unwrap_or_else(|error| {
            match self.response.has_begun() {
                true => self.response.break_off(),
                false => self.replace_response(http_forward::bad_content(&error.to_string())),
            }
            Vec::new()
        })
    }

    /// Takes bytes of the origin; what goes to the client.
    pub fn on_response_bytes<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.response.take(bytes).unwrap_or_else(|error| {
            self.replace_response(error.response());
            Cow::default()
        })
    }

    /// The origin has ended its direction.
    pub fn end_response(&mut self) {
        if !self.response.has_begun() && self.answer.is_none() {
            self.replace_response(http_forward::no_response());
        }
    }

    /// Whether an answer of the proxy is to replace the response.
    pub fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    /// The answer of the proxy, which for a failure of the exchange itself is that one.
    pub fn answer(&self, failure: ConnectFailure) -> Vec<u8> {
        match &self.answer {
            Some(answer) => answer.clone(),
            None => self.fit(http_connect::encode_failure(failure)),
        }
    }

    /// Whether all of the request has come. If not, an end of the client's direction is a failure.
    pub fn is_request_complete(&self) -> bool {
        self.request.is_complete()
    }

    /// Whether the client has the head of the response, so that no other answer can replace it.
    pub fn is_answered(&self) -> bool {
        self.response.has_begun()
    }

    /// Whether there is an error that the client can only be told by a reset.
    pub fn is_broken(&self) -> bool {
        self.response.is_broken()
    }

    /// Whether the response lacks its end, if the origin has closed now.
    pub fn is_response_truncated(&self) -> bool {
        self.response.is_truncated()
    }

    /// What it holds.
    pub fn held_bytes(&self) -> usize {
        self.response.held_bytes() + self.answer.as_ref().map_or(0, Vec::capacity)
    }

    /// Whether nothing more goes to the origin.
    fn is_over(&self) -> bool {
        self.has_answer() || self.is_broken()
    }

    fn replace_response(&mut self, answer: Vec<u8>) {
        self.response.replace();
        self.answer = Some(self.fit(answer));
    }

    fn fit(&self, answer: Vec<u8>) -> Vec<u8> {
        match self.is_head_request {
            true => without_content(answer),
            false => answer,
        }
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
