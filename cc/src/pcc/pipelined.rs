use std::time::Duration;

use crate::estimators::{RateSampler, RoundCounter};
use crate::{Bandwidth, CongestionEvent, LostPacket, SentPacket};

/// Pacing rate as a multiple of the delivery rate over the last round trip. The delivery rate lags one and a
/// half round trips, so doubling in each takes 4 ln 2 (the derivation of BBR's start-up gain).
const PACING_GAIN: f64 = 2.773;
/// Most in flight, in round trips of the delivery rate: bounds the queue by one bandwidth-delay
/// product of the path.
const WINDOW_GAIN: f64 = 2.0;
/// Further time that the window covers, for delayed acknowledgements.
const WINDOW_HEADROOM: Duration = Duration::from_millis(10);
/// Consecutive samples that must show a queue (HyStart++, RFC 9406, Section 4.3: N_RTT_SAMPLE).
const QUEUE_SAMPLES: u32 = 8;
/// A queue is an RTT of an eighth more than the least, from 4 ms up to 16 ms (RFC 9406, Section
/// 4.3: MIN_RTT_DIVISOR, MIN_RTT_THRESH, MAX_RTT_THRESH).
const MIN_RTT_DIVISOR: u32 = 8;
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
/// The peer may have delayed an acknowledgement for this many bytes (ten packets), but not for longer than
/// [`MAX_ACK_DELAY`] (RFC 9000, Section 18.2).
const MAX_ACK_DELAY_BYTES: u64 = 10 * 1350;
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// Losses that count as random (Vivace, Section 5.2.1, "initial ignorance").
const IGNORED_LOSSES: u64 = 50;
/// Share of a round's packets whose loss is not random: twice what the utilities tolerate
/// (Vivace, Section 5: 5 %).
const MAX_RANDOM_LOSS: f64 = 0.1;
/// A path is full when the delivery rate has not grown by a quarter in three rounds
/// (draft-ietf-ccwg-bbr, Section "Exiting Startup Based on Bandwidth Plateau").
const MIN_GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;
/// Pacing rate while the queue drains, as a multiple of the delivery rate (BBR.DrainPacingGain of
/// draft-ietf-ccwg-bbr).
const DRAIN_GAIN: f64 = 0.5;
/// Rounds after which the drain ends regardless of what is in flight.
/// Chosen by `the_pipelined_start_up_fills_a_satellite_link_in_ten_seconds_and_two_round_trips_of_queue`.
const MAX_DRAIN_ROUNDS: u64 = 2;

/// Start-up that follows single acknowledgements: it doubles once per round trip and not, as with one
/// interval after the other, once in two.
///
/// It ends when acknowledgements show a queue, heavy loss, or no growth. The last round trip then
/// sent too much: with a rate that doubles in each, 0.44 of the bandwidth-delay product.
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

    /// Processes acknowledgements and losses. Returns the path's delivery rate once it is known.
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
        let full = self.shows_queue(event) | self.shows_full_path(event, limited);
        if full {
            self.drains_since = Some(self.rounds.rounds());
        }
        None
    }

    fn shows_queue(&mut self, event: &CongestionEvent<'_>) -> bool {
        let Some(rtt) = event.rtt else { return false };
        let least = rtt.min.min(self.least_rtt.unwrap_or(rtt.min));
        self.least_rtt = Some(least);
        let held_back = self.delivered.time_for(MAX_ACK_DELAY_BYTES).min(MAX_ACK_DELAY);
        let queue =
            (least / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD) + held_back;
        self.queue_samples = match rtt.latest > least + queue {
            true => self.queue_samples + 1,
            false => 0,
        };
        self.queue_samples >= QUEUE_SAMPLES
    }

    /// Whether the round shows a full path: by loss at any time, by growth at its end.
    fn shows_full_path(&mut self, event: &CongestionEvent<'_>, limited: bool) -> bool {
        self.lost += event.lost.len() as u64;
        self.round_lost += event.lost.len() as u64;
        self.round_acked += event.acked.len() as u64;
        self.round_limited |= limited;
        let share = self.round_lost as f64 / (self.round_lost + self.round_acked).max(1) as f64;
        let loses = self.lost >= IGNORED_LOSSES
            && self.round_lost >= IGNORED_LOSSES / 2
            && share > MAX_RANDOM_LOSS;
        if !self.rounds.on_acked(event.acked) {
            return loses;
        }
        if self.delivered >= self.plateau.scaled(MIN_GROWTH) {
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
        event.in_flight_bytes <= held || self.rounds.rounds() > since + MAX_DRAIN_ROUNDS
    }

    /// Pacing rate; at least `initial` until the drain.
    pub(super) fn rate(&self, initial: Bandwidth) -> Bandwidth {
        match self.drains_since {
            Some(_) => self.delivered.scaled(DRAIN_GAIN),
            None => self.delivered.scaled(PACING_GAIN).max(initial),
        }
    }

    /// Most bytes in flight; `None` before the first round trip.
    pub(super) fn window_bytes(&self) -> Option<u64> {
        let time = self.least_rtt? + WINDOW_HEADROOM;
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

        /// Acknowledges one packet, which took `queue` longer than the path.
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
    fn pacing_rate_is_a_multiple_of_the_delivery_rate_and_at_least_the_initial_rate() {
        let mut driver = Driver::new();
        let start_up = &driver.start_up;
        assert_eq!((start_up.rate(INITIAL), start_up.window_bytes()), (INITIAL, None));
        driver.steady(0, 250);
        let rate = driver.start_up.rate(INITIAL).mbps();
        assert!((rate - 12.0 * PACING_GAIN).abs() < 0.5, "{rate}");
        // Two round trips and the headroom, of 1500 bytes a millisecond.
        let window = driver.start_up.window_bytes().expect("a round trip is known");
        assert!((320_000..=335_000).contains(&window), "{window}");
    }

    #[test]
    fn queue_ends_start_up_and_the_drain_ends_at_one_bdp_in_flight() {
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
    fn three_rounds_without_growth_end_start_up() {
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
