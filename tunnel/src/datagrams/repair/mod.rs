//! Repair of lost datagrams in a UDP flow whose two ends have agreed on it ([`millrace_wire::repair`]).
//!
//! The sender numbers packets and keeps each until it is acknowledged or too late; a lost one is sent again as long as
//! it can arrive before its deadline. The receiver drops duplicates and joins packets that came in two parts. It passes
//! packets on as they come: players put RTP in order themselves. Where the round trip is too long to send again, blocks
//! of datagrams are followed by repair datagrams (forward error correction).

mod block;
mod decoder;
mod encoder;
mod fec;
pub(crate) mod frame_id;
#[cfg(fuzzing)]
pub mod fuzzing;
mod parts;
mod received_window;
pub(crate) mod receiver;
pub(crate) mod sender;
#[cfg(test)]
mod simulation;
mod symbol;

use std::time::{Duration, Instant};

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
    pub(crate) fn new(deadline: Duration, fec: bool, now: Instant) -> Self {
        Self {
            sender: RepairSender::new(deadline, fec, now),
            receiver: RepairReceiver::new(fec, now),
        }
    }

    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.sender.held_bytes() + self.receiver.held_bytes()
    }
}
