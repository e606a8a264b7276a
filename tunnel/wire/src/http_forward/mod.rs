//! Requests in absolute form, as `GET http://host/path HTTP/1.1` (RFC 9112 §3.2.2), proxy side: the head that the origin
//! gets in its place, and the head of the response that the client gets.
//!
//! Nothing of a head is passed on as it came: both are parsed and written again, so that the next parser can't read
//! another message. What is ambiguous about the length of a message is refused (RFC 9112 §11.2). Both connections carry
//! one request, and both heads say so (`Connection: close`).

mod error;
mod fields;
mod framing;
mod request;
mod response;
mod target;

pub use error::{HttpForwardError, bad_content, no_response};
pub use fields::VIA_PSEUDONYM;
pub use framing::BodyFraming;
pub use request::{ForwardedRequest, parse_request};
pub use response::{
    ForwardedResponse, HttpResponseError, MAX_RESPONSE_HEAD_BYTES, ResponseKind, parse_response,
};
