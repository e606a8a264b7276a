//! A request in absolute form and its response, in a flow of an explicit HTTP proxy (RFC 9112, Section 3.2.2).
//!
//! A connection of a client carries one request, and so does the connection to the origin: both heads say
//! `Connection: close`. So no second request can go to the origin of the first, and the end of the response is that of
//! the connection, whatever its length fields say. The request's end is followed, so that nothing behind it reaches the
//! origin.

mod chunked;
mod exchange;
mod request;
mod response;
mod unanswered;

pub use exchange::HttpExchange;
pub use unanswered::UnansweredExchange;
