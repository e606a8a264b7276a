//! Identifiers by which the transport reports the outcome of DATAGRAM frames.

/// The number of bits of a frame number in the identifier of a DATAGRAM frame.
pub(super) const FRAME_NUMBER_BITS: u32 = 24;

/// The identifier of a DATAGRAM frame for the transport: its flow's stream, which a client opened, and its number.
pub(crate) fn frame_id(stream: u64, number: u32) -> u64 {
    (stream / 4) << FRAME_NUMBER_BITS | u64::from(number % (1 << FRAME_NUMBER_BITS))
}

/// The stream and the number of an identifier.
pub(crate) fn stream_and_number(id: u64) -> (u64, u32) {
    ((id >> FRAME_NUMBER_BITS) * 4, id as u32 % (1 << FRAME_NUMBER_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_back() {
        for (stream, number) in [(0, 0), (4, 1), (1 << 40, (1 << 24) - 1)] {
            assert_eq!(stream_and_number(frame_id(stream, number)), (stream, number));
        }
        assert_eq!(stream_and_number(frame_id(8, 1 << 24)), (8, 0));
    }
}
