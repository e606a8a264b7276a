//! Packets of several connections that are about to leave a port together.
//!
//! Packets of one size to one destination make one message with segmentation offload, whatever their connections.
//! Messages to several destinations leave with one system call. The packets of a connection keep their order.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::Range;

use crate::conn_id::ConnId;
use crate::udp::{MessageOutcome, SEND_MESSAGE_BYTES, UdpPort};
use crate::udp_batch::BatchMessage;

/// Room for two messages of the largest size, and for the packet that ends the second.
const OUTBOX_BYTES: usize = 2 * SEND_MESSAGE_BYTES + MIN_PACKET_ROOM_BYTES;
/// Least room for a packet: more than any Ethernet frame carries without jumbo frames.
const MIN_PACKET_ROOM_BYTES: usize = 2048;
/// Messages sent with one system call at most.
const MAX_MESSAGES: usize = 64;
/// Parts that messages are made of, each of one connection; a message may have 1,024 (`UIO_MAXIOV`).
const MAX_PARTS: usize = 512;
/// Newest messages that a packet is compared with.
const MAX_COMPARED_MESSAGES: usize = 16;

/// Where a packet comes from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketPath {
    pub(crate) to: SocketAddr,
    pub(crate) from: SocketAddr,
}

/// Datagrams of one size to one destination; the last may be shorter.
#[derive(Debug)]
struct OutboxMessage {
    path: PacketPath,
    segment: usize,
    segments: usize,
    bytes: usize,
    /// Whether others may be added.
    is_open: bool,
    /// The sender of all packets in it, if it is one.
    only_sender: Option<usize>,
}

/// A run of packets of one sender in one message.
#[derive(Debug)]
struct OutboxPart {
    message: usize,
    sender: usize,
    bytes: Range<usize>,
}

/// A connection with packets in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutboxSender {
    pub(crate) conn: ConnId,
    pub(crate) bytes: usize,
    /// The size of its packets that the local interface has refused, if it has.
    pub(crate) refused: Option<(PacketPath, usize)>,
    /// The message that its newest packet is in.
    newest_message: usize,
}

/// Packets that are about to leave a port, in a buffer of fixed size.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    end: usize,
    messages: Vec<OutboxMessage>,
    parts: Vec<OutboxPart>,
    senders: Vec<OutboxSender>,
    /// Messages that have left.
    sent: usize,
    is_full: bool,
    /// Whether the socket has no room.
    is_blocked: bool,
    /// Slots of the connections that wait for the socket.
    waiting: Vec<usize>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            bytes: vec![0; OUTBOX_BYTES],
            end: 0,
            messages: Vec::new(),
            parts: Vec::new(),
            senders: Vec::new(),
            sent: 0,
            is_full: false,
            is_blocked: false,
            waiting: Vec::new(),
        }
    }
}

impl Outbox {
    /// Whether the socket has no room, so that nothing can be added.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether nothing waits in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Room for a packet of at most `packet_bytes`; none when the packets in it must leave first.
    pub(crate) fn room(&mut self, packet_bytes: usize) -> Option<&mut [u8]> {
        let has_room = self.bytes.len() - self.end >= packet_bytes.max(MIN_PACKET_ROOM_BYTES);
        let is_usable = has_room && !self.is_full || self.is_empty();
        (is_usable && !self.is_blocked).then(|| &mut self.bytes[self.end..])
    }

    /// Adds the packet of `len` bytes that was written into [`Outbox::room`].
    pub(crate) fn add(&mut self, conn: ConnId, path: PacketPath, len: usize, max_segments: usize) {
        let sender = self.sender(conn);
        let start = self.senders[sender].newest_message;
        let message = self.matching(start, sender, path, len).unwrap_or_else(|| {
            self.messages.push(OutboxMessage {
                path,
                segment: len,
                segments: 0,
                bytes: 0,
                is_open: true,
                only_sender: Some(sender),
            });
            self.messages.len() - 1
        });
        let entry = &mut self.messages[message];
        entry.segments += 1;
        entry.bytes += len;
        entry.only_sender = entry.only_sender.filter(|only| *only == sender);
        let is_message_full =
            entry.segments >= max_segments || entry.bytes + entry.segment > SEND_MESSAGE_BYTES;
        entry.is_open = len == entry.segment && !is_message_full;
        self.senders[sender].bytes += len;
        self.senders[sender].newest_message = message;
        let bytes = self.end..self.end + len;
        self.end = bytes.end;
        match self.parts.last_mut() {
            Some(last) if (last.message, last.sender) == (message, sender) => {
                last.bytes.end = bytes.end;
            }
            _ => self.parts.push(OutboxPart { message, sender, bytes }),
        }
        // Without offload each message is full, and they leave together.
        self.is_full |= is_message_full && max_segments > 1
            || self.messages.len() >= MAX_MESSAGES
            || self.parts.len() >= MAX_PARTS;
    }

