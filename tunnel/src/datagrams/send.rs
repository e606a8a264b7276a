//! Datagrams on their way into the tunnel.

use std::io;
use std::time::{Duration, Instant};

use millrace_wire::capsule;
use millrace_wire::http_datagram::{self, DatagramHead, UDP_CONTEXT};
use millrace_wire::repair::{self, RepairHeader, RepairKind};
use quiche::h3;

use super::queue::max_queue_delay;
use super::repair::frame_id::frame_id;
use super::repair::sender::{RepairSender, SentFrame, datagram, split};
use super::{QueueLimit, SEND_QUEUE_FRAMES, UdpFlow};
use crate::conn::Conn;
use crate::udp::RecvBuffers;

/// Datagrams of one flow before the others have their turn.
pub(crate) const MAX_TURN_DATAGRAMS: usize = 16;
/// What the transport may hold of repaired QUIC, as a part of the congestion window: about an eighth of a round trip, as
/// windows are up to twice what is on the path.
const WINDOW_DIVISOR: usize = 16;
/// How long a new connection's datagrams may wait for path MTU discovery to find room for them.
const MAX_MTU_DISCOVERY_TIME: Duration = Duration::from_secs(2);
/// First byte and packet number of a short header, authentication tag, type and length of the frame
/// (RFC 9000, Sections 17.3.1 and 12.4; RFC 9001, Section 5.3; RFC 9221, Section 4).
const PACKET_OVERHEAD_BYTES: usize = 1 + 4 + 16 + 3;
/// Type and length of a DATA frame (RFC 9114, Section 7.1).
const DATA_FRAME_BYTES: usize = 10;

/// The outcome of sending the oldest datagram of a flow.
pub(crate) enum DatagramOutcome {
    /// Sent, with this many bytes of payload.
    Yes(u64),
    /// Sent in a capsule on the stream, with this many bytes of payload.
    InCapsule(u64),
    /// A lost datagram was sent again.
    Again,
    /// Second parts of packets whose first parts were sent before.
    Rest,
    /// A repair datagram.
    Redundancy,
    /// It has to wait.
    Later,
    /// No packet has room for it.
    TooLarge,
    /// The stream is gone.
    Gone,
}

/// Datagrams that waited for too long when the turn of their flow came.
#[derive(Debug, Default)]
pub(crate) struct DroppedInTurn {
    /// For their deadline.
    pub(crate) late: u64,
    /// For the queue of a flow of QUIC.
    pub(crate) queue: u64,
}

/// What precedes each payload of a flow in its queue: stream, context and, where both ends repair what gets lost, room
/// for a header.
struct Prefix {
    head: DatagramHead,
    header_bytes: usize,
}

impl Prefix {
    fn of(stream: u64, is_repaired: bool) -> Self {
        let (context, header_bytes) = match is_repaired {
            true => (repair::CONTEXT, RepairHeader::BYTES),
            false => (UDP_CONTEXT, 0),
        };
        Self { head: http_datagram::head(stream, context), header_bytes }
    }

    fn bytes(&self) -> usize {
        self.head.as_bytes().len() + self.header_bytes
    }

    fn before(&self, payload: &[u8]) -> Vec<u8> {
        let mut datagram =
            Vec::with_capacity(DatagramHead::MAX_BYTES + RepairHeader::BYTES + payload.len());
        datagram.extend_from_slice(self.head.as_bytes());
        datagram.resize(self.bytes(), 0);
        datagram.extend_from_slice(payload);
        datagram
    }
}

impl UdpFlow {
    /// Adds a payload to the queue. Returns how many old ones were dropped.
    pub(crate) fn enqueue(&mut self, payload: &[u8], limit: QueueLimit, now: Instant) -> u64 {
        self.queue.push(self.prefix().before(payload), limit, now)
    }

