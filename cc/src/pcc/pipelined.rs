use std::time::Duration;

use crate::estimators::{RateSampler, RoundCounter};
use crate::{Bandwidth, CongestionEvent, LostPacket, SentPacket};

/// Sends this many times what was delivered over the last round trip. What comes back now left a
/// round trip ago and its mean is older by half of one, so doubling in each takes 4 ln 2
/// (the derivation of BBR's start-up gain).
const PACING_GAIN: f64 = 2.773;
/// Most in flight, in round trips of what was delivered: bounds the queue by one of the path's
/// bandwidth-delay products.
const WINDOW_GAIN: f64 = 2.0;
/// What the window covers beyond, for acknowledgements that are held back.
const WINDOW_SLACK: Duration = Duration::from_millis(10);
/// Samples in a row that must show a queue (HyStart++, RFC 9406, Section 4.3: N_RTT_SAMPLE).
const QUEUE_SAMPLES: u32 = 8;
/// A queue is an RTT of an eighth more than the least, from 4 ms up to 16 ms (RFC 9406, Section
/// 4.3: MIN_RTT_DIVISOR, MIN_RTT_THRESH, MAX_RTT_THRESH).
const QUEUE_DIVISOR: u32 = 8;
const LEAST_QUEUE: Duration = Duration::from_millis(4);
const MOST_QUEUE: Duration = Duration::from_millis(16);
/// A sample may have waited at the peer for as many packets as this, but not for longer than
/// [`MAX_ACK_DELAY`] (RFC 9000, Section 18.2).
const HELD_BACK_BYTES: u64 = 10 * 1350;
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// Losses that are taken for chance (Vivace, Section 5.2.1, "initial ignorance").
const IGNORED_LOSSES: u64 = 50;
/// Share of a round's packets that, lost, is no chance: twice what the utilities bear.
const MUCH_LOSS: f64 = 0.1;
/// A path is full when what is delivered has not grown by a quarter in three rounds
/// (draft-ietf-ccwg-bbr, Section "Exiting Startup Based on Bandwidth Plateau").
const GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;
/// While the queue drains, this much of what the path delivers is sent.
const DRAIN_GAIN: f64 = 0.5;
/// Rounds after which the drain ends whatever is in flight.
const MOST_DRAIN_ROUNDS: u64 = 2;

/// Start-up that doubles once a round trip and not, as with one interval after the other, once in
/// two: it follows acknowledgements as they come.
///
/// It ends when they show a queue, much loss, or no growth. By then what left in the last round
/// trip is too much: with a rate that doubles in each, 0.44 of the bandwidth-delay product.
#[derive(Debug, Default)]
pub(super) struct Pipelined {
    sampler: RateSampler,
    rounds: RoundCounter,
    least_rtt: Option<Duration>,
    delivered: Bandwidth,
    queue_samples: u32,
    lost: u64,
    round_acked: u64,
    round_lost: u64,
    round_limited: bool,
    rounds_without_growth: u32,
    plateau: Bandwidth,
    drains_since: Option<u64>,
}

impl Pipelined {
    pub(super) fn on_sent(&mut self, packet: &SentPacket) {
        self.sampler.on_sent(packet);
        self.rounds.on_sent(packet);
    }

    pub(super) fn on_discarded(&mut self, number: u64) {
        self.sampler.on_discarded(number);
    }

    pub(super) fn on_spurious_loss(&mut self, packet: &LostPacket) {
        self.sampler.on_spurious_loss(packet);
    }

    pub(super) fn on_app_limited(&mut self, in_flight_bytes: u64) {
        self.sampler.on_app_limited(in_flight_bytes);
    }

    /// Takes in acknowledgements and losses: what the path delivers, once that is known.
    pub(super) fn on_event(&mut self, event: &CongestionEvent<'_>) -> Option<Bandwidth> {
        for packet in event.lost {
            self.sampler.on_lost(packet);
        }
        let sample = self.sampler.on_acked(event);
        let limited = sample.is_some_and(|sample| sample.app_limited);
        if let Some(rate) = sample.and_then(|sample| sample.rate) {
            self.delivered = self.delivered.max(rate);
        }
        if self.drains_since.is_some() {
            return self.has_drained(event).then_some(self.delivered);
        }
        let full = self.shows_queue(event) | self.round_shows(event, limited);
        if full {
            self.drains_since = Some(self.rounds.rounds());
        }
        None
    }

    fn shows_queue(&mut self, event: &CongestionEvent<'_>) -> bool {
        let Some(rtt) = event.rtt else { return false };
        let least = rtt.min.min(self.least_rtt.unwrap_or(rtt.min));
        self.least_rtt = Some(least);
        let held_back = self.delivered.time_for(HELD_BACK_BYTES).min(MAX_ACK_DELAY);
        let queue = (least / QUEUE_DIVISOR).clamp(LEAST_QUEUE, MOST_QUEUE) + held_back;
        self.queue_samples = match rtt.latest > least + queue {
            true => self.queue_samples + 1,
            false => 0,
        };
        self.queue_samples >= QUEUE_SAMPLES
    }

    /// Loss as it comes, growth at the end of each round.
    fn round_shows(&mut self, event: &CongestionEvent<'_>, limited: bool) -> bool {
        self.lost += event.lost.len() as u64;
        self.round_lost += event.lost.len() as u64;
        self.round_acked += event.acked.len() as u64;
        self.round_limited |= limited;
        let share = self.round_lost as f64 / (self.round_lost + self.round_acked).max(1) as f64;
        let loses = self.lost >= IGNORED_LOSSES
            && self.round_lost >= IGNORED_LOSSES / 2
            && share > MUCH_LOSS;
        if !self.rounds.on_acked(event.acked) {
            return loses;
        }
        if self.delivered >= self.plateau.scaled(GROWTH) {
            self.plateau = self.delivered;
            self.rounds_without_growth = 0;
        } else if !self.round_limited {
            self.rounds_without_growth += 1;
        }
        (self.round_acked, self.round_lost, self.round_limited) = (0, 0, false);
        loses || self.rounds_without_growth >= ROUNDS_WITHOUT_GROWTH
    }

