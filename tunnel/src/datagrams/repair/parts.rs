//! Packets of which one part has arrived.

use std::collections::VecDeque;

use millrace_wire::repair::Sequence;

/// Parts that wait for the other one, 370 kB of a tunnel with packets of 1,452 bytes. The oldest is dropped for a new
/// one.
const MAX_PARTS: usize = 256;
/// Bytes of the parts that wait: what comes in a capsule has up to 65,535.
const MAX_PART_BYTES: usize = 1 << 20;

/// Which part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketHalf {
    First,
    Second,
}

/// One part of a packet.
#[derive(Debug)]
struct Part {
    /// The number of the datagram with the first part.
    packet: Sequence,
    half: PacketHalf,
    payload: Vec<u8>,
}

/// Parts that wait for the other one.
#[derive(Debug, Default)]
pub(super) struct WaitingParts {
    parts: VecDeque<Part>,
    bytes: usize,
}

impl WaitingParts {
    /// Takes a part of the packet whose first part has the number `packet`. Returns the packet if it is whole now.
    pub(super) fn insert(
        &mut self,
        packet: Sequence,
        half: PacketHalf,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        // The other part is most often among the newest.
        let found = self.parts.iter().rposition(|part| part.packet == packet);
        if let Some(index) = found.filter(|index| self.parts[*index].half != half) {
            let other = self.parts.remove(index)?;
            self.bytes -= other.payload.len();
            return Some(match half {
                PacketHalf::First => [payload, &other.payload].concat(),
                PacketHalf::Second => [&other.payload, payload].concat(),
            });
        }
        self.make_room(payload.len());
        self.bytes += payload.len();
        self.parts.push_back(Part { packet, half, payload: payload.to_vec() });
        None
    }

    /// Drops the oldest parts until there is room for one of `bytes`.
    fn make_room(&mut self, bytes: usize) {
        while (self.parts.len() >= MAX_PARTS || self.bytes + bytes > MAX_PART_BYTES)
            && let Some(oldest) = self.parts.pop_front()
        {
            self.bytes -= oldest.payload.len();
        }
    }

    /// Bytes of the parts that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many parts wait.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Their number and bytes are bounded, and counted right.
    #[cfg(feature = "fuzzing")]
    pub(super) fn assert_invariants(&self) {
        assert!(self.parts.len() <= MAX_PARTS && self.bytes <= MAX_PART_BYTES);
        assert_eq!(self.bytes, self.parts.iter().map(|part| part.payload.len()).sum::<usize>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_in_either_order() {
        let mut parts = WaitingParts::default();
        let (first, second) =
            ((PacketHalf::First, &b"one "[..]), (PacketHalf::Second, &b"two"[..]));
        for (number, [earlier, later]) in [(1, [first, second]), (2, [second, first])] {
            let packet = Sequence::new(number);
            assert_eq!(parts.insert(packet, earlier.0, earlier.1), None);
            let whole = parts.insert(packet, later.0, later.1);
            assert_eq!(whole.as_deref(), Some(&b"one two"[..]));
        }
        assert_eq!((parts.parts.len(), parts.bytes()), (0, 0));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut parts = WaitingParts::default();
        for number in 0..=MAX_PARTS as u32 {
            assert_eq!(parts.insert(Sequence::new(number), PacketHalf::First, b"1"), None);
        }
        assert_eq!((parts.parts.len(), parts.bytes()), (MAX_PARTS, MAX_PARTS));
        assert_eq!(
            parts.insert(Sequence::new(0), PacketHalf::Second, b"2"),
            None,
            "it was dropped"
        );
        let newest = Sequence::new(MAX_PARTS as u32);
        assert!(parts.insert(newest, PacketHalf::Second, b"2").is_some());
    }

    #[test]
    fn their_bytes_are_bounded() {
        let mut parts = WaitingParts::default();
        let payload = vec![1; 65_532];
        for number in 0..32 {
            assert_eq!(parts.insert(Sequence::new(number), PacketHalf::First, &payload), None);
        }
        assert_eq!((parts.parts.len(), parts.bytes()), (16, 16 * 65_532));
        let (oldest, newest) = (Sequence::new(15), Sequence::new(31));
        assert_eq!(parts.insert(oldest, PacketHalf::Second, b"2"), None, "it was dropped");
        assert!(parts.insert(newest, PacketHalf::Second, b"2").is_some());
    }
}
