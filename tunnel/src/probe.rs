//! Health probes: a request of more than a full-size packet, and an answer of as much.
//!
//! A connection can be alive and yet carry nothing: small packets pass and full-size ones are lost, or its
//! flow control is used up. A client finds that out by what a flow would need, stream data of more than
//! one packet each way, under the same credit. A server that does not know the resource answers with an
//! error, and is there all the same.

use std::time::{Duration, Instant};

use quiche::h3::{self, NameValue};

use crate::conn::{Conn, ConnId, Owner};
use crate::core::Core;

/// The resource that is asked for (RFC 8615).
const PATH: &[u8] = b"/.well-known/millrace/health";
/// Of a request and of its answer: three packets of 1,500 bytes.
const BODY: [u8; 4096] = [0; 4096];
/// The longest body that a server reads.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Probes of a client that a server answers at a time.
const MAX_PROBES: usize = 4;
/// RFC 9114, Section 8.1.
const H3_EXCESSIVE_LOAD: u64 = 0x107;
/// RFC 9114, Section 8.1.
const H3_REQUEST_CANCELLED: u64 = 0x10c;

/// One probe on its stream, at either end.
#[derive(Debug)]
pub(crate) struct Exchange {
    stream: u64,
    /// Part of [`BODY`] that has been sent, once the fields have.
    sent_bytes: usize,
    fields_sent: bool,
    received_bytes: usize,
    /// The status of the answer is there, and not 200: it has no such body.
    refused: bool,
    received_end: bool,
}

impl Exchange {
    fn new(stream: u64, fields_sent: bool) -> Self {
        Self {
            stream,
            sent_bytes: 0,
            fields_sent,
            received_bytes: 0,
            refused: false,
            received_end: false,
        }
    }

    fn sent_end(&self) -> bool {
        self.sent_bytes == BODY.len()
    }
}

/// What a client has under way on a connection.
#[derive(Debug)]
pub(crate) struct Asked {
    started: Instant,
    /// Without it the connection had no room for the request yet.
    exchange: Option<Exchange>,
    authority: String,
    acked_bytes: u64,
    received_bytes: u64,
}

/// A probe under way, for those who wait for it.
#[derive(Clone, Copy, Debug)]
pub struct ProbeState {
    /// How long it has been under way.
    pub elapsed: Duration,
    /// Whether the connection has moved as much meanwhile, both ways: then it is busy and not stuck.
    pub is_moving: bool,
}

/// Whether a request is a probe.
pub fn is_probe(fields: &[h3::Header]) -> bool {
    let has = |name: &[u8], value: &[u8]| {
        fields.iter().any(|field| field.name() == name && field.value() == value)
    };
    has(b":path", PATH) && has(b":method", b"POST")
}

impl Core {
    /// Begins a probe, unless one is under way.
    pub fn begin_probe(&mut self, id: ConnId, authority: String) {
        let now = self.now;
        let Some(conn) = self.conn_mut(id).filter(|conn| conn.asked.is_none()) else { return };
        let stats = conn.quic.stats();
        conn.asked = Some(Asked {
            started: now,
            exchange: None,
            authority,
            acked_bytes: stats.acked_bytes,
            received_bytes: stats.recv_bytes,
        });
        self.mark_dirty(id.slot);
    }

    /// The probe that is under way; `None` when there is none, or none any more because it was answered.
    pub fn probe_state(&self, id: ConnId) -> Option<ProbeState> {
        let conn = self.conn(id)?;
        let asked = conn.asked.as_ref()?;
        let stats = conn.quic.stats();
        let least = BODY.len() as u64;
        Some(ProbeState {
            elapsed: self.now.saturating_duration_since(asked.started),
            is_moving: stats.acked_bytes >= asked.acked_bytes + least
                && stats.recv_bytes >= asked.received_bytes + least,
        })
    }

    /// Answers a probe.
    pub fn answer_probe(&mut self, id: ConnId, stream: u64) {
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.answering.len() >= MAX_PROBES {
            conn.reset(stream, H3_EXCESSIVE_LOAD);
        } else {
            let finished = match conn.streams.insert(stream, Owner::Probe) {
                Some(Owner::Unclaimed { finished }) => finished,
                _ => false,
            };
            let exchange = Exchange { received_end: finished, ..Exchange::new(stream, false) };
            conn.answering.push(exchange);
        }
        self.mark_dirty(id.slot);
    }

