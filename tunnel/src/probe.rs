//! Health probes: a request of more than a full-size packet, and an answer of as much.
//!
//! A connection can be alive and yet carry nothing: small packets pass and full-size ones are lost, or its flow control
//! is used up. A client detects that by what a flow would need: stream data of more than one packet each way, under the
//! same credit. A server that does not know the resource answers with an error, which counts as an answer.

use std::time::{Duration, Instant};

use quiche::h3::{self, NameValue};

/// The resource that is asked for (RFC 8615).
const PATH: &[u8] = b"/.well-known/millrace/health";
/// Of a request and of its answer: three packets of 1,500 bytes.
pub(crate) const BODY: [u8; 4096] = [0; 4096];
/// The longest body that a server reads.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 10;
/// Probes of a client that a server answers at a time.
pub(crate) const MAX_PROBES_PER_CLIENT: usize = 4;
/// RFC 9114, Section 8.1.
pub(crate) const H3_EXCESSIVE_LOAD: u64 = 0x107;
/// RFC 9114, Section 8.1.
pub(crate) const H3_REQUEST_CANCELLED: u64 = 0x10c;

/// One probe on its stream, at either end.
#[derive(Debug)]
pub(crate) struct ProbeExchange {
    pub(crate) stream: u64,
    /// Part of [`BODY`] that has been sent, once the fields have.
    pub(crate) sent_bytes: usize,
    pub(crate) fields_sent: bool,
    /// The answer says that this server follows RTSP.
    pub(crate) follows_rtsp: bool,
    pub(crate) received_bytes: usize,
    /// The status of the answer is there, and not 200: it has no such body.
    pub(crate) refused: bool,
    pub(crate) received_end: bool,
}

impl ProbeExchange {
    pub(crate) fn new(stream: u64, fields_sent: bool) -> Self {
        Self {
            stream,
            sent_bytes: 0,
            fields_sent,
            follows_rtsp: false,
            received_bytes: 0,
            refused: false,
            received_end: false,
        }
    }

    pub(crate) fn sent_end(&self) -> bool {
        self.sent_bytes == BODY.len()
    }
}

/// What a client has under way on a connection.
#[derive(Debug)]
pub(crate) struct PendingProbe {
    pub(crate) started: Instant,
    /// Without it the connection had no room for the request yet.
    pub(crate) exchange: Option<ProbeExchange>,
    pub(crate) authority: String,
    pub(crate) acked_bytes: u64,
    pub(crate) received_bytes: u64,
}

/// The state of a probe that is under way.
#[derive(Clone, Copy, Debug)]
pub struct ProbeState {
    /// How long it has been under way.
    pub elapsed: Duration,
    /// Whether the connection has meanwhile moved as many bytes both ways: then it is busy, not stuck.
    pub is_moving: bool,
}

/// Whether a request is a probe.
pub fn is_probe(fields: &[h3::Header]) -> bool {
    let has = |name: &[u8], value: &[u8]| {
        fields.iter().any(|field| field.name() == name && field.value() == value)
    };
    has(b":path", PATH) && has(b":method", b"POST")
}

/// A probe's request, with so many bytes of content.
pub fn probe_fields(authority: &str, content_bytes: usize) -> [h3::Header; 5] {
    [
        h3::Header::new(b":method", b"POST"),
        h3::Header::new(b":scheme", b"https"),
        h3::Header::new(b":authority", authority.as_bytes()),
        h3::Header::new(b":path", PATH),
        h3::Header::new(b"content-length", content_bytes.to_string().as_bytes()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_told_from_other_requests() {
        assert!(is_probe(&probe_fields("edge.example:4433", 0)));
        let other = |name: &[u8], value: &[u8]| {
            let mut fields = probe_fields("edge.example:4433", 0).to_vec();
            fields.retain(|field| field.name() != name);
            fields.push(h3::Header::new(name, value));
            fields
        };
        assert!(!is_probe(&other(b":path", b"/")));
        assert!(!is_probe(&other(b":method", b"CONNECT")));
    }
}
