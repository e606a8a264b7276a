//! The receiving end: duplicates and packets in two parts.

use std::borrow::Cow;

use millrace_wire::repair::{Header, Kind};

use super::parts::WaitingParts;
use super::seen::SeenWindow;

/// What has arrived in one direction of a flow.
#[derive(Debug, Default)]
pub(crate) struct RepairReceiver {
    seen: SeenWindow,
    parts: WaitingParts,
}

/// What a datagram brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// A packet for the flow's socket.
    Packet(Cow<'a, [u8]>),
    /// A part of a packet whose other part is missing.
    Waiting,
    /// Nothing new.
    Duplicate,
}

impl RepairReceiver {
    /// Takes the payload of a datagram.
    pub(crate) fn take<'a>(&mut self, header: Header, payload: &'a [u8]) -> Received<'a> {
        let Header { kind, sequence } = header;
        if kind == Kind::Whole {
            return match self.seen.insert(sequence) {
                true => Received::Packet(Cow::Borrowed(payload)),
                false => Received::Duplicate,
            };
        }
        if self.seen.has(sequence) {
            return Received::Duplicate;
        }
        match self.parts.insert(sequence, kind, payload) {
            Some(packet) => {
                self.seen.insert(sequence);
                Received::Packet(Cow::Owned(packet))
            }
            None => Received::Waiting,
        }
    }

    /// Bytes that wait.
    pub(crate) fn held_bytes(&self) -> usize {
        self.parts.bytes()
    }
}

#[cfg(test)]
mod tests {
    use millrace_wire::repair::Sequence;

    use super::*;

    fn take<'a>(
        receiver: &mut RepairReceiver,
        kind: Kind,
        number: u32,
        payload: &'a [u8],
    ) -> Received<'a> {
        receiver.take(Header { kind, sequence: Sequence::new(number) }, payload)
    }

    #[test]
    fn packets_are_passed_on_once_in_the_order_of_arrival() {
        let mut receiver = RepairReceiver::default();
        for number in [3, 1, 2] {
            let received = take(&mut receiver, Kind::Whole, number, b"packet");
            assert_eq!(received, Received::Packet(Cow::Borrowed(b"packet")));
            assert_eq!(take(&mut receiver, Kind::Whole, number, b"packet"), Received::Duplicate);
        }
    }

    #[test]
    fn parts_of_a_packet_that_has_arrived_are_duplicates() {
        let mut receiver = RepairReceiver::default();
        assert_eq!(take(&mut receiver, Kind::SecondPart, 1, b"b"), Received::Waiting);
        assert_eq!(receiver.held_bytes(), 1);
        let whole = take(&mut receiver, Kind::FirstPart, 1, b"a");
        assert_eq!(whole, Received::Packet(Cow::Borrowed(b"ab")));
        assert_eq!(receiver.held_bytes(), 0);
        for kind in [Kind::FirstPart, Kind::SecondPart, Kind::Whole] {
            assert_eq!(take(&mut receiver, kind, 1, b"a"), Received::Duplicate);
        }
    }
}
