//! The receiving end: duplicates and packets in two parts.

use millrace_wire::repair::{Header, Kind, second_parts};

use super::parts::{Half, WaitingParts};
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
    Packet(&'a [u8]),
    /// Packets of which both parts are there now.
    Joined(Vec<Vec<u8>>),
    /// Nothing new.
    Duplicate,
}

impl RepairReceiver {
    /// Takes the payload of a datagram.
    pub(crate) fn take<'a>(&mut self, header: Header, payload: &'a [u8]) -> Received<'a> {
        let Header { kind, sequence } = header;
        if !self.seen.insert(sequence) {
            return Received::Duplicate;
        }
        match kind {
            Kind::Whole => Received::Packet(payload),
            Kind::FirstPart => {
                let packet = self.parts.insert(sequence, Half::First, payload);
                Received::Joined(packet.into_iter().collect())
            }
            Kind::SecondParts => {
                let join = |(packet, part)| self.parts.insert(packet, Half::Second, part);
                Received::Joined(second_parts(payload).filter_map(join).collect())
            }
        }
    }

    /// Bytes that wait.
    pub(crate) fn held_bytes(&self) -> usize {
        self.parts.bytes()
    }
}

#[cfg(test)]
mod tests {
    use millrace_wire::repair::{Sequence, put_second_part};

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
            assert_eq!(received, Received::Packet(b"packet"));
            assert_eq!(take(&mut receiver, Kind::Whole, number, b"packet"), Received::Duplicate);
        }
    }

    #[test]
    fn second_parts_complete_several_packets() {
        let mut receiver = RepairReceiver::default();
        let nothing = || Received::Joined(Vec::new());
        assert_eq!(take(&mut receiver, Kind::FirstPart, 1, b"a"), nothing());
        assert_eq!(take(&mut receiver, Kind::FirstPart, 2, b"b"), nothing());
        assert_eq!(receiver.held_bytes(), 2);
        let mut rest = Vec::new();
        for (number, part) in [(1, "1"), (2, "2"), (4, "4")] {
            put_second_part(&mut rest, Sequence::new(number), part.as_bytes());
        }
        let joined = Received::Joined(vec![b"a1".to_vec(), b"b2".to_vec()]);
        assert_eq!(take(&mut receiver, Kind::SecondParts, 3, &rest), joined);
        assert_eq!(receiver.held_bytes(), 1);
        let joined = Received::Joined(vec![b"d4".to_vec()]);
        assert_eq!(take(&mut receiver, Kind::FirstPart, 4, b"d"), joined);
        assert_eq!(receiver.held_bytes(), 0);
        assert_eq!(take(&mut receiver, Kind::FirstPart, 1, b"a"), Received::Duplicate);
        assert_eq!(take(&mut receiver, Kind::SecondParts, 3, &rest), Received::Duplicate);
    }
}
