//! Delivery rate of a path, sampled with every acknowledgement.
//!
//! draft-cheng-iccrg-delivery-rate-estimation-02, Section 3, as included in
//! draft-ietf-ccwg-bbr, Section "Delivery Rate Samples".

use std::time::Duration;

use super::sent_ring::SentRing;
use crate::{Bandwidth, CongestionEvent, LostPacket, SentPacket, Time};

/// Estimates the delivery rate of the path.
///
/// For a packet P: the bytes delivered from the last delivery before P left until P was delivered, over
/// the longer of the times in which they were sent and acknowledged.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateSampler {
    in_flight: SentRing<DepartureState>,
    started: bool,
    /// C.delivered.
    delivered_bytes: u64,
    /// C.lost.
    lost_bytes: u64,
    /// C.delivered_time.
    delivered_at: Time,
    /// C.first_send_time.
    first_sent: Time,
    /// C.app_limited: samples are application-limited until more than this is delivered.
    app_limited_until_bytes: Option<u64>,
    min_rtt: Duration,
}

/// State when a packet left (P in the draft).
#[derive(Clone, Copy, Debug)]
struct DepartureState {
    delivered_bytes: u64,
    lost_bytes: u64,
    delivered_at: Time,
    first_sent: Time,
    /// With the packet; saturates at 4 GB.
    in_flight_bytes: u32,
    app_limited: bool,
}

/// A sample of the delivery rate (RS in the draft), from the newest packet of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RateSample {
    /// RS.delivery_rate; `None` if the interval was shorter than any round trip.
    pub(crate) rate: Option<Bandwidth>,
    /// RS.delivered.
    pub(crate) delivered_bytes: u64,
    /// RS.interval.
    pub(crate) interval: Duration,
    /// RS.is_app_limited: the application may have had less to send than the path could take.
    pub(crate) app_limited: bool,
    /// RS.tx_in_flight: in flight when the packet had left, itself included.
    pub(crate) sent_in_flight_bytes: u64,
    /// RS.lost: declared lost since the packet left.
    pub(crate) lost_bytes: u64,
}

/// Sample of a lost packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LossSample {
    /// Size of the packet.
    pub(crate) bytes: u64,
    /// As in [`RateSample::app_limited`].
    pub(crate) app_limited: bool,
    /// As in [`RateSample::sent_in_flight_bytes`].
    pub(crate) sent_in_flight_bytes: u64,
    /// Declared lost since the packet left, itself included.
    pub(crate) lost_bytes: u64,
}

impl RateSampler {
    /// A packet leaves.
    pub(crate) fn on_sent(&mut self, packet: &SentPacket) {
        // With nothing in flight the interval begins now: a pause delivers nothing.
        if packet.prior_in_flight_bytes == 0 || !self.started {
            self.started = true;
            self.first_sent = packet.time;
            self.delivered_at = packet.time;
        }
        let in_flight = packet.prior_in_flight_bytes.saturating_add(packet.bytes);
        let departure = DepartureState {
            delivered_bytes: self.delivered_bytes,
            lost_bytes: self.lost_bytes,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight_bytes: u32::try_from(in_flight).unwrap_or(u32::MAX),
            app_limited: self.is_app_limited(),
        };
        self.in_flight.push(packet.number, departure);
    }

    /// A packet is lost. Must be called before [`on_acked`](Self::on_acked) of the same event, so
    /// that [`RateSample::lost_bytes`] includes it. `None` for an unknown packet.
    pub(crate) fn on_lost(&mut self, packet: &LostPacket) -> Option<LossSample> {
        self.lost_bytes += packet.bytes;
        let departure = self.in_flight.take(packet.number)?;
        Some(LossSample {
            bytes: packet.bytes,
            app_limited: departure.app_limited,
            sent_in_flight_bytes: u64::from(departure.in_flight_bytes),
            lost_bytes: self.lost_bytes - departure.lost_bytes,
        })
    }

    /// The packets of `event` are delivered. `None` if all of them are unknown.
    pub(crate) fn on_acked(&mut self, event: &CongestionEvent<'_>) -> Option<RateSample> {
        if let Some(rtt) = event.rtt {
            self.min_rtt = rtt.min;
        }
        let mut newest = None;
        for packet in event.acked {
            self.delivered_bytes += packet.bytes;
            self.delivered_at = event.now;
            if let Some(departure) = self.in_flight.take(packet.number) {
                newest = Some((packet.sent, departure));
            }
        }
        if self.app_limited_until_bytes.is_some_and(|until| self.delivered_bytes > until) {
            self.app_limited_until_bytes = None;
        }
        let (sent, departure) = newest?;
        self.first_sent = sent;
        Some(self.sample(event.now, sent, &departure))
    }

