//! Detection of stuck data.
//!
//! A reader that does not drain holds up its own flow, which is normal. Stuck is data that waits although its reader
//! drains: bytes in the tunnel that the flow's socket would take, bytes of the socket that the stream would take, and
//! bytes that a responsive peer does not acknowledge, as on a path that passes only small packets.

use std::time::{Duration, Instant};

/// How long data that could move may wait.
pub(crate) const STUCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Acknowledged bytes that are more than the packets of a connection that only keeps itself alive.
pub(crate) const MIN_ACKED_BYTES: u64 = 1200;

/// A flow that moved so recently is not looked at: less than a check's interval.
pub(crate) const MIN_STILL_TIME: Duration = Duration::from_millis(900);

/// How long data of one flow has waited although it could move.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowWait {
    since: Option<Instant>,
}

impl FlowWait {
    /// Takes the result of a check. Returns whether the data has waited for too long; `moved` is when the flow moved
    /// last. Data counts from the first check that finds it: a quiet flow's first packet may have arrived just before.
    pub(crate) fn is_stuck(&mut self, can_move: bool, moved: Instant, now: Instant) -> bool {
        if !can_move {
            self.since = None;
            return false;
        }
        let since = (*self.since.get_or_insert(now)).max(moved);
        now.saturating_duration_since(since) >= STUCK_TIMEOUT
    }
}

/// What is known of a connection's progress in sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendProgress {
    /// Acknowledged bytes when they were enough, and when that was.
    pub(crate) acked_bytes: u64,
    moved: Instant,
    /// Packets received when they were last looked at, and when there were new ones.
    pub(crate) received_packets: usize,
    heard: Instant,
}

impl SendProgress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { acked_bytes: 0, moved: now, received_packets: 0, heard: now }
    }

    /// Whether data has waited for too long, on a path on which the peer is heard.
    pub(crate) fn is_stuck(&mut self, sent: &SentAmount, now: Instant) -> bool {
        if sent.received_packets != self.received_packets {
            (self.received_packets, self.heard) = (sent.received_packets, now);
        }
        if !sent.is_waiting || sent.acked_bytes >= self.acked_bytes + MIN_ACKED_BYTES {
            (self.acked_bytes, self.moved) = (sent.acked_bytes, now);
        }
        now.saturating_duration_since(self.moved) >= STUCK_TIMEOUT
            && now.saturating_duration_since(self.heard) < STUCK_TIMEOUT
    }
}

/// What a connection has sent.
pub(crate) struct SentAmount {
    /// Stream data waits for the congestion window, or for acknowledgements. What waits for flow control is
    /// not among it: flows read no more from their sockets than their streams have credit for.
    pub(crate) is_waiting: bool,
    pub(crate) acked_bytes: u64,
    pub(crate) received_packets: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(is_waiting: bool, acked_bytes: u64, received_packets: usize) -> SentAmount {
        SentAmount { is_waiting, acked_bytes, received_packets }
    }

    #[test]
    fn data_counts_as_stuck_only_after_it_has_waited_itself() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut wait = FlowWait::default();
        // Quiet for a minute. Then data arrives, and stays.
        assert!(!wait.is_stuck(false, start, at(60)));
        let stuck: Vec<_> =
            (61..70).filter(|second| wait.is_stuck(true, start, at(*second))).collect();
        assert_eq!(stuck, [66, 67, 68, 69]);
        // It moves at last, and waits again.
        assert!(!wait.is_stuck(true, at(70), at(70)));
        assert!(!wait.is_stuck(true, at(70), at(74)));
        assert!(wait.is_stuck(true, at(70), at(75)));
        assert!(!wait.is_stuck(false, at(70), at(76)), "its reader does not drain");
        assert!(!wait.is_stuck(true, at(70), at(77)));
    }

    #[test]
    fn a_peer_that_acknowledges_small_packets_only_is_stuck() {
        let start = Instant::now();
        let mut progress = SendProgress::new(start);
        let stuck: Vec<_> = (0..8)
            .filter(|second| {
                let now = start + Duration::from_secs(*second);
                progress.is_stuck(&sent(true, 40 * second, *second as usize), now)
            })
            .collect();
        assert_eq!(stuck, [5, 6, 7]);
        let now = start + Duration::from_secs(8);
        assert!(!progress.is_stuck(&sent(true, 5000, 8), now), "it moves again");
    }

    #[test]
    fn a_silent_peer_and_one_without_data_are_not() {
        let start = Instant::now();
        let mut progress = SendProgress::new(start);
        for second in 0..20 {
            let now = start + Duration::from_secs(second);
            assert!(
                !progress.is_stuck(&sent(true, 0, 0), now),
                "{second}: silence is another matter"
            );
        }
        let mut progress = SendProgress::new(start);
        for second in 0..20 {
            let now = start + Duration::from_secs(second);
            assert!(!progress.is_stuck(&sent(false, 0, second as usize), now), "{second}");
        }
    }

    #[test]
    fn a_slow_path_is_not() {
        let start = Instant::now();
        let mut progress = SendProgress::new(start);
        for second in 0..20 {
            let now = start + Duration::from_secs(second);
            let acked = 300 * second;
            assert!(!progress.is_stuck(&sent(true, acked, second as usize), now), "{second}");
        }
    }
}
