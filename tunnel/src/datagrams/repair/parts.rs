//! Packets of which one part has arrived.

use std::collections::VecDeque;

use millrace_wire::repair::{Kind, Sequence};

/// Parts that wait for the other one, 370 kB of a tunnel with packets of 1,452 bytes. The oldest is dropped for a new
/// one.
const MAX_PARTS: usize = 256;

/// One part of a packet.
#[derive(Debug)]
struct Part {
    sequence: Sequence,
    kind: Kind,
    payload: Vec<u8>,
}

/// Parts that wait for the other one.
#[derive(Debug, Default)]
pub(super) struct WaitingParts {
    parts: VecDeque<Part>,
    bytes: usize,
}

impl WaitingParts {
    /// Takes a part. Returns the packet if it is whole now.
    pub(super) fn insert(
        &mut self,
        sequence: Sequence,
        kind: Kind,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        // The other part is most often among the newest.
        let found = self.parts.iter().rposition(|part| part.sequence == sequence);
        match found {
            Some(index) if self.parts[index].kind == kind => None,
            Some(index) => {
                let other = self.parts.remove(index)?;
                self.bytes -= other.payload.len();
                Some(match kind {
                    Kind::FirstPart => [payload, &other.payload].concat(),
                    _ => [&other.payload, payload].concat(),
                })
            }
            None => {
                if self.parts.len() >= MAX_PARTS
                    && let Some(oldest) = self.parts.pop_front()
                {
                    self.bytes -= oldest.payload.len();
                }
                self.bytes += payload.len();
                self.parts.push_back(Part { sequence, kind, payload: payload.to_vec() });
                None
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_in_either_order() {
        let mut parts = WaitingParts::default();
        for (number, first, second) in
            [(1, Kind::FirstPart, Kind::SecondPart), (2, Kind::SecondPart, Kind::FirstPart)]
        {
            let sequence = Sequence::new(number);
            let payload = |kind| if kind == Kind::FirstPart { &b"one "[..] } else { b"two" };
            assert_eq!(parts.insert(sequence, first, payload(first)), None);
            assert_eq!(parts.insert(sequence, first, payload(first)), None, "a duplicate");
            let whole = parts.insert(sequence, second, payload(second));
            assert_eq!(whole.as_deref(), Some(&b"one two"[..]));
        }
        assert_eq!((parts.parts.len(), parts.bytes()), (0, 0));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut parts = WaitingParts::default();
        for number in 0..=MAX_PARTS as u32 {
            assert_eq!(parts.insert(Sequence::new(number), Kind::FirstPart, b"1"), None);
        }
        assert_eq!((parts.parts.len(), parts.bytes()), (MAX_PARTS, MAX_PARTS));
        assert_eq!(parts.insert(Sequence::new(0), Kind::SecondPart, b"2"), None, "it was dropped");
        let newest = Sequence::new(MAX_PARTS as u32);
        assert!(parts.insert(newest, Kind::SecondPart, b"2").is_some());
    }
}
