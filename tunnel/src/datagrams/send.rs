//! Datagrams on their way into the tunnel.

use std::io;
use std::time::{Duration, Instant};

use millrace_wire::capsule;
use millrace_wire::http_datagram::{self, Head};
use quiche::h3;

use super::queue::share;
use super::{Near, SEND_QUEUE, UdpFlow};
use crate::conn::Conn;
use crate::core::Core;
use crate::flow::FlowEnd;
use crate::metrics::Drop;
use crate::udp::RecvBuffers;

/// Datagrams of one flow before the others have their turn.
const TURN: usize = 16;
/// How long a new connection's datagrams may wait for path MTU discovery to find room for them.
const MTU_PATIENCE: Duration = Duration::from_secs(2);
/// First byte and packet number of a short header, authentication tag, type and length of the frame
/// (RFC 9000, Sections 17.3.1 and 12.4; RFC 9001, Section 5.3; RFC 9221, Section 4).
const PACKET_OVERHEAD_BYTES: usize = 1 + 4 + 16 + 3;
/// Type and length of a DATA frame (RFC 9114, Section 7.1).
const DATA_FRAME_BYTES: usize = 10;

/// What became of the oldest datagram of a flow.
enum Sent {
    /// It is on its way, with so many bytes of payload.
    Yes(u64),
    /// The same, in a capsule on the stream.
    InCapsule(u64),
    /// It has to wait.
    Later,
    /// No packet has room for it.
    TooLarge,
    /// The stream is gone.
    Gone,
}

impl UdpFlow {
    /// Adds a payload to those that wait; how many old ones had to go.
    pub(super) fn enqueue(&mut self, payload: &[u8], most_bytes: usize) -> u64 {
        let head = http_datagram::head(self.stream);
        let mut datagram = Vec::with_capacity(Head::MAX_BYTES + payload.len());
        datagram.extend_from_slice(head.as_bytes());
        datagram.extend_from_slice(payload);
        self.queue.push(datagram, most_bytes)
    }

    /// Takes one batch from its own socket; how many old datagrams had to go.
    fn read(
        &mut self,
        buffers: &mut RecvBuffers,
        most_bytes: usize,
        now: Instant,
    ) -> io::Result<u64> {
        let Self { near: Near::Own { port, peer }, stream, queue, .. } = self else {
            self.readable = false;
            return Ok(0);
        };
        let head = http_datagram::head(*stream);
        let mut dropped = 0;
        let received = port.receive(buffers, |from, _, payload| {
            // A port for media has been there before it was connected.
            if (from.ip(), from.port()) != (peer.ip(), peer.port()) {
                return;
            }
            let mut datagram = Vec::with_capacity(Head::MAX_BYTES + payload.len());
            datagram.extend_from_slice(head.as_bytes());
            datagram.extend_from_slice(payload);
            dropped += queue.push(datagram, most_bytes);
        });
        match received {
            Ok(true) => self.active = now,
            Ok(false) => self.readable = false,
            Err(error) if self.ends_with(&error) => return Err(error),
            // Of an earlier datagram, as one that was too large for a link further on.
            Err(_) => {}
        }
        Ok(dropped)
    }

    /// Hands its oldest datagram to the connection; `None` when there is none. `largest` is the
    /// largest packet that path MTU discovery may come to.
    fn send_front(&mut self, conn: &mut Conn, largest: usize, now: Instant) -> Option<Sent> {
        let front = self.queue.front()?;
        let head_bytes = http_datagram::head(self.stream).as_bytes().len();
        let payload_bytes = (front.len() - head_bytes) as u64;
        if !conn.h3.as_ref()?.dgram_enabled_by_peer(&conn.quic) {
            return self.send_capsule(conn);
        }
        if conn.quic.dgram_send_queue_len() >= SEND_QUEUE {
            return Some(Sent::Later);
        }
        if front.len() > conn.quic.dgram_max_writable_len().unwrap_or(0) {
            let young = now.saturating_duration_since(conn.opened) < MTU_PATIENCE;
            if conn.quic.pmtu().is_none() && young && front.len() < largest {
                return Some(Sent::Later);
            }
            // RFC 9298, Section 6.2, has it dropped for the sake of the sender's path MTU discovery.
            // That finds what the tunnel carries on a path of the usual size; where the path's is
            // smaller, or becomes so, the flow must not fail. RTP has no such discovery (live555
            // sends 1,456 bytes, whatever the path), and would not get through.
            let overhead = PACKET_OVERHEAD_BYTES + conn.quic.destination_id().len();
            if self.medium.is_some() || front.len() + overhead <= largest {
                return self.send_capsule(conn);
            }
            self.queue.pop();
            return Some(Sent::TooLarge);
        }
        let datagram = self.queue.pop()?;
        Some(match conn.quic.dgram_send_buf(datagram) {
            Ok(()) => Sent::Yes(payload_bytes),
            Err(_) => Sent::TooLarge,
        })
    }
}

