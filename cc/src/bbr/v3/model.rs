//! The flow's estimates: the cycle of probes, the minimum RTT, and the state before losses.

use std::time::Duration;

use crate::{Bandwidth, Time};

/// No bound (infinity in the draft).
pub(super) const UNBOUNDED: u64 = u64::MAX;
pub(super) const UNBOUNDED_RATE: Bandwidth = Bandwidth::from_bits_per_s(u64::MAX);

/// Which phase of the probe cycle acknowledgements are for (BBR.ack_phase).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// No phase.
    #[default]
    Init,
    /// ProbeBW_REFILL fills the path.
    Refilling,
    /// ProbeBW_UP has started; acknowledgements are for packets before it.
    Starting,
    /// Acknowledgements are for packets of ProbeBW_UP.
    Feedback,
    /// ProbeBW_UP has ended; acknowledgements are still for its packets.
    Stopping,
}

/// Position in the probe cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    /// BBR.cycle_count: the time of the bandwidth filter.
    pub(super) count: u64,
    /// BBR.cycle_stamp.
    pub(super) started: Time,
    /// BBR.bw_probe_wait.
    pub(super) wait: Duration,
    /// BBR.rounds_since_probe_up.
    pub(super) rounds: u64,
    pub(super) ack_phase: AckPhase,
    /// BBR.is_bw_probe_sample.
    pub(super) is_probe: bool,
    /// BBR.prev_probe_too_high.
    pub(super) was_too_high: bool,
    /// BBR.prev_probe_precautionary.
    pub(super) was_precaution: bool,
}

/// The smallest RTT of two windows: the long one is the model's, the short one says when to
/// measure again.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    /// BBR.min_rtt.
    pub(super) min: Option<Duration>,
    pub(super) min_at: Time,
    /// BBR.probe_rtt_min_delay.
    pub(super) recent: Option<Duration>,
    pub(super) recent_at: Time,
    /// BBR.probe_rtt_expired.
    pub(super) expired: bool,
}

impl MinRtt {
    pub(super) fn new(now: Time) -> Self {
        Self { min: None, min_at: now, recent: None, recent_at: now, expired: false }
    }

    pub(super) fn known(now: Time, rtt: Duration) -> Self {
        Self { min: Some(rtt), recent: Some(rtt), ..Self::new(now) }
    }
}

/// Speed at which a probe raises the bound (BBR.bw_probe_up_*).
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    /// BBR.bw_probe_up_rounds.
    pub(super) rounds: u32,
    /// BBR.bw_probe_up_acked.
    pub(super) acked_bytes: u64,
    /// BBR.probe_up_acked_per_inc: acknowledged bytes per additional packet.
    pub(super) bytes_per_packet: u64,
}

impl Default for Raise {
    fn default() -> Self {
        Self { rounds: 0, acked_bytes: 0, bytes_per_packet: UNBOUNDED }
    }
}

/// State that a loss ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    Startup,
    Up,
}

/// State restored after spurious losses ("Undo State").
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UndoState {
    pub(super) state: Option<Undo>,
    pub(super) bandwidth_shortterm: Bandwidth,
    pub(super) inflight_shortterm: u64,
    pub(super) inflight_longterm: u64,
}