    fn sample(&self, now: Time, sent: Time, departure: &DepartureState) -> RateSample {
        // Acknowledgements that were held back may come faster than the path delivers. A path does not
        // deliver faster than the sender sends.
        let interval = (now - departure.delivered_at).max(sent - departure.first_sent);
        let delivered_bytes = self.delivered_bytes - departure.delivered_bytes;
        let reliable = interval >= self.min_rtt && !interval.is_zero();
        RateSample {
            rate: reliable.then(|| Bandwidth::from_bytes_and_time(delivered_bytes, interval)),
            delivered_bytes,
            interval,
            app_limited: departure.app_limited,
            sent_in_flight_bytes: u64::from(departure.in_flight_bytes),
            lost_bytes: self.lost_bytes - departure.lost_bytes,
        }
    }

    /// A packet that had been declared lost was delivered after all.
    pub(crate) fn on_spurious_loss(&mut self, packet: &LostPacket) {
        self.delivered_bytes += packet.bytes;
    }

    /// A packet will neither be acknowledged nor declared lost.
    pub(crate) fn on_discarded(&mut self, number: u64) {
        self.in_flight.take(number);
    }

    /// The window has room but there is no data: samples are application-limited until the bytes in
    /// flight now are delivered.
    pub(crate) fn on_app_limited(&mut self, in_flight_bytes: u64) {
        self.app_limited_until_bytes = Some(self.delivered_bytes.saturating_add(in_flight_bytes));
    }