    /// Something came on a probe's stream.
    pub(crate) fn on_probe_event(&mut self, slot: usize, stream: u64, event: &h3::Event) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if matches!(event, h3::Event::Reset(_)) {
            conn.forget_probe(stream);
            conn.reset(stream, H3_REQUEST_CANCELLED);
            return;
        }
        let Some(exchange) = conn.exchange_mut(stream) else { return };
        match event {
            h3::Event::Headers { list, .. } => {
                let status = list.iter().find(|field| field.name() == b":status");
                exchange.refused |= status.is_some_and(|it| it.value() != b"200");
            }
            h3::Event::Finished => exchange.received_end = true,
            _ => {}
        }
        self.pump_probes(slot);
    }

    /// Moves what probes have to send and to read.
    pub(crate) fn pump_probes(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.asked.is_none() && conn.answering.is_empty() {
            return;
        }
        conn.pump_asked();
        conn.pump_answers();
        // What was read may have been the last before the end of its stream.
        self.read_streams = true;
    }
}

impl Conn {
    fn exchange_mut(&mut self, stream: u64) -> Option<&mut Exchange> {
        let asked = self.asked.iter_mut().filter_map(|asked| asked.exchange.as_mut());
        asked.chain(&mut self.answering).find(|it| it.stream == stream)
    }

    /// A probe whose peer has given it up: at a client that is an answer, too.
    fn forget_probe(&mut self, stream: u64) {
        self.asked.take_if(|asked| asked.exchange.as_ref().is_some_and(|it| it.stream == stream));
        self.answering.retain(|it| it.stream != stream);
    }

    fn pump_asked(&mut self) {
        let Some(mut asked) = self.asked.take() else { return };
        if asked.exchange.is_none() {
            match self.request(&probe_fields(&asked.authority), Owner::Probe) {
                Ok(stream) => asked.exchange = Some(Exchange::new(stream, true)),
                Err(h3::Error::StreamBlocked) => {}
                // No stream is left, because flows have them all, or the connection ends.
                Err(_) => return,
            }
        }
        let done = asked.exchange.as_mut().is_some_and(|exchange| {
            self.pump(exchange);
            // An error answers before the request is whole.
            exchange.refused || (exchange.received_end && exchange.sent_end())
        });
        match asked.exchange.as_ref().filter(|_| done) {
            Some(exchange) if exchange.received_end && exchange.sent_end() => {
                self.streams.remove(&exchange.stream);
            }
            Some(exchange) => self.reset(exchange.stream, H3_REQUEST_CANCELLED),
            None => self.asked = Some(asked),
        }
    }

    fn pump_answers(&mut self) {
        let mut answering = std::mem::take(&mut self.answering);
        answering.retain_mut(|exchange| {
            let stream = exchange.stream;
            if !exchange.fields_sent {
                let field = h3::Header::new(b":status", b"200");
                match self.respond(stream, &[field], false) {
                    Ok(()) => exchange.fields_sent = true,
                    Err(h3::Error::StreamBlocked) => return true,
                    Err(_) => {
                        self.reset(stream, H3_REQUEST_CANCELLED);
                        return false;
                    }
                }
            }
            self.pump(exchange);
            if exchange.received_bytes > MAX_BODY_BYTES {
                self.reset(stream, H3_EXCESSIVE_LOAD);
                return false;
            }
            let done = exchange.received_end && exchange.sent_end();
            if done {
                self.streams.remove(&stream);
            }
            !done
        });
        self.answering = answering;
    }

    /// Sends and reads what goes now.
    fn pump(&mut self, exchange: &mut Exchange) {
        let Some(h3) = self.h3.as_mut() else { return };
        while !exchange.sent_end() {
            let rest = &BODY[exchange.sent_bytes..];
            // Without credit it goes on when some has come; a reset of the stream comes as an event.
            let Ok(sent) = h3.send_body(&mut self.quic, exchange.stream, rest, true) else { break };
            exchange.sent_bytes += sent;
        }
        let mut scratch = [0; 2048];
        while let Ok(read) = h3.recv_body(&mut self.quic, exchange.stream, &mut scratch) {
            exchange.received_bytes += read;
            if exchange.received_bytes > MAX_BODY_BYTES {
                break;
            }
        }
    }
}

fn probe_fields(authority: &str) -> [h3::Header; 5] {
    [
        h3::Header::new(b":method", b"POST"),
        h3::Header::new(b":scheme", b"https"),
        h3::Header::new(b":authority", authority.as_bytes()),
        h3::Header::new(b":path", PATH),
        h3::Header::new(b"content-length", BODY.len().to_string().as_bytes()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_told_from_other_requests() {
        assert!(is_probe(&probe_fields("edge.example:4433")));
        let other = |name: &[u8], value: &[u8]| {
            let mut fields = probe_fields("edge.example:4433").to_vec();
            fields.retain(|field| field.name() != name);
            fields.push(h3::Header::new(name, value));
            fields
        };
        assert!(!is_probe(&other(b":path", b"/")));
        assert!(!is_probe(&other(b":method", b"CONNECT")));
    }
}
