use crate::{AckedPacket, LostPacket};

/// Whether losses are being repaired, as in TCP's congestion states.
///
/// Linux stays in recovery until all losses are repaired, which takes a round trip from the last loss.
/// QUIC repairs with new packets, so recovery ends here when a packet is acknowledged that was sent after
/// the last loss was declared. (RFC 9002, Section 7.3.2, starts a new recovery each round trip, which
/// would mean packet conservation in each of them as long as losses continue.)
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRecovery {
    /// The first number that was unsent at the last loss.
    until: Option<u64>,
    /// Losses that are not known to be spurious.
    lost_packets: u64,
    /// Whether packet conservation applies: in the first round trip.
    pub(super) conserving: bool,
    entered: bool,
    left: bool,
}

impl LossRecovery {
    /// Packets were lost. Returns whether a new recovery begins.
    pub(super) fn on_lost(&mut self, lost: &[LostPacket], next_number: u64) -> bool {
        let begins = self.until.is_none();
        if begins {
            *self = Self { entered: true, ..Self::default() };
        }
        self.until = Some(next_number);
        self.lost_packets += lost.len() as u64;
        begins
    }

    /// Everything in flight counts as lost.
    pub(super) fn on_timeout(&mut self, next_number: u64) {
        *self = Self { until: Some(next_number), lost_packets: u64::MAX / 2, ..Self::default() };
    }

    pub(super) fn on_acked(&mut self, acked: &[AckedPacket]) {
        let Some((until, largest)) = self.until.zip(acked.last()) else { return };
        if largest.number >= until {
            self.leave();
        }
    }

    /// A loss was spurious. Recovery ends when all of its losses were.
    pub(super) fn on_spurious_loss(&mut self) {
        self.lost_packets = self.lost_packets.saturating_sub(1);
        if self.until.is_some() && self.lost_packets == 0 {
            self.leave();
        }
    }

    fn leave(&mut self) {
        *self = Self { left: true, ..Self::default() };
    }

    /// Whether recovery has begun since the last call.
    pub(super) fn take_entered(&mut self) -> bool {
        std::mem::take(&mut self.entered)
    }

    /// Whether recovery has ended since the last call.
    pub(super) fn take_left(&mut self) -> bool {
        std::mem::take(&mut self.left)
    }

    pub(super) fn is_active(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn lost(number: u64) -> [LostPacket; 1] {
        [LostPacket { number, sent: Time::ZERO, bytes: 1000 }]
    }

    fn acked(number: u64) -> [AckedPacket; 1] {
        [AckedPacket { number, sent: Time::ZERO, bytes: 1000 }]
    }

    #[test]
    fn recovery_lasts_a_round_trip_from_the_last_loss() {
        let mut recovery = LossRecovery::default();
        assert!(recovery.on_lost(&lost(3), 10));
        assert!(recovery.take_entered() && !recovery.take_entered());
        recovery.on_acked(&acked(9));
        assert!(recovery.is_active());
        assert!(!recovery.on_lost(&lost(8), 15), "the same one");
        recovery.on_acked(&acked(14));
        assert!(recovery.is_active());
        recovery.on_acked(&acked(15));
        assert!(!recovery.is_active() && recovery.take_left());
        assert!(recovery.on_lost(&lost(16), 20), "the next one");
    }

    #[test]
    fn recovery_ends_when_all_losses_were_spurious() {
        let mut recovery = LossRecovery::default();
        recovery.on_lost(&lost(3), 10);
        recovery.on_lost(&lost(4), 10);
        recovery.on_spurious_loss();
        assert!(recovery.is_active());
        recovery.on_spurious_loss();
        assert!(!recovery.is_active() && recovery.take_left());
        recovery.on_timeout(20);
        recovery.on_spurious_loss();
        assert!(recovery.is_active(), "a timeout is not spurious");
    }
}