    /// The place of a connection among the senders.
    fn sender(&mut self, conn: ConnId) -> usize {
        self.senders.iter().rposition(|sender| sender.conn == conn).unwrap_or_else(|| {
            self.senders.push(OutboxSender { conn, bytes: 0, refused: None, newest_message: 0 });
            self.senders.len() - 1
        })
    }

    /// A message from `start` on that takes the packet, so that the order of a sender's packets stays.
    fn matching(&self, start: usize, sender: usize, path: PacketPath, len: usize) -> Option<usize> {
        let start = start.max(self.messages.len().saturating_sub(MAX_COMPARED_MESSAGES));
        let takes = |message: &OutboxMessage| {
            // A shorter packet ends a message, which others may still want to use.
            let fits = len == message.segment
                || len < message.segment && message.only_sender == Some(sender);
            message.is_open && fits && message.path == path
        };
        let found = self.messages.get(start..)?.iter().position(takes)?;
        Some(start + found)
    }

    /// Sends what is in it, as far as the socket has room. Returns the connections whose packets have left.
    pub(crate) fn send(&mut self, port: &UdpPort) -> Vec<OutboxSender> {
        self.is_blocked = false;
        if self.sent == 0 {
            // Stable: the packets of a message keep their order.
            self.parts.sort_by_key(|part| part.message);
        }
        while self.sent < self.messages.len() {
            match self.send_rest(port) {
                Some(sent) => self.sent += sent,
                None if self.send_one(port) => self.sent += 1,
                None => {
                    self.is_blocked = true;
                    return Vec::new();
                }
            }
        }
        (self.end, self.sent, self.is_full) = (0, 0, false);
        self.messages.clear();
        self.parts.clear();
        std::mem::take(&mut self.senders)
    }

    /// Takes back what [`Outbox::send`] has returned, so that the next packets need no allocation.
    pub(crate) fn recycle(&mut self, mut senders: Vec<OutboxSender>) {
        if self.senders.is_empty() {
            senders.clear();
            self.senders = senders;
        }
    }

    /// Sends the messages that have not left; how many do. `None` when the first fails.
    fn send_rest(&self, port: &UdpPort) -> Option<usize> {
        let first = self.parts.partition_point(|part| part.message < self.sent);
        let parts = &self.parts[first..];
        if let [only] = parts {
            let message = &self.messages[only.message];
            let bytes = &self.bytes[only.bytes.clone()];
            let PacketPath { to, from } = message.path;
            return port.send(to, from.ip(), bytes, message.segment).ok().map(|()| 1);
        }
        let slices: Vec<_> =
            parts.iter().map(|part| IoSlice::new(&self.bytes[part.bytes.clone()])).collect();
        let mut rest = slices.as_slice();
        let messages: Vec<_> = parts
            .chunk_by(|a, b| a.message == b.message)
            .map(|parts| {
                let (own, others) = rest.split_at(parts.len());
                rest = others;
                let message = &self.messages[parts[0].message];
                BatchMessage {
                    destination: message.path.to,
                    source: port.source_of(message.path.from.ip()),
                    segment: (message.segments > 1).then_some(message.segment as u16),
                    parts: own,
                }
            })
            .collect();
        port.send_batch(&messages).ok()
    }

    /// Sends the first message that has not left by itself, and notes what becomes of it. `false` when the socket has
    /// no room.
    fn send_one(&mut self, port: &UdpPort) -> bool {
        let message = &self.messages[self.sent];
        let own = self.parts.iter().filter(|part| part.message == self.sent);
        let contents: Vec<u8> =
            own.clone().flat_map(|part| &self.bytes[part.bytes.clone()]).copied().collect();
        let PacketPath { to, from } = message.path;
        match port.send_message(to, from.ip(), &contents, message.segment) {
            MessageOutcome::Sent => {}
            MessageOutcome::NoRoom => return false,
            MessageOutcome::Refused => {
                for part in own {
                    self.senders[part.sender].refused = Some((message.path, message.segment));
                }
            }
        }
        true
    }

    /// Notes that the connection in `slot` waits for the socket.
    pub(crate) fn wait(&mut self, slot: usize) {
        self.waiting.push(slot);
    }

    /// The connections that wait for the socket, if it has room again.
    pub(crate) fn take_waiting(&mut self) -> Vec<usize> {
        if self.is_blocked { Vec::new() } else { std::mem::take(&mut self.waiting) }
    }
}

#[cfg(test)]
mod tests;
