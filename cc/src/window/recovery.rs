use crate::{CongestionEvent, Time};

/// Recovery periods, by sent time (RFC 9002, Section 7.3.2): one reduction for all packets in flight when the first
/// loss is detected.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecoveryPeriods {
    /// When the latest period began.
    began: Option<Time>,
    /// When the period before it began.
    previous: Option<Time>,
    /// Whether no packet sent in it has been acknowledged yet.
    active: bool,
    /// Losses of the period that have not turned out to be spurious.
    lost_packets: u64,
    /// Whether packets were marked: then the period is not undone.
    marked: bool,
}

impl RecoveryPeriods {
    /// Whether a packet sent at `sent` left before the latest period.
    pub(crate) fn covers(&self, sent: Time) -> bool {
        self.began.is_some_and(|began| sent <= began)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Whether the event begins a period. A mark counts as the loss of the largest packet
    /// acknowledged (RFC 9002, Section 7.1 and Appendix B.7).
    pub(crate) fn on_event(&mut self, event: &CongestionEvent<'_>) -> bool {
        let lost = event.lost.iter().any(|packet| !self.covers(packet.sent));
        let marked = event.ecn_ce > 0
            && event.acked.last().is_some_and(|largest| !self.covers(largest.sent));
        let begins = lost || marked;
        if begins {
            *self = Self {
                previous: self.began,
                began: Some(event.now),
                active: true,
                lost_packets: 0,
                marked: false,
            };
        }
        self.marked |= event.ecn_ce > 0;
        self.lost_packets += event.lost.len() as u64;
        if self.active && event.acked.last().is_some_and(|packet| !self.covers(packet.sent)) {
            self.active = false;
        }
        begins
    }

    /// A loss of a packet sent at `sent` was spurious. Returns whether all losses of the latest period were.
    pub(crate) fn on_spurious_loss(&mut self, sent: Time) -> bool {
        let of_before = self.previous.is_some_and(|previous| sent <= previous);
        if of_before || !self.covers(sent) || self.lost_packets == 0 {
            return false;
        }
        self.lost_packets -= 1;
        let baseless = self.lost_packets == 0 && !self.marked;
        if baseless {
            *self = Self { began: self.previous, ..Self::default() };
        }
        baseless
    }

    /// After persistent congestion the next loss counts regardless of its sent time (RFC 9002,
    /// Appendix B.8).
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, LostPacket};

    fn event(
        recovery: &mut RecoveryPeriods,
        now: u64,
        acked: &[u64],
        lost: &[u64],
        ecn_ce: u64,
    ) -> bool {
        let at = Time::from_nanos;
        let acked: Vec<_> =
            acked.iter().map(|n| AckedPacket { number: *n, sent: at(*n), bytes: 1 }).collect();
        let lost: Vec<_> =
            lost.iter().map(|n| LostPacket { number: *n, sent: at(*n), bytes: 1 }).collect();
        recovery.on_event(&CongestionEvent {
            now: at(now),
            acked: &acked,
            lost: &lost,
            rtt: None,
            ecn_ce,
            prior_in_flight_bytes: 0,
            in_flight_bytes: 0,
            app_limited: false,
        })
    }

    #[test]
    fn one_reduction_for_what_was_in_flight() {
        let mut recovery = RecoveryPeriods::default();
        assert!(!event(&mut recovery, 10, &[1], &[], 0));
        assert!(event(&mut recovery, 20, &[5], &[2], 0));
        assert!(recovery.is_active());
        assert!(!event(&mut recovery, 25, &[15], &[6, 20], 0), "sent before it began");
        assert!(recovery.is_active());
        assert!(!event(&mut recovery, 41, &[21], &[], 0));
        assert!(!recovery.is_active(), "a packet sent in it has arrived");
        assert!(event(&mut recovery, 45, &[25], &[22], 0), "sent after it began");
    }

    #[test]
    fn a_mark_counts_as_a_loss() {
        let mut recovery = RecoveryPeriods::default();
        assert!(event(&mut recovery, 20, &[5], &[], 1));
        assert!(!event(&mut recovery, 21, &[6], &[], 3));
        assert!(event(&mut recovery, 40, &[21], &[], 1));
        assert!(!event(&mut recovery, 41, &[], &[], 1), "nothing was acknowledged");
    }

    #[test]
    fn a_period_is_baseless_when_all_its_losses_were_late() {
        let mut recovery = RecoveryPeriods::default();
        let at = Time::from_nanos;
        event(&mut recovery, 20, &[8], &[2, 3], 0);
        event(&mut recovery, 21, &[9], &[4], 0);
        assert!(!recovery.on_spurious_loss(at(2)) && !recovery.on_spurious_loss(at(3)));
        assert!(recovery.on_spurious_loss(at(4)));
        assert!(!recovery.covers(at(4)) && !recovery.is_active());
        assert!(!recovery.on_spurious_loss(at(4)));

        event(&mut recovery, 40, &[30], &[25], 0);
        event(&mut recovery, 60, &[50], &[45], 0);
        assert!(!recovery.on_spurious_loss(at(25)), "of the period before");
        assert!(recovery.on_spurious_loss(at(45)));
        assert!(recovery.covers(at(40)) && !recovery.covers(at(41)));

        event(&mut recovery, 80, &[70], &[65], 1);
        assert!(!recovery.on_spurious_loss(at(65)), "a mark is no mistake");
    }
}