    /// Whether packets that leave now give application-limited samples.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited_until_bytes.is_some()
    }

    /// Bytes delivered so far.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Bytes declared lost so far.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, RttSample};

    fn ms(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A sampler with its packets: number, moment and size of each.
    #[derive(Default)]
    struct Run {
        sampler: RateSampler,
        sent: Vec<Time>,
        in_flight: u64,
    }

    impl Run {
        fn send(&mut self, at_ms: u64) {
            self.sampler.on_sent(&SentPacket {
                number: self.sent.len() as u64,
                time: ms(at_ms),
                bytes: 1000,
                prior_in_flight_bytes: self.in_flight,
                has_data: true,
            });
            self.sent.push(ms(at_ms));
            self.in_flight += 1000;
        }

        fn lose(&mut self, number: u64) -> LossSample {
            self.in_flight -= 1000;
            let sent = self.sent[number as usize];
            let sample = self.sampler.on_lost(&LostPacket { number, sent, bytes: 1000 });
            sample.expect("it was sent")
        }

        fn ack(&mut self, at_ms: u64, numbers: std::ops::RangeInclusive<u64>) -> RateSample {
            let acked: Vec<_> = numbers
                .map(|number| AckedPacket { number, sent: self.sent[number as usize], bytes: 1000 })
                .collect();
            self.in_flight -= 1000 * acked.len() as u64;
            let latest = ms(at_ms) - acked.last().expect("a packet").sent;
            let min = Duration::from_millis(10);
            let event = CongestionEvent {
                now: ms(at_ms),
                acked: &acked,
                lost: &[],
                rtt: Some(RttSample { latest, smoothed: latest, variation: latest, min }),
                ecn_ce: 0,
                prior_in_flight_bytes: 0,
                in_flight_bytes: 0,
                app_limited: false,
            };
            self.sampler.on_acked(&event).expect("it was sent")
        }
    }

    #[test]
    fn a_steady_flow_is_sampled_at_its_rate() {
        // A packet each millisecond, acknowledged 10 ms later: 8 Mbit/s.
        let mut run = Run::default();
        (0..10).for_each(|at| run.send(at));
        for at in 10..50 {
            let sample = run.ack(at, at - 10..=at - 10);
            run.send(at);
            // Packet 0 was alone: 1000 bytes in 10 ms. Packet n of the first flight found n
            // times 1000 delivered within 10 + n ms. From packet 10 on 11 in 11 ms.
            let (bytes, time) = match at - 10 {
                n @ 0..10 => (1000 * (n + 1), 10 + n),
                10 => (10_000, 10),
                _ => (11_000, 11),
            };
            let expected = Bandwidth::from_bytes_and_time(bytes, Duration::from_millis(time));
            match at - 10 {
                10.. => assert_eq!(sample.rate.map(Bandwidth::mbps), Some(8.0), "{at}"),
                _ => assert_eq!(sample.rate, Some(expected), "{at}"),
            }
        }
        assert_eq!(run.sampler.delivered_bytes(), 40_000);
        assert_eq!(run.sampler.delivered_at, ms(49));
    }

    #[test]
    fn acknowledgements_that_come_at_once_are_capped_by_the_rate_of_sending() {
        // Packets 0 to 19 leave one a millisecond. Number 0 is acknowledged at 10; then the
        // acknowledgements are held back and all come at 30.
        let mut run = Run::default();
        (0..10).for_each(|at| run.send(at));
        run.ack(10, 0..=0);
        (10..20).for_each(|at| run.send(at));
        let first = run.ack(30, 1..=9);
        // Delivered 10 packets since the flow began, in 30 ms.
        assert_eq!((first.delivered_bytes, first.interval), (10_000, Duration::from_millis(30)));
        let second = run.ack(30, 10..=19);
        // Since packet 0 at 10 ms: 19 packets, in 20 ms of acknowledgements.
        assert_eq!((second.delivered_bytes, second.interval), (19_000, Duration::from_millis(20)));

        // Packets 20 to 29 leave over 18 ms after that, the acknowledgements come within 10:
        // 10 packets in the time since packet 19 left, at 19 ms.
        (0..10).for_each(|at| run.send(31 + 2 * at));
        let third = run.ack(55, 20..=29);
        assert_eq!((third.delivered_bytes, third.interval), (10_000, Duration::from_millis(24)));
    }

    #[test]
    fn the_send_interval_counts_when_it_is_longer() {
        let mut run = Run::default();
        (0..3).for_each(|at| run.send(20 * at));
        run.ack(50, 0..=0);
        run.send(60);
        // Packet 3: sent 60 ms after packet 0, acknowledged 15 ms after that one's.
        let sample = run.ack(65, 1..=3);
        assert_eq!((sample.delivered_bytes, sample.interval), (3000, Duration::from_millis(60)));
    }

    #[test]
    fn a_pause_is_not_part_of_the_interval() {
        let mut run = Run::default();
        run.send(0);
        run.ack(10, 0..=0);
        run.send(5000);
        let sample = run.ack(5010, 1..=1);
        assert_eq!((sample.delivered_bytes, sample.interval), (1000, Duration::from_millis(10)));
    }

    #[test]
    fn an_interval_shorter_than_any_round_trip_is_no_sample() {
        let mut run = Run::default();
        run.send(0);
        assert!(run.ack(10, 0..=0).rate.is_some());
        run.send(5000);
        let early = run.ack(5001, 1..=1);
        assert_eq!((early.rate, early.interval), (None, Duration::from_millis(1)));
    }

    #[test]
    fn samples_are_app_limited_until_the_bubble_has_left() {
        let mut run = Run::default();
        run.send(0);
        run.sampler.on_app_limited(run.in_flight);
        (1..4).for_each(|at| run.send(at));
        assert!(!run.ack(10, 0..=0).app_limited, "it left before");
        assert!(run.sampler.is_app_limited(), "not more than the mark is delivered");
        assert!(run.ack(11, 1..=1).app_limited);
        assert!(!run.sampler.is_app_limited());
        run.send(12);
        assert!(run.ack(14, 2..=3).app_limited);
        assert!(!run.ack(22, 4..=4).app_limited);
    }

    #[test]
    fn losses_are_counted_against_what_was_in_flight() {
        let mut run = Run::default();
        (0..10).for_each(|at| run.send(at));
        let loss = run.lose(2);
        assert_eq!((loss.sent_in_flight_bytes, loss.lost_bytes), (3000, 1000));
        assert_eq!(run.lose(3).lost_bytes, 2000);
        let sample = run.ack(20, 4..=9);
        assert_eq!((sample.sent_in_flight_bytes, sample.lost_bytes), (10_000, 2000));
        run.send(20);
        assert_eq!(run.ack(30, 10..=10).lost_bytes, 0, "lost before it left");
        assert_eq!(run.sampler.lost_bytes(), 2000);
        let late = LostPacket { number: 2, sent: ms(2), bytes: 1000 };
        run.sampler.on_spurious_loss(&late);
        assert_eq!(run.sampler.delivered_bytes(), 8000);
    }

    #[test]
    fn a_clock_that_stands_still_gives_no_rate() {
        let mut sampler = RateSampler::default();
        let packet = SentPacket {
            number: 0,
            time: Time::ZERO,
            bytes: 1000,
            prior_in_flight_bytes: 0,
            has_data: true,
        };
        sampler.on_sent(&packet);
        let event = CongestionEvent {
            now: Time::ZERO,
            acked: &[AckedPacket { number: 0, sent: Time::ZERO, bytes: 1000 }],
            lost: &[],
            rtt: None,
            ecn_ce: 0,
            prior_in_flight_bytes: 1000,
            in_flight_bytes: 0,
            app_limited: false,
        };
        assert_eq!(sampler.on_acked(&event).map(|sample| sample.rate), Some(None));
        assert_eq!(sampler.on_acked(&event), None, "not known any more");
    }
}
