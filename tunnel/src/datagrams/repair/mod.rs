//! Repair of lost datagrams in a UDP flow whose two ends have agreed on it ([`millrace_wire::repair`]).
//!
//! The sender numbers packets and keeps each until it is acknowledged or too late; a lost one is sent again as long as
//! it can arrive before its deadline. The receiver drops duplicates.
//!
//! Media: packets may come in two parts, and are passed on as they come: players put RTP in order themselves. Where the
//! round trip is too long to send again, blocks of datagrams are followed by repair datagrams (forward error correction).
//!
//! QUIC (`in_order`): packets are passed on in order, within a deadline of some round trips of the tunnel.

mod block;
mod decoder;
mod encoder;
mod fec;
pub(crate) mod frame_id;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod in_order;
#[cfg(feature = "fuzzing")]
pub mod in_order_fuzzing;
mod parts;
mod received_window;
pub(crate) mod receiver;
pub(crate) mod sender;
#[cfg(test)]
mod simulation;
mod symbol;

use std::time::{Duration, Instant};

use millrace_wire::repair::RepairHeader;

use in_order::{HoldLimit, InOrderReceiver};
use receiver::{Received, RepairReceiver};
use sender::RepairSender;

/// Both directions of a flow.
#[derive(Debug)]
pub(crate) struct FlowRepair {
    pub(crate) sender: RepairSender,
    receiver: FlowReceiver,
    /// Datagrams that the transport may hold, if fewer than of other flows: lost ones that are sent again are behind them.
    pub(crate) transport_datagrams: Option<usize>,
}

/// What becomes of packets that arrive in another order.
#[derive(Debug)]
enum FlowReceiver {
    Unordered(RepairReceiver),
    InOrder(InOrderReceiver),
}

impl FlowRepair {
    /// Of a flow of media whose packets have `deadline` to arrive once they have been sent.
    pub(crate) fn of_media(deadline: Duration, fec: bool, now: Instant) -> Self {
        Self {
            sender: RepairSender::new(deadline, fec, now),
            receiver: FlowReceiver::Unordered(RepairReceiver::new(fec, now)),
            transport_datagrams: None,
        }
    }

    /// Of a flow of QUIC.
    pub(crate) fn in_order(now: Instant) -> Self {
        Self {
            sender: RepairSender::in_order(now),
            receiver: FlowReceiver::InOrder(InOrderReceiver::default()),
            transport_datagrams: None,
        }
    }

    /// Whether its packets are passed on in order.
    pub(crate) fn is_in_order(&self) -> bool {
        matches!(self.receiver, FlowReceiver::InOrder(_))
    }

    /// Takes the payload of a datagram. `limit` is for packets that have to wait for earlier ones.
    pub(crate) fn take<'a>(
        &mut self,
        header: RepairHeader,
        payload: &'a [u8],
        limit: HoldLimit,
        now: Instant,
    ) -> Received<'a> {
        match &mut self.receiver {
            FlowReceiver::Unordered(receiver) => receiver.take(header, payload, now),
            FlowReceiver::InOrder(receiver) => receiver.take(header, payload, limit, now),
        }
    }

    /// Packets that wait for others that are too late `now`, and how many of these there are.
    pub(crate) fn expire(&mut self, now: Instant) -> (Vec<Vec<u8>>, u64) {
        match &mut self.receiver {
            FlowReceiver::Unordered(_) => (Vec::new(), 0),
            FlowReceiver::InOrder(receiver) => receiver.expire(now),
        }
    }

    /// When [`FlowRepair::expire`] has something to do.
    pub(crate) fn hold_deadline(&self) -> Option<Instant> {
        match &self.receiver {
            FlowReceiver::Unordered(_) => None,
            FlowReceiver::InOrder(receiver) => receiver.deadline(),
        }
    }

    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let received = match &self.receiver {
            FlowReceiver::Unordered(receiver) => receiver.held_bytes(),
            FlowReceiver::InOrder(receiver) => receiver.held_bytes(),
        };
        self.sender.held_bytes() + received
    }
}
