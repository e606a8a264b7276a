use std::time::Duration;

use crate::{AckedPacket, LostPacket, RttSample, Time};

/// kPersistentCongestionThreshold (RFC 9002, Section 7.6.1).
const PERSISTENT_CONGESTION_THRESHOLD: u32 = 3;
/// kGranularity (RFC 9002, Section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// `max_ack_delay` where the peer names none (RFC 9000, Section 18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Detects persistent congestion: a time in which all packets sent were lost (RFC 9002, Section 7.6).
///
/// Two lost packets show it if they were sent far enough apart and no packet sent between them is
/// acknowledged: they lie in one gap of the acknowledged packets' sent times. A packet is only declared
/// lost when a later one is acknowledged, so the acknowledgement that closes a gap comes before its
/// losses. Only the latest gap that is long enough is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PersistentCongestion {
    /// When the newest acknowledged packet was sent, or when the first RTT sample came: earlier losses do not
    /// count (Section 7.6.2).
    newest: Option<Time>,
    gap: Option<Gap>,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    from: Time,
    to: Time,
    /// First and last lost packet that was sent in it.
    lost: Option<(Time, Time)>,
}

/// Least that [`least_duration`] can be.
const MIN_DURATION: Duration = Duration::from_millis(78);

/// Whether `span` is long enough. Most spans are short: the duration is then not computed.
fn is_long(span: Duration, rtt: &RttSample) -> bool {
    span > MIN_DURATION && span > least_duration(rtt)
}

/// How long everything must be lost (RFC 9002, Section 7.6.1).
fn least_duration(rtt: &RttSample) -> Duration {
    (rtt.smoothed + (4 * rtt.variation).max(GRANULARITY) + MAX_ACK_DELAY)
        * PERSISTENT_CONGESTION_THRESHOLD
}

impl PersistentCongestion {
    /// Processes an event's packets. Returns whether they show persistent congestion, once for each.
    /// `rtt` is the latest sample; `None` before the first.
    pub(crate) fn on_event(
        &mut self,
        now: Time,
        acked: &[AckedPacket],
        lost: &[LostPacket],
        rtt: Option<&RttSample>,
    ) -> bool {
        let Some(rtt) = rtt else { return false };
        if self.newest.is_none() {
            self.newest = Some(now);
        }
        for packet in acked {
            self.on_acked(packet.sent, rtt);
        }
        lost.iter().any(|packet| self.on_lost(packet.sent, rtt))
    }

    fn on_acked(&mut self, sent: Time, rtt: &RttSample) {
        let newest = *self.newest.get_or_insert(sent);
        if sent > newest {
            if is_long(sent - newest, rtt) {
                self.gap = Some(Gap { from: newest, to: sent, lost: None });
            }
            self.newest = Some(sent);
        } else if let Some(gap) = &mut self.gap
            && (gap.from..gap.to).contains(&sent)
        {
            // Out of order: keeps the longer part of the gap.
            match sent - gap.from > gap.to - sent {
                true => gap.to = sent,
                false => gap.from = sent,
            }
            gap.lost = None;
        }
    }

    fn on_lost(&mut self, sent: Time, rtt: &RttSample) -> bool {
        let Some(gap) = &mut self.gap else { return false };
        if sent <= gap.from || sent >= gap.to {
            return false;
        }
        let (first, last) = gap.lost.map_or((sent, sent), |(a, b)| (a.min(sent), b.max(sent)));
        gap.lost = Some((first, last));
        let found = is_long(last - first, rtt);
        if found {
            self.gap = None;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 ms, deviation 10 ms: 3 * (100 + 40 + 25) = 495 ms.
    const RTT: RttSample = RttSample {
        latest: Duration::from_millis(100),
        smoothed: Duration::from_millis(100),
        variation: Duration::from_millis(10),
        min: Duration::from_millis(100),
    };

    fn ms(at: u64) -> Time {
        Time::from_nanos(at * 1_000_000)
    }

    #[test]
    fn no_duration_is_below_the_least() {
        let none = RttSample {
            latest: Duration::ZERO,
            smoothed: Duration::ZERO,
            variation: Duration::ZERO,
            min: Duration::ZERO,
        };
        assert_eq!(least_duration(&none), MIN_DURATION);
    }

    fn event(congestion: &mut PersistentCongestion, acked: &[u64], lost: &[u64]) -> bool {
        let ack = |at: &u64| AckedPacket { number: *at, sent: ms(*at), bytes: 1350 };
        let loss = |at: &u64| LostPacket { number: *at, sent: ms(*at), bytes: 1350 };
        let acked: Vec<_> = acked.iter().map(ack).collect();
        let lost: Vec<_> = lost.iter().map(loss).collect();
        congestion.on_event(ms(100), &acked, &lost, Some(&RTT))
    }

    #[test]
    fn everything_lost_for_three_probe_timeouts_is_persistent() {
        assert_eq!(least_duration(&RTT), Duration::from_millis(495));
        for (last, found) in [(696, true), (695, false)] {
            let mut congestion = PersistentCongestion::default();
            assert!(!event(&mut congestion, &[110, 120], &[]));
            assert_eq!(event(&mut congestion, &[900], &[200, 400, last]), found, "{last}");
        }
    }

    #[test]
    fn the_losses_may_be_declared_one_by_one() {
        let mut congestion = PersistentCongestion::default();
        event(&mut congestion, &[110], &[]);
        assert!(!event(&mut congestion, &[900], &[200]));
        assert!(!event(&mut congestion, &[901], &[500]));
        assert!(event(&mut congestion, &[], &[800]));
        assert!(!event(&mut congestion, &[], &[801]), "shown once");
    }

    #[test]
    fn one_packet_that_arrives_between_them_is_enough() {
        let mut congestion = PersistentCongestion::default();
        event(&mut congestion, &[110], &[]);
        assert!(!event(&mut congestion, &[500, 900], &[200, 300, 600, 800]));
        let mut late = PersistentCongestion::default();
        event(&mut late, &[110], &[]);
        event(&mut late, &[900], &[200]);
        assert!(!event(&mut late, &[450], &[800]), "acknowledged out of order");
    }

    #[test]
    fn nothing_before_the_first_sample_counts() {
        let mut congestion = PersistentCongestion::default();
        let lost = |at| LostPacket { number: at, sent: ms(at), bytes: 1350 };
        let acked = [AckedPacket { number: 900, sent: ms(900), bytes: 1350 }];
        assert!(!congestion.on_event(ms(990), &acked, &[lost(1), lost(800)], None));
        assert!(!congestion.on_event(ms(1000), &acked, &[lost(1), lost(800)], Some(&RTT)));
    }
}
