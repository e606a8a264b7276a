//! What happens to packets: what controllers and path models are told.

use std::time::Duration;

use crate::Time;

/// A packet that leaves now.
#[derive(Clone, Copy, Debug)]
pub struct SentPacket {
    /// Grows with each packet of the connection; gaps are allowed.
    pub number: u64,
    /// When it leaves.
    pub time: Time,
    /// Its size (UDP payload).
    pub bytes: u64,
    /// Bytes in flight without it.
    pub prior_in_flight_bytes: u64,
    /// Whether it carries application data rather than only control frames.
    pub has_data: bool,
}

/// A packet that the peer has acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct AckedPacket {
    /// As in [`SentPacket::number`].
    pub number: u64,
    /// When it had left.
    pub sent: Time,
    /// Its size.
    pub bytes: u64,
}

/// A packet that was declared lost (RFC 9002, Section 6.1).
#[derive(Clone, Copy, Debug)]
pub struct LostPacket {
    /// As in [`SentPacket::number`].
    pub number: u64,
    /// When it had left.
    pub sent: Time,
    /// Its size.
    pub bytes: u64,
}

/// A round-trip measurement with the transport's estimates after it (RFC 9002, Section 5).
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// The sample, acknowledgement delay included.
    pub latest: Duration,
    /// Smoothed RTT.
    pub smoothed: Duration,
    /// Mean deviation.
    pub variation: Duration,
    /// The smallest sample so far.
    pub min: Duration,
}

/// One acknowledgement or one expiry of the loss timer.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent<'a> {
    /// When it happened.
    pub now: Time,
    /// Packets acknowledged now, in ascending order of number.
    pub acked: &'a [AckedPacket],
    /// Packets declared lost now, in ascending order of number.
    pub lost: &'a [LostPacket],
    /// Present when the largest acknowledged packet gave a new sample.
    pub rtt: Option<RttSample>,
    /// Packets newly reported as marked ECN-CE.
    pub ecn_ce: u64,
    /// Bytes in flight before the event.
    pub prior_in_flight_bytes: u64,
    /// Bytes in flight after it.
    pub in_flight_bytes: u64,
    /// Whether the sender is out of data now: nothing has left since it was.
    pub app_limited: bool,
}
