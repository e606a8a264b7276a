use crate::{AckedPacket, SentPacket};

/// Packet-timed round trips: a round ends when a packet is acknowledged that was sent after
/// the round had begun (draft-cardwell-iccrg-bbr-congestion-control-00, Section 4.1.1.3).
///
/// Counts by packet number, so neither the RTT estimate nor a pause of the sender moves it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundCounter {
    rounds: u64,
    /// The first number that was unsent when the round began.
    ends_at: u64,
    next_number: u64,
}

impl RoundCounter {
    pub(crate) fn on_sent(&mut self, packet: &SentPacket) {
        self.next_number = packet.number + 1;
    }

    /// Whether these acknowledgements (ascending) begin a new round.
    pub(crate) fn on_acked(&mut self, acked: &[AckedPacket]) -> bool {
        let Some(largest) = acked.last() else { return false };
        let ends = largest.number >= self.ends_at;
        if ends {
            self.rounds += 1;
            self.restart();
        }
        ends
    }

    /// The current round ends with the first packet that is sent from now on.
    pub(crate) fn restart(&mut self) {
        self.ends_at = self.next_number;
    }

    /// Rounds begun so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn send(rounds: &mut RoundCounter, number: u64) {
        let packet = SentPacket {
            number,
            time: Time::ZERO,
            bytes: 1350,
            prior_in_flight_bytes: 0,
            has_data: true,
        };
        rounds.on_sent(&packet);
    }

    fn ack(rounds: &mut RoundCounter, number: u64) -> bool {
        rounds.on_acked(&[AckedPacket { number, sent: Time::ZERO, bytes: 1350 }])
    }

    #[test]
    fn a_round_ends_with_a_packet_sent_in_it() {
        let mut rounds = RoundCounter::default();
        (0..10).for_each(|number| send(&mut rounds, number));
        assert!(ack(&mut rounds, 0), "the first acknowledgement begins the first round");
        assert!((1..10).all(|number| !ack(&mut rounds, number)), "sent before it");
        send(&mut rounds, 10);
        assert!(ack(&mut rounds, 10));
        assert_eq!(rounds.rounds(), 2);
        assert!(!rounds.on_acked(&[]));
    }
}
