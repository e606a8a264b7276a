//! Health probes on a worker's connections.

use crate::conn::Conn;
use crate::conn_id::ConnId;
use crate::event_loop::core::Core;
use crate::probe::{
    BODY, H3_EXCESSIVE_LOAD, H3_REQUEST_CANCELLED, MAX_BODY_BYTES, MAX_PROBES_PER_CLIENT,
    PendingProbe, ProbeExchange, ProbeState, probe_fields,
};
use crate::stream_owner::Owner;
use millrace_wire::h3_connect::{RTSP_FIELD, RTSP_FOLLOWED};
use quiche::h3::{self, NameValue};

impl Core {
    /// Starts a probe, unless one is under way.
    pub fn begin_probe(&mut self, id: ConnId, authority: String) {
        let now = self.now;
        let Some(conn) = self.conn_mut(id).filter(|conn| conn.probes.asked.is_none()) else {
            return;
        };
        let stats = conn.quic.stats();
        conn.probes.asked = Some(PendingProbe {
            started: now,
            exchange: None,
            authority,
            acked_bytes: stats.acked_bytes,
            received_bytes: stats.recv_bytes,
        });
        self.mark_pending(id.slot);
    }

    /// The probe in flight; `None` after its answer, or before the first.
    pub fn probe_state(&self, id: ConnId) -> Option<ProbeState> {
        let conn = self.conn(id)?;
        let asked = conn.probes.asked.as_ref()?;
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
        let follows_rtsp = self.shared.follows_rtsp();
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.probes.answering.len() >= MAX_PROBES_PER_CLIENT {
            conn.reset(stream, H3_EXCESSIVE_LOAD);
        } else {
            let finished = match conn.http.streams.insert(stream, Owner::Probe) {
                Some(Owner::PendingRequest { finished }) => finished,
                _ => false,
            };
            let exchange = ProbeExchange {
                received_end: finished,
                follows_rtsp,
                ..ProbeExchange::new(stream, false)
            };
            conn.probes.answering.push(exchange);
        }
        self.mark_pending(id.slot);
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
        if conn.probes.asked.is_none() && conn.probes.answering.is_empty() {
            return;
        }
        conn.pump_asked();
        conn.pump_answers();
        // What was read may have been the last before the end of its stream.
        self.pending.needs_h3_poll = true;
    }
}

impl Conn {
    fn exchange_mut(&mut self, stream: u64) -> Option<&mut ProbeExchange> {
        let asked = self.probes.asked.iter_mut().filter_map(|asked| asked.exchange.as_mut());
        asked.chain(&mut self.probes.answering).find(|it| it.stream == stream)
    }

    /// Forgets a probe that the peer has reset; at a client that counts as an answer.
    fn forget_probe(&mut self, stream: u64) {
        self.probes
            .asked
            .take_if(|asked| asked.exchange.as_ref().is_some_and(|it| it.stream == stream));
        self.probes.answering.retain(|it| it.stream != stream);
    }

    fn pump_asked(&mut self) {
        let Some(mut asked) = self.probes.asked.take() else { return };
        if asked.exchange.is_none() {
            match self.request(&probe_fields(&asked.authority, BODY.len()), Owner::Probe) {
                Ok(stream) => asked.exchange = Some(ProbeExchange::new(stream, true)),
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
                self.http.streams.remove(&exchange.stream);
            }
            Some(exchange) => self.reset(exchange.stream, H3_REQUEST_CANCELLED),
            None => self.probes.asked = Some(asked),
        }
    }

    fn pump_answers(&mut self) {
        let mut answering = std::mem::take(&mut self.probes.answering);
        answering.retain_mut(|exchange| {
            let stream = exchange.stream;
            if !exchange.fields_sent {
                let mut fields = vec![h3::Header::new(b":status", b"200")];
                if exchange.follows_rtsp {
                    let (name, value) = (RTSP_FIELD.as_bytes(), RTSP_FOLLOWED.as_bytes());
                    fields.push(h3::Header::new(name, value));
                }
                match self.respond(stream, &fields, false) {
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
                self.http.streams.remove(&stream);
            }
            !done
        });
        self.probes.answering = answering;
    }

    /// Sends and reads what goes now.
    fn pump(&mut self, exchange: &mut ProbeExchange) {
        let Some(h3) = self.http.h3.as_mut() else { return };
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