impl UdpFlow {
    /// Sends its oldest datagram in a capsule on the stream (RFC 9297, Section 3.5).
    fn send_capsule(&mut self, conn: &mut Conn) -> Option<Sent> {
        let front = self.queue.front()?;
        let head_bytes = http_datagram::head(self.stream).as_bytes().len();
        let payload_bytes = (front.len() - head_bytes) as u64;
        let capsule = capsule::datagram(&front[head_bytes - Head::CONTEXT_BYTES..]);
        let h3 = conn.h3.as_mut()?;
        Some(match conn.quic.stream_capacity(self.stream) {
            Ok(room) if room >= capsule.len() + DATA_FRAME_BYTES => {
                match h3.send_body(&mut conn.quic, self.stream, &capsule, false) {
                    Ok(_) => {
                        self.queue.pop();
                        Sent::InCapsule(payload_bytes)
                    }
                    Err(h3::Error::Done) => Sent::Later,
                    Err(_) => Sent::Gone,
                }
            }
            Ok(_) => Sent::Later,
            Err(_) => Sent::Gone,
        })
    }
}

impl Core {
    /// Moves datagrams into a connection, its flows in turn. Whether there is more to do at once.
    pub(crate) fn pump_datagrams(&mut self, slot: usize) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        if conn.ready_datagrams.is_empty() || !conn.established {
            return false;
        }
        let most_bytes = share(self.udp_flows.len());
        let (mut ends, mut answered, mut more) = (Vec::new(), Vec::new(), false);
        let (mut too_large, mut dropped, mut datagrams, mut bytes) = (0, 0, 0, 0);
        let mut capsules = 0;
        for _ in 0..conn.ready_datagrams.len() {
            let Some(flow_slot) = conn.ready_datagrams.pop_front() else { break };
            let Some(flow) = self.udp_flows.get_mut(flow_slot).filter(|it| it.conn == conn.id)
            else {
                continue;
            };
            flow.ready = false;
            if flow.readable {
                match flow.read(&mut self.near_buffers, most_bytes, self.now) {
                    Ok(old) => dropped += old,
                    Err(error) => {
                        tracing::info!(destination = %flow.label.destination, %error, "UDP flow");
                        ends.push((flow_slot, FlowEnd::NearReset));
                        continue;
                    }
                }
            }
            if conn.quic.is_server() && flow.admission.is_unanswered() && !flow.queue.is_empty() {
                // It has its turn once it is admitted.
                answered.push(flow_slot);
                continue;
            }
            let mut waits = false;
            for _ in 0..TURN {
                match flow.send_front(conn, self.largest_packet_bytes, self.now) {
                    Some(sent @ (Sent::Yes(payload) | Sent::InCapsule(payload))) => {
                        capsules += u64::from(matches!(sent, Sent::InCapsule(_)));
                        datagrams += 1;
                        bytes += payload;
                        flow.sent_bytes += payload;
                    }
                    Some(Sent::TooLarge) => too_large += 1,
                    Some(Sent::Later) => {
                        waits = true;
                        break;
                    }
                    Some(Sent::Gone) => {
                        ends.push((flow_slot, FlowEnd::FarReset));
                        break;
                    }
                    None => break,
                }
            }
            if flow.readable || !flow.queue.is_empty() {
                flow.ready = true;
                conn.ready_datagrams.push_back(flow_slot);
                more |= !waits;
            }
        }
        self.counters.bytes(conn.quic.is_server(), bytes);
        self.counters.datagrams(conn.quic.is_server(), datagrams);
        if capsules > 0 {
            self.shared.metrics.datagram_capsules.inc_by(capsules);
        }
        if too_large > 0 {
            self.shared.metrics.drops.of(Drop::DatagramTooLarge).inc_by(too_large);
        }
        self.count_queue_drops(dropped);
        for (flow, end) in ends {
            self.end_datagrams(flow, end);
        }
        for flow in answered {
            if self.datagrams_answered(flow) {
                self.datagrams_ready(flow);
                more = true;
            }
        }
        more
    }
}
