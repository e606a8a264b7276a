//! Repair of lost datagrams in a UDP flow whose two ends have agreed on it ([`millrace_wire::repair`]).
//!
//! The sender numbers packets and keeps each until it is acknowledged or too late; a lost one is sent again as long as
//! it can arrive before its deadline. The receiver drops duplicates and joins packets that came in two parts. It passes
//! packets on as they come: players put RTP in order themselves.

pub(crate) mod frame_id;
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
