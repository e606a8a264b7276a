//! The head of a request to forward.

use super::error::HttpForwardError;
use super::fields::{self, is_named, nominated, values_of};
use super::framing::{self, BodyFraming};
use super::target;
use crate::request_head::{self, MAX_FIELDS};
use crate::{Destination, Parsed};

/// Fields of a request that are not passed on: those of one connection (RFC 9110 §7.6.1), those for this proxy, those of
/// trailers, which are dropped, and those that are written again.
const NOT_FORWARDED: [&str; 10] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request as the origin gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedRequest {
    /// Where it goes.
    pub destination: Destination,
    /// Its whole head, in origin form.
    pub head: Vec<u8>,
    /// Where its content ends.
    pub framing: BodyFraming,
    /// Whether its response has no content (HEAD).
    pub is_head: bool,
    /// Whether its client speaks HTTP/1.0, and knows neither interim responses nor `chunked`.
    pub is_http_10: bool,
}

/// Parses a whole head in absolute form, up to and with its empty line.
///
/// # Errors
/// The request can't be forwarded; [`HttpForwardError::response`] is the answer to send.
pub fn parse_request(buf: &[u8]) -> Result<Parsed<ForwardedRequest>, HttpForwardError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let Some(consumed) = request_head::parse(&mut request, buf)? else {
        return Ok(Parsed::Incomplete);
    };
    if has_bare_line_feed(&buf[..consumed]) {
        return Err(HttpForwardError::BareLineFeed);
    }
    let is_http_10 = request.version == Some(0);
    let (method, fields) = (request.method.unwrap_or_default(), &*request.headers);
    let target = target::parse(request.path.unwrap_or_default(), method)?;
    let hosts = values_of(fields, "host").count();
    if hosts > 1 || (hosts == 0 && !is_http_10) {
        return Err(HttpForwardError::BadHost);
    }
    let framing = BodyFraming::of_request(fields, is_http_10)?;
    let max_forwards = max_forwards(method, fields)?;
    let mut head =
        format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", target.origin_form, target.authority)
            .into_bytes();
    let nominated = nominated(fields);
    for field in fields {
        let is_replaced = max_forwards.is_some() && is_named(field, "max-forwards");
        // RFC 9110 §10.1.1: an expectation in HTTP/1.0 is ignored, for its client takes no interim response.
        let is_ignored = is_http_10 && is_named(field, "expect");
        let is_hop_by_hop = NOT_FORWARDED.iter().any(|name| is_named(field, name))
            || nominated.iter().any(|name| is_named(field, name));
        if !is_replaced && !is_ignored && !is_hop_by_hop {
            fields::write(&mut head, field.name, field.value);
        }
    }
    if let Some(left) = max_forwards {
        fields::write(&mut head, "Max-Forwards", left.to_string().as_bytes());
    }
    framing.write(&mut head);
    fields::end_head(&mut head, is_http_10);
    let (destination, is_head) = (target.destination, method == "HEAD");
    let value = ForwardedRequest { destination, head, framing, is_head, is_http_10 };
    Ok(Parsed::Complete { value, consumed })
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    let mut previous = 0;
    head.iter().any(|byte| std::mem::replace(&mut previous, *byte) != b'\r' && *byte == b'\n')
}

/// How often the next recipient may forward a TRACE or OPTIONS request, if it says so (RFC 9110 §7.6.2).
fn max_forwards(
    method: &str,
    fields: &[httparse::Header<'_>],
) -> Result<Option<u64>, HttpForwardError> {
    let mut values =
        values_of(fields, "max-forwards").filter(|_| matches!(method, "TRACE" | "OPTIONS"));
    let (Some(value), more) = (values.next(), values.next()) else { return Ok(None) };
    let left = framing::decimal(value).filter(|_| more.is_none()).and_then(|it| it.checked_sub(1));
    left.map(Some).ok_or(HttpForwardError::NoMoreForwards)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