    fn has_drained(&mut self, event: &CongestionEvent<'_>) -> bool {
        self.rounds.on_acked(event.acked);
        let since = self.drains_since.unwrap_or_default();
        let held = self.delivered.bytes_in(self.least_rtt.unwrap_or_default());
        event.in_flight_bytes <= held || self.rounds.rounds() > since + MOST_DRAIN_ROUNDS
    }

    /// Rate at which packets leave; `initial` until there is something to go by.
    pub(super) fn rate(&self, initial: Bandwidth) -> Bandwidth {
        match self.drains_since {
            Some(_) => self.delivered.scaled(DRAIN_GAIN),
            None => self.delivered.scaled(PACING_GAIN).max(initial),
        }
    }

    /// Most bytes in flight; nothing is known of that before the first round trip.
    pub(super) fn window_bytes(&self) -> Option<u64> {
        let time = self.least_rtt? + WINDOW_SLACK;
        Some(self.delivered.scaled(WINDOW_GAIN).bytes_in(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, RttSample, Time};

    const RTT: Duration = Duration::from_millis(100);
    const INITIAL: Bandwidth = Bandwidth::from_bits_per_s(1_200_000);

    /// A sender of 1500-byte packets, by the millisecond.
    struct Driver {
        start_up: Pipelined,
        sent: u64,
        acked: u64,
    }

    impl Driver {
        fn new() -> Self {
            Self { start_up: Pipelined::default(), sent: 0, acked: 0 }
        }

        fn in_flight(&self) -> u64 {
            (self.sent - self.acked) * 1500
        }

        fn send(&mut self, ms: u64) {
            self.start_up.on_sent(&SentPacket {
                number: self.sent,
                time: Time::from_nanos(ms * 1_000_000),
                bytes: 1500,
                prior_in_flight_bytes: self.in_flight(),
                has_data: true,
            });
            self.sent += 1;
        }

        /// One packet is acknowledged, and whether it took `queue` longer than the path does.
        fn ack(&mut self, ms: u64, queue: Duration) -> Option<Bandwidth> {
            let latest = RTT + queue;
            let now = Time::from_nanos(ms * 1_000_000);
            let sent = Time::from_nanos(now.as_nanos() - latest.as_nanos() as u64);
            let acked = AckedPacket { number: self.acked, sent, bytes: 1500 };
            let prior_in_flight_bytes = self.in_flight();
            self.acked += 1;
            self.start_up.on_event(&CongestionEvent {
                now,
                acked: &[acked],
                lost: &[],
                rtt: Some(RttSample { latest, smoothed: latest, variation: latest, min: RTT }),
                ecn_ce: 0,
                prior_in_flight_bytes,
                in_flight_bytes: self.in_flight(),
                app_limited: false,
            })
        }

        /// A packet leaves each millisecond and one comes back: 12 Mbit/s.
        fn steady(&mut self, from_ms: u64, to_ms: u64) {
            for ms in from_ms..to_ms {
                if ms >= 100 {
                    assert_eq!(self.ack(ms, Duration::ZERO), None);
                }
                self.send(ms);
            }
        }
    }

    #[test]
    fn it_sends_a_multiple_of_what_arrives_and_no_less_than_it_began_with() {
        let mut driver = Driver::new();
        let start_up = &driver.start_up;
        assert_eq!((start_up.rate(INITIAL), start_up.window_bytes()), (INITIAL, None));
        driver.steady(0, 250);
        let rate = driver.start_up.rate(INITIAL).mbps();
        assert!((rate - 12.0 * PACING_GAIN).abs() < 0.5, "{rate}");
        // Two round trips and the slack, of 1500 bytes a millisecond.
        let window = driver.start_up.window_bytes().expect("a round trip is known");
        assert!((320_000..=335_000).contains(&window), "{window}");
    }

    #[test]
    fn a_queue_ends_it_and_the_drain_ends_when_the_path_holds_what_is_out() {
        let mut driver = Driver::new();
        driver.steady(0, 250);
        (0..200).for_each(|_| driver.send(250));
        let queue = Duration::from_millis(30);
        for ms in 250..257 {
            assert_eq!(driver.ack(ms, queue), None);
        }
        assert!(driver.start_up.rate(INITIAL).mbps() > 30.0, "seven samples are not enough");
        assert_eq!(driver.ack(257, queue), None);
        let drain = driver.start_up.rate(INITIAL).mbps();
        assert!((drain - 6.0).abs() < 0.5, "{drain}");
        let done = (258..600).find_map(|ms| driver.ack(ms, queue)).expect("it has drained");
        assert!((done.mbps() - 12.0).abs() < 0.5, "{done}");
        assert!((148_000..=155_000).contains(&driver.in_flight()), "{}", driver.in_flight());
    }

    #[test]
    fn no_growth_for_three_rounds_ends_it() {
        let mut driver = Driver::new();
        driver.steady(0, 300);
        assert!(driver.start_up.drains_since.is_none());
        (300..800).for_each(|ms| {
            driver.ack(ms, Duration::ZERO);
            driver.send(ms);
        });
        assert!(driver.start_up.drains_since.is_some());
    }
}
