//! Datagrams on their way into the tunnel.

use std::io;
use std::time::{Duration, Instant};

use millrace_wire::capsule;
use millrace_wire::http_datagram::{self, Head};
use quiche::h3;

use super::{SEND_QUEUE, UdpFlow};
use crate::conn::Conn;
use crate::udp::RecvBuffers;

/// Datagrams of one flow before the others have their turn.
pub(crate) const TURN: usize = 16;
/// How long a new connection's datagrams may wait for path MTU discovery to find room for them.
const MTU_PATIENCE: Duration = Duration::from_secs(2);
/// First byte and packet number of a short header, authentication tag, type and length of the frame
/// (RFC 9000, Sections 17.3.1 and 12.4; RFC 9001, Section 5.3; RFC 9221, Section 4).
const PACKET_OVERHEAD_BYTES: usize = 1 + 4 + 16 + 3;
/// Type and length of a DATA frame (RFC 9114, Section 7.1).
const DATA_FRAME_BYTES: usize = 10;

/// The outcome of sending the oldest datagram of a flow.
pub(crate) enum Sent {
    /// Sent, with this many bytes of payload.
    Yes(u64),
    /// Sent in a capsule on the stream, with this many bytes of payload.
    InCapsule(u64),
    /// It has to wait.
    Later,
    /// No packet has room for it.
    TooLarge,
    /// The stream is gone.
    Gone,
}

impl UdpFlow {
    /// Adds a payload to the queue. Returns how many old ones were dropped.
    pub(crate) fn enqueue(&mut self, payload: &[u8], most_bytes: usize) -> u64 {
        let head = http_datagram::head(self.stream);
        let mut datagram = Vec::with_capacity(Head::MAX_BYTES + payload.len());
        datagram.extend_from_slice(head.as_bytes());
        datagram.extend_from_slice(payload);
        self.queue.push(datagram, most_bytes)
    }

    /// Takes one batch from its own socket; `from_player` is for that of a medium. Returns how many old datagrams were dropped.
    pub(crate) fn read(
        &mut self,
        buffers: &mut RecvBuffers,
        most_bytes: usize,
        from_player: bool,
        now: Instant,
    ) -> io::Result<u64> {
        let Self { socket, stream, queue, .. } = self;
        let Some((port, mut sender)) = socket.reader() else {
            self.readable = false;
            return Ok(0);
        };
        let head = http_datagram::head(*stream);
        let mut dropped = 0;
        let received = port.receive(buffers, |from, _, payload| {
            if !sender.accepts(from) {
                return;
            }
            let mut datagram = Vec::with_capacity(Head::MAX_BYTES + payload.len());
            datagram.extend_from_slice(head.as_bytes());
            datagram.extend_from_slice(payload);
            dropped += queue.push(datagram, most_bytes);
        });
        match received {
            Ok(true) => {
                self.traffic.on_local_datagram(now);
                if let Some(medium) = self.medium.as_ref().filter(|_| from_player) {
                    medium.on_player_datagram(now);
                }
            }
            Ok(false) => self.readable = false,
            Err(error) if self.ends_with(&error) => return Err(error),
            // Of an earlier datagram, as one that was too large for a link further on.
            Err(_) => {}
        }
        Ok(dropped)
    }

    /// Passes its oldest datagram to the connection; `None` when the queue is empty. `largest` is
    /// the largest packet that path MTU discovery may reach.
    pub(crate) fn send_front(
        &mut self,
        conn: &mut Conn,
        largest: usize,
        now: Instant,
    ) -> Option<Sent> {
        let front = self.queue.front()?;
        let head_bytes = http_datagram::head(self.stream).as_bytes().len();
        let payload_bytes = (front.len() - head_bytes) as u64;
        if !conn.http.h3.as_ref()?.dgram_enabled_by_peer(&conn.quic) {
            return self.send_capsule(conn);
        }
        if conn.quic.dgram_send_queue_len() >= SEND_QUEUE {
            return Some(Sent::Later);
        }
        if front.len() > conn.quic.dgram_max_writable_len().unwrap_or(0) {
            let young = now.saturating_duration_since(conn.activity.opened) < MTU_PATIENCE;
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
        let h3 = conn.http.h3.as_mut()?;
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
