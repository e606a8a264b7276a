//! Repair of lost datagrams in a UDP flow whose two ends have agreed on it ([`millrace_wire::repair`]).
//!
//! The sender numbers packets and keeps each until it is acknowledged or too late; a lost one is sent again as long as
//! it can arrive before its deadline. The receiver drops duplicates and joins packets that came in two parts. It passes
//! packets on as they come: players put RTP in order themselves.

mod parts;
pub(crate) mod receiver;
mod seen;
pub(crate) mod sender;

use std::time::Duration;

use receiver::RepairReceiver;
use sender::RepairSender;

/// Both directions of a flow.
#[derive(Debug)]
pub(crate) struct FlowRepair {
    pub(crate) sender: RepairSender,
    pub(crate) receiver: RepairReceiver,
}

impl FlowRepair {
    /// Of a flow whose packets have `deadline` to arrive once they have been sent.
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { sender: RepairSender::new(deadline), receiver: RepairReceiver::default() }
    }

    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.sender.held_bytes() + self.receiver.held_bytes()
    }
}

/// The number of bits of a frame number in the identifier of a DATAGRAM frame.
const FRAME_NUMBER_BITS: u32 = 24;

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