    /// Takes one batch from its own socket; `from_player` is for that of a medium. Returns how many old datagrams were dropped.
    pub(crate) fn read(
        &mut self,
        buffers: &mut RecvBuffers,
        limit: QueueLimit,
        from_player: bool,
        now: Instant,
    ) -> io::Result<u64> {
        let prefix = self.prefix();
        let Self { socket, queue, .. } = self;
        let Some((port, mut sender)) = socket.reader() else {
            self.readable = false;
            return Ok(0);
        };
        let mut dropped = 0;
        let received = port.receive(buffers, |from, _, payload| {
            if sender.accepts(from) {
                dropped += queue.push(prefix.before(payload), limit, now);
            }
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

    /// Passes its oldest datagram to the connection; `None` when there is nothing to send. `largest` is
    /// the largest packet that path MTU discovery may reach.
    pub(crate) fn send_front(
        &mut self,
        conn: &mut Conn,
        largest: usize,
        now: Instant,
    ) -> Option<DatagramOutcome> {
        if self.repair.as_ref().is_some_and(|repair| !repair.is_in_order()) {
            return self.send_repaired(conn, now);
        }
        if let Some(outcome) = self.send_lost(conn, now) {
            return Some(outcome);
        }
        let front = self.queue.front()?;
        let payload_bytes = (front.len() - self.prefix().bytes()) as u64;
        if !conn.http.h3.as_ref()?.dgram_enabled_by_peer(&conn.quic) {
            return self.send_front_in_capsule(conn);
        }
        if self.transport_room(conn) == 0 {
            return Some(DatagramOutcome::Later);
        }
        if front.len() > conn.quic.dgram_max_writable_len().unwrap_or(0) {
            if may_find_larger_mtu(conn, now) && front.len() < largest {
                return Some(DatagramOutcome::Later);
            }
            // RFC 9298, Section 6.2, has it dropped for the sake of the sender's path MTU discovery.
            // That finds what the tunnel carries on a path of the usual size; where the path's is
            // smaller, or becomes so, the flow must not fail. RTP has no such discovery (live555
            // sends 1,456 bytes, whatever the path), and would not get through.
            let overhead = PACKET_OVERHEAD_BYTES + conn.quic.destination_id().len();
            if self.medium.is_some() || front.len() + overhead <= largest {
                return self.send_front_in_capsule(conn);
            }
            self.queue.pop();
            return Some(DatagramOutcome::TooLarge);
        }
        self.number_front();
        let datagram = self.queue.pop()?;
        if let Some(repair) = &mut self.repair {
            send_new(&mut repair.sender, conn, self.stream, datagram, now);
            return Some(DatagramOutcome::Yes(payload_bytes));
        }
        Some(match conn.quic.dgram_send_buf(datagram) {
            Ok(()) => DatagramOutcome::Yes(payload_bytes),
            Err(_) => DatagramOutcome::TooLarge,
        })
    }

    /// Looks at the deadlines of what waits, before its turn.
    pub(crate) fn begin_turn(&mut self, conn: &Conn, now: Instant) -> DroppedInTurn {
        let mut dropped = DroppedInTurn::default();
        if !self.has_deadline() {
            return dropped;
        }
        let (rtt, is_in_order) = (conn.rtt().unwrap_or_default(), self.is_in_order());
        if is_in_order && !self.waits_for_mtu_discovery(conn, now) {
            dropped.queue = self.queue.drop_older_than(max_queue_delay(rtt), now);
        } else if let Some(deadline) = self.deadline.filter(|_| !is_in_order) {
            dropped.late = self.queue.drop_late(deadline, now);
        }
        if let Some(repair) = &mut self.repair {
            dropped.late += repair.sender.drop_late(now);
            repair.sender.observe_rtt(rtt, now);
            if is_in_order {
                let part_of_window = conn.window_packets() / WINDOW_DIVISOR;
                repair.transport_datagrams =
                    Some(part_of_window.clamp(MAX_TURN_DATAGRAMS, SEND_QUEUE_FRAMES));
            }
        }
        dropped
    }

    /// Whether its oldest datagram waits for path MTU discovery.
    fn waits_for_mtu_discovery(&self, conn: &Conn, now: Instant) -> bool {
        let room = conn.quic.dgram_max_writable_len().unwrap_or(0);
        may_find_larger_mtu(conn, now) && self.queue.front().is_some_and(|front| front.len() > room)
    }

    /// Whether something of it has a deadline.
    fn has_deadline(&self) -> bool {
        self.deadline.is_some() || self.repair.is_some()
    }

    /// Sends a lost packet of QUIC again. Returns `None` if no packet is lost.
    fn send_lost(&mut self, conn: &mut Conn, now: Instant) -> Option<DatagramOutcome> {
        let (prefix, stream, free) = (self.prefix(), self.stream, self.transport_room(conn));
        let sender = &mut self.repair.as_mut()?.sender;
        send_lost(sender, conn, (stream, &prefix), free, now)
    }

    /// Datagrams that may be handed to the transport now.
    pub(crate) fn transport_room(&self, conn: &Conn) -> usize {
        let most = match self.medium {
            Some(_) => SEND_QUEUE_FRAMES,
            None => conn.pending.max_transport_datagrams,
        };
        most.saturating_sub(conn.quic.dgram_send_queue_len())
    }

    /// Writes the number of the oldest datagram into it, where packets of QUIC are repaired.
    fn number_front(&mut self) {
        let start = self.prefix().head.as_bytes().len();
        let Some(repair) = &self.repair else { return };
        let header =
            RepairHeader { kind: RepairKind::Whole, sequence: repair.sender.next_sequence() };
        if let Some(front) = self.queue.front_mut() {
            front[start..start + RepairHeader::BYTES].copy_from_slice(&header.to_bytes());
        }
    }

    fn prefix(&self) -> Prefix {
        Prefix::of(self.stream, self.repair.is_some())
    }

    /// Sends its oldest datagram in a capsule on the stream (RFC 9297, Section 3.5).
    fn send_front_in_capsule(&mut self, conn: &mut Conn) -> Option<DatagramOutcome> {
        self.number_front();
        let prefix = self.prefix();
        let front = self.queue.front()?;
        let payload_bytes = (front.len() - prefix.bytes()) as u64;
        if let Some(problem) = send_capsule(conn, self.stream, &prefix, front) {
            return Some(problem);
        }
        self.queue.pop();
        if let Some(repair) = &mut self.repair {
            repair.sender.close_block();
            repair.sender.advance();
        }
        Some(DatagramOutcome::InCapsule(payload_bytes))
    }
}

/// Where lost packets are repaired.
impl UdpFlow {
    /// As [`UdpFlow::send_front`]: lost datagrams first, second parts of packets before too many wait, then the oldest
    /// packet.
    fn send_repaired(&mut self, conn: &mut Conn, now: Instant) -> Option<DatagramOutcome> {
        let (prefix, stream, free) = (self.prefix(), self.stream, self.transport_room(conn));
        let sender = &mut self.repair.as_mut()?.sender;
        let room = conn.quic.dgram_max_writable_len().unwrap_or(0);
        if let Some(outcome) = send_lost(sender, conn, (stream, &prefix), free, now) {
            return Some(outcome);
        }
        let payload_room = sender.payload_room(room.saturating_sub(prefix.bytes()));
        let head = prefix.head.as_bytes();
        if free > 0
            && let Some((first, payload)) = sender.pop_repair(self.queue.is_empty(), now)
        {
            let bytes = datagram(head, RepairKind::Repair, first, &payload);
            // Without room, as the path MTU has become smaller, or an identifier: it is of use now or never.
            let _ = conn.quic.dgram_send_buf(bytes);
            return Some(DatagramOutcome::Redundancy);
        }
        let front = self.queue.front();
        let next_bytes =
            front.map(|front| (front.len() - prefix.bytes()).saturating_sub(payload_room));
        if sender.are_second_parts_due(next_bytes, payload_room) {
            if free == 0 {
                return Some(DatagramOutcome::Later);
            }
            let payload = sender.take_second_parts();
            let bytes = datagram(head, RepairKind::SecondParts, sender.next_sequence(), &payload);
            sender.add_to_block(RepairKind::SecondParts, &payload, now);
            send_new(sender, conn, stream, bytes, now);
            return Some(DatagramOutcome::Rest);
        }
        let front = front?;
        if free == 0 {
            return Some(DatagramOutcome::Later);
        }
        let sequence = sender.next_sequence();
        let payload = &front[prefix.bytes()..];
        let payload_bytes = payload.len() as u64;
        let is_whole = payload.len() <= payload_room;
        if !is_whole && let Some((first, second)) = split(payload, payload_room) {
            let bytes = datagram(head, RepairKind::FirstPart, sequence, first);
            sender.add_to_block(RepairKind::FirstPart, first, now);
            sender.push_second_part(sequence, second);
            self.queue.pop();
            send_new(sender, conn, stream, bytes, now);
            return Some(DatagramOutcome::Yes(payload_bytes));
        }
        if is_whole {
            sender.add_to_block(RepairKind::Whole, payload, now);
            self.number_front();
            let bytes = self.queue.pop()?;
            send_new(&mut self.repair.as_mut()?.sender, conn, stream, bytes, now);
            return Some(DatagramOutcome::Yes(payload_bytes));
        }
        self.send_front_in_capsule(conn)
    }
}

/// Sends a lost frame of a flow again, if there is one and room for so many datagrams.
fn send_lost(
    sender: &mut RepairSender,
    conn: &mut Conn,
    (stream, prefix): (u64, &Prefix),
    room: usize,
    now: Instant,
) -> Option<DatagramOutcome> {
    let lost = sender.lost()?;
    if room == 0 {
        return Some(DatagramOutcome::Later);
    }
    if lost.bytes.len() > conn.quic.dgram_max_writable_len().unwrap_or(0) {
        // The path MTU has become smaller.
        let sent = send_capsule(conn, stream, prefix, &lost.bytes);
        if sent.is_none() {
            sender.take_lost();
        }
        return Some(sent.unwrap_or(DatagramOutcome::Again));
    }
    let frame = sender.take_lost()?;
    send_frame(sender, conn, stream, frame, now);
    Some(DatagramOutcome::Again)
}

/// Whether path MTU discovery of a new connection is under way.
fn may_find_larger_mtu(conn: &Conn, now: Instant) -> bool {
    let age = now.saturating_duration_since(conn.activity.opened);
    conn.quic.pmtu().is_none() && age < MAX_MTU_DISCOVERY_TIME
}

/// Sends the datagram with the next sequence number for the first time.
fn send_new(sender: &mut RepairSender, conn: &mut Conn, stream: u64, bytes: Vec<u8>, now: Instant) {
    send_frame(sender, conn, stream, SentFrame { bytes, first_sent: now }, now);
    sender.advance();
}

/// Hands a frame to the transport.
fn send_frame(
    sender: &mut RepairSender,
    conn: &mut Conn,
    stream: u64,
    frame: SentFrame,
    now: Instant,
) {
    if frame.bytes.len() > conn.quic.dgram_max_writable_len().unwrap_or(0) {
        // Second parts that have waited while the path MTU became smaller. A capsule has room.
        return sender.push_lost(frame);
    }
    let SentFrame { bytes, first_sent } = frame;
    let id = frame_id(stream, sender.next_frame());
    let kept = sender.keeps().then(|| SentFrame { bytes: bytes.clone(), first_sent });
    // An error is that of a full queue, which has been looked at.
    if conn.quic.dgram_send_tracked(bytes, id).is_ok() {
        sender.on_sent(kept, now);
    }
}

/// Sends the HTTP datagram of a DATAGRAM frame in a capsule. Returns what keeps it from that.
fn send_capsule(
    conn: &mut Conn,
    stream: u64,
    prefix: &Prefix,
    frame: &[u8],
) -> Option<DatagramOutcome> {
    let context = prefix.head.as_bytes().len() - DatagramHead::CONTEXT_BYTES;
    let capsule = capsule::datagram(&frame[context..]);
    let h3 = conn.http.h3.as_mut()?;
    match conn.quic.stream_capacity(stream) {
        Ok(room) if room >= capsule.len() + DATA_FRAME_BYTES => {
            match h3.send_body(&mut conn.quic, stream, &capsule, false) {
                Ok(_) => None,
                Err(h3::Error::Done) => Some(DatagramOutcome::Later),
                Err(_) => Some(DatagramOutcome::Gone),
            }
        }
        Ok(_) => Some(DatagramOutcome::Later),
        Err(_) => Some(DatagramOutcome::Gone),
    }
}
