//! The receiving end: duplicates, packets in two parts, and error correction.

use std::time::Instant;

use millrace_wire::repair::{BlockHeader, RepairHeader, RepairKind, second_parts};

use super::decoder::{BlockDecoder, Recovered};
use super::parts::{PacketHalf, WaitingParts};
use super::received_window::ReceivedWindow;

/// What has arrived in one direction of a flow.
#[derive(Debug, Default)]
pub(crate) struct RepairReceiver {
    window: ReceivedWindow,
    parts: WaitingParts,
    /// If both ends use error correction.
    decoder: Option<BlockDecoder>,
}

/// What a datagram brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// A packet for the flow's socket.
    Packet(&'a [u8]),
    /// Packets that are whole now. So many datagrams of them were computed.
    Packets { packets: Vec<Vec<u8>>, corrected: u64 },
    /// A packet that waits for an earlier one.
    Held,
    /// Packets that are in order now. So many before them are no longer waited for.
    InOrder { packets: Vec<Vec<u8>>, skipped: u64 },
    /// Nothing new.
    Duplicate,
}

impl RepairReceiver {
    /// With or without error correction.
    pub(crate) fn new(fec: bool, now: Instant) -> Self {
        Self { decoder: fec.then(|| BlockDecoder::new(now)), ..Self::default() }
    }

    /// Takes the payload of a datagram.
    pub(crate) fn take<'a>(
        &mut self,
        header: RepairHeader,
        payload: &'a [u8],
        now: Instant,
    ) -> Received<'a> {
        let RepairHeader { kind, sequence } = header;
        if kind == RepairKind::Repair {
            let recovered = match (&mut self.decoder, BlockHeader::parse(payload)) {
                (Some(decoder), Some((block, symbol))) => {
                    decoder.add_repair(sequence, block, symbol, now)
                }
                _ => Vec::new(),
            };
            return self.take_recovered(Vec::new(), recovered);
        }
        if !self.window.insert(sequence) {
            return Received::Duplicate;
        }
        let recovered = match &mut self.decoder {
            Some(decoder) => decoder.add(sequence, kind, payload, now),
            None => Vec::new(),
        };
        if kind == RepairKind::Whole && recovered.is_empty() {
            return Received::Packet(payload);
        }
        let mut packets = Vec::new();
        self.unpack(RepairHeader { kind, sequence }, payload, &mut packets);
        self.take_recovered(packets, recovered)
    }

    fn take_recovered(
        &mut self,
        mut packets: Vec<Vec<u8>>,
        recovered: Vec<Recovered>,
    ) -> Received<'static> {
        let mut corrected = 0;
        for Recovered { sequence, kind, payload } in recovered {
            if self.window.insert(sequence) {
                corrected += 1;
                self.unpack(RepairHeader { kind, sequence }, &payload, &mut packets);
            }
        }
        Received::Packets { packets, corrected }
    }

    /// Adds the packets that a datagram completes.
    fn unpack(&mut self, header: RepairHeader, payload: &[u8], packets: &mut Vec<Vec<u8>>) {
        let parts = &mut self.parts;
        match header.kind {
            RepairKind::Whole => packets.push(payload.to_vec()),
            RepairKind::FirstPart => {
                packets.extend(parts.insert(header.sequence, PacketHalf::First, payload));
            }
            RepairKind::SecondParts => {
                let join = |(packet, part)| parts.insert(packet, PacketHalf::Second, part);
                packets.extend(second_parts(payload).filter_map(join));
            }
            RepairKind::Repair => {}
        }
    }

    /// Memory is bounded, and all counts are right.
    #[cfg(feature = "fuzzing")]
    pub(super) fn assert_invariants(&self) {
        self.parts.assert_invariants();
        if let Some(decoder) = &self.decoder {
            decoder.assert_invariants();
        }
    }

    /// Bytes that wait.
    pub(crate) fn held_bytes(&self) -> usize {
        self.parts.bytes() + self.decoder.as_ref().map_or(0, BlockDecoder::held_bytes)
    }
}

#[cfg(test)]
mod tests {
    use millrace_wire::repair::{MAX_SECOND_PARTS, PART_HEADER_BYTES, Sequence, put_second_part};

    use super::*;

    fn take<'a>(
        receiver: &mut RepairReceiver,
        kind: RepairKind,
        number: u32,
        payload: &'a [u8],
    ) -> Received<'a> {
        receiver.take(
            RepairHeader { kind, sequence: Sequence::new(number) },
            payload,
            Instant::now(),
        )
    }

    #[test]
    fn packets_are_passed_on_once_in_the_order_of_arrival() {
        let mut receiver = RepairReceiver::default();
        for number in [3, 1, 2] {
            let received = take(&mut receiver, RepairKind::Whole, number, b"packet");
            assert_eq!(received, Received::Packet(b"packet"));
            assert_eq!(
                take(&mut receiver, RepairKind::Whole, number, b"packet"),
                Received::Duplicate
            );
        }
    }

    #[test]
    fn second_parts_complete_several_packets() {
        let mut receiver = RepairReceiver::default();
        let packets = |packets| Received::Packets { packets, corrected: 0 };
        let nothing = || packets(Vec::new());
        assert_eq!(take(&mut receiver, RepairKind::FirstPart, 1, b"a"), nothing());
        assert_eq!(take(&mut receiver, RepairKind::FirstPart, 2, b"b"), nothing());
        assert_eq!(receiver.held_bytes(), 2);
        let mut rest = Vec::new();
        for (number, part) in [(1, "1"), (2, "2"), (4, "4")] {
            put_second_part(&mut rest, Sequence::new(number), part.as_bytes());
        }
        let joined = packets(vec![b"a1".to_vec(), b"b2".to_vec()]);
        assert_eq!(take(&mut receiver, RepairKind::SecondParts, 3, &rest), joined);
        assert_eq!(receiver.held_bytes(), 1);
        let joined = packets(vec![b"d4".to_vec()]);
        assert_eq!(take(&mut receiver, RepairKind::FirstPart, 4, b"d"), joined);
        assert_eq!(receiver.held_bytes(), 0);
        assert_eq!(take(&mut receiver, RepairKind::FirstPart, 1, b"a"), Received::Duplicate);
        assert_eq!(take(&mut receiver, RepairKind::SecondParts, 3, &rest), Received::Duplicate);
    }

    #[test]
    fn a_capsule_of_many_second_parts_costs_no_more_than_a_datagram() {
        // A capsule has 65,535 bytes at most: 13,107 empty parts, or 10,922 of one byte.
        for (part, waiting) in [(&b""[..], 0), (b"1", MAX_SECOND_PARTS)] {
            let mut payload = Vec::new();
            while payload.len() + PART_HEADER_BYTES + part.len() <= 65_535 {
                let number = Sequence::new(payload.len() as u32);
                put_second_part(&mut payload, number, part);
            }
            let mut receiver = RepairReceiver::default();
            let received = take(&mut receiver, RepairKind::SecondParts, 1, &payload);
            assert_eq!(received, Received::Packets { packets: Vec::new(), corrected: 0 });
            assert_eq!(receiver.parts.count(), waiting, "parts of {} bytes", part.len());
        }
    }
}
