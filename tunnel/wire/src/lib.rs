//! Pure parsers and encoders for what Millrace reads from a peer before it relays a byte: PROXY protocol headers,
//! SOCKS5, HTTP/1.1 CONNECT heads, heads of requests in absolute form and of their responses, HTTP/3 CONNECT field lists,
//! and the datagrams and capsules of CONNECT-UDP; player reports in requests (CMCD); RTSP messages, and the session
//! descriptions and RTP packets in an RTSP connection; invitations and messages of enrolment.
//!
//! Nothing here does I/O, keeps state or allocates more than the length cap of its format. An
//! incremental parser is a function of all bytes read so far: it answers [`Parsed::Incomplete`]
//! until the bytes decide, and [`Parsed::Complete`] with the number of bytes that belong to the
//! value; the bytes after them are the caller's. Every prefix of a valid input is incomplete, never
//! an error, and no cap needs a caller to count: an incomplete input that reached the cap of its
//! format is an error.

pub mod capsule;
pub mod cmcd;
pub mod connect_udp;
pub mod destination;
pub mod enrolment;
pub mod failure;
pub mod first_bytes;
pub mod h3_connect;
pub mod http_connect;
pub mod http_datagram;
pub mod http_forward;
pub mod http_reply;
pub mod proxy_authorization;
pub mod proxy_protocol;
pub mod quic_packet;
pub mod repair;
mod request_head;
pub mod rtp;
pub mod rtsp;
pub mod sdp;
pub mod socks5;
pub mod traceparent;

pub use destination::{AuthorityError, Destination, parse_authority};
pub use failure::ConnectFailure;

#[cfg(test)]
mod test_support;

/// The result of an incremental parser for the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// The bytes are the beginning of a valid value; call again with more.
    Incomplete,
    /// The bytes begin with a whole value.
    Complete {
        /// The value.
        value: T,
        /// How many bytes at the front of the buffer it took, in bytes. Never zero, and never more
        /// than the buffer holds.
        consumed: usize,
    },
}

impl<T> Parsed<T> {
    /// Turns the value, if complete, into another.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Parsed<U> {
        match self {
            Self::Incomplete => Parsed::Incomplete,
            Self::Complete { value, consumed } => Parsed::Complete { value: f(value), consumed },
        }
    }
}
