use std::collections::VecDeque;

/// Bytes of a packet's payload that are not the response's. With the headers of IPv6 and UDP ([`crate::HEADER_BYTES`])
/// 4.7 % of a full packet: the share that the tunnel's packets have over IPv4, where segments were 0.951 of the bytes
/// that crossed the emulated link (docs/research/results/iris-fig15).
const FRAMING_BYTES: u64 = 22;
/// Responses that are remembered, for data that is sent again.
const MAX_REMEMBERED: usize = 64;

/// A response in units of a full packet's payload.
#[derive(Clone, Copy, Debug)]
struct QueuedResponse {
    number: u64,
    first_unit: u64,
    end_unit: u64,
    bytes: u64,
}

/// The responses that a player asked for, the last at the end.
#[derive(Debug)]
pub(super) struct Responses {
    unit_bytes: u64,
    responses: VecDeque<QueuedResponse>,
}

impl Responses {
    /// Units are packets with `unit_bytes` of payload.
    pub(super) fn new(unit_bytes: u64) -> Self {
        Self { unit_bytes, responses: VecDeque::new() }
    }

    fn room_bytes(&self) -> u64 {
        self.unit_bytes - FRAMING_BYTES
    }

    /// Adds a response behind the unit `first_unit`. Returns the unit behind its last.
    pub(super) fn begin(&mut self, number: u64, bytes: u64, first_unit: u64) -> u64 {
        if self.responses.len() == MAX_REMEMBERED {
            self.responses.pop_front();
        }
        let end_unit = first_unit + bytes.div_ceil(self.room_bytes());
        self.responses.push_back(QueuedResponse { number, first_unit, end_unit, bytes });
        end_unit
    }

    /// Ends the last response before `end_unit`, if it is the response `number` and not over.
    pub(super) fn truncate(&mut self, number: u64, end_unit: u64) -> bool {
        let room_bytes = self.room_bytes();
        let Some(last) = self.responses.back_mut() else { return false };
        if last.number != number || end_unit < last.first_unit || end_unit >= last.end_unit {
            return false;
        }
        last.bytes = (end_unit - last.first_unit) * room_bytes;
        last.end_unit = end_unit;
        true
    }

    /// Payload of a packet with this unit.
    pub(super) fn unit_bytes(&self, unit: u64) -> u64 {
        let response =
            self.responses.iter().rev().find(|it| (it.first_unit..it.end_unit).contains(&unit));
        match response {
            Some(it) if unit == it.end_unit - 1 => {
                it.bytes - (it.end_unit - 1 - it.first_unit) * self.room_bytes() + FRAMING_BYTES
            }
            _ => self.unit_bytes,
        }
    }

    /// Number of the last response, and its bytes in the units below `units`.
    pub(super) fn bytes_below(&self, units: u64) -> Option<(u64, u64)> {
        let last = self.responses.back()?;
        let whole = units.saturating_sub(last.first_unit) * self.room_bytes();
        Some((last.number, whole.min(last.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with 1000 bytes of a response.
    const FULL: u64 = 1000 + FRAMING_BYTES;

    #[test]
    fn units_of_a_response_have_its_bytes_and_the_framing() {
        let mut responses = Responses::new(FULL);
        assert_eq!(responses.begin(1, 2500, 0), 3);
        assert_eq!(responses.begin(2, 1000, 3), 4);
        assert_eq!(
            [0, 1, 2, 3].map(|unit| responses.unit_bytes(unit)),
            [FULL, FULL, 500 + FRAMING_BYTES, FULL]
        );
        assert_eq!(responses.bytes_below(3), Some((2, 0)));
        assert_eq!(responses.bytes_below(4), Some((2, 1000)));
    }

    #[test]
    fn a_response_that_is_given_up_ends_with_what_was_sent() {
        let mut responses = Responses::new(FULL);
        responses.begin(1, 9500, 0);
        assert!(!responses.truncate(2, 4), "another response");
        assert!(responses.truncate(1, 4));
        assert_eq!(responses.bytes_below(4), Some((1, 4000)));
        assert_eq!(responses.unit_bytes(3), FULL);
        assert_eq!(responses.begin(2, 10, 4), 5);
        assert!(!responses.truncate(2, 5), "all of it was sent");
    }

    #[test]
    fn old_responses_are_forgotten() {
        let mut responses = Responses::new(FULL);
        for number in 0..1000 {
            responses.begin(number, 10, number);
        }
        assert_eq!(responses.responses.len(), MAX_REMEMBERED);
        assert_eq!(
            (responses.unit_bytes(999), responses.unit_bytes(3)),
            (10 + FRAMING_BYTES, FULL)
        );
    }
}
