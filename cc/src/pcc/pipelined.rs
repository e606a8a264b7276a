use std::time::Duration;

use super::growth_window::GrowthWindow;
use crate::estimators::{RateSampler, RoundCounter};
use crate::{Bandwidth, CongestionEvent, LostPacket, SentPacket};

/// Least and largest pacing rate, as a multiple of the delivery rate over the last round trip. The delivery rate lags one
/// and a half round trips, so growth by g in each takes g^2 ln g / (g - 1): 4 ln 2 to double (the derivation of BBR's
/// start-up gain), 3.29 for that of the window.
const MIN_PACING_GAIN: f64 = 2.773;
const MAX_PACING_GAIN: f64 = 3.29;
/// Least window, in round trips of the delivery rate: what is in flight while it doubles.
const MIN_WINDOW_GAIN: f64 = 2.0;
/// Largest window, in round trips of the delivery rate: bounds the queue where no RTT shows it.
const MAX_WINDOW_GAIN: f64 = 3.0;
/// Rounds before the delivery rate bounds the window: it counts the pause after the initial window.
const UNBOUNDED_ROUNDS: u64 = 1;
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
/// Share of a round's packets whose loss is not random: twice what the utilities tolerate
/// (Vivace, Section 5: 5 %), if the share is above that by [`LOSS_ERRORS`] of its standard errors.
const MAX_RANDOM_LOSS: f64 = 0.1;
const LOSS_ERRORS: f64 = 2.0;
/// Least losses that say so: a first acknowledgement may bring several at once.
const MIN_LOSSES: u64 = 8;
/// A path is full when the delivery rate has not grown by a quarter in three rounds
/// (draft-ietf-ccwg-bbr, Section "Exiting Startup Based on Bandwidth Plateau").
const MIN_GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;
/// Pacing rate while the queue drains, as a multiple of the delivery rate (BBR.DrainPacingGain of
/// draft-ietf-ccwg-bbr).
const DRAIN_GAIN: f64 = 0.5;
/// Rounds after which the drain ends regardless of what is in flight.
/// Chosen by `start_up_by_acknowledgements_overshoots_by_less_than_a_round_trip_of_queue`.
const MAX_DRAIN_ROUNDS: u64 = 2;

/// What start-up found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FoundRate {
    /// The delivery rate.
    pub(super) rate: Bandwidth,
    /// The queue still stands after the drain: it is of other flows.
    pub(super) is_of_others: bool,
}

/// Start-up that follows single acknowledgements: its window grows in each round trip and not, as with one
/// interval after the other, in each second one.
///
/// It ends when acknowledgements show a queue, heavy loss, or no growth. The last round trip then
/// sent too much: with a rate that grows by 2.25 in each, 0.54 of the bandwidth-delay product.
#[derive(Debug, Default)]
pub(super) struct Pipelined {
    sampler: RateSampler,
    rounds: RoundCounter,
    least_rtt: Option<Duration>,
    delivered: Bandwidth,
    queue_samples: u32,
    round_acked: u64,
    round_lost: u64,
    round_limited: bool,
    rounds_without_growth: u32,
    plateau: Bandwidth,
    drains_since: Option<u64>,
    growth: GrowthWindow,
    /// The first packet of this start-up: what became of earlier ones says nothing of it.
    first_number: Option<u64>,
    smoothed_rtt: Option<Duration>,
}

impl Pipelined {
    pub(super) fn new(initial_window_bytes: u64) -> Self {
        Self { growth: GrowthWindow::new(initial_window_bytes), ..Self::default() }
    }

    pub(super) fn on_sent(&mut self, packet: &SentPacket) {
        self.first_number.get_or_insert(packet.number);
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
    pub(super) fn on_event(&mut self, event: &CongestionEvent<'_>) -> Option<FoundRate> {
        let first = self.first_number?;
        let acked = event.acked.partition_point(|packet| packet.number < first);
        let lost = event.lost.partition_point(|packet| packet.number < first);
        let (acked, lost) = (&event.acked[acked..], &event.lost[lost..]);
        let event = &CongestionEvent { acked, lost, ..*event };
        for packet in event.lost {
            self.sampler.on_lost(packet);
        }
        let sample = self.sampler.on_acked(event);
        let limited = sample.is_some_and(|sample| sample.app_limited);
        if let Some(rate) = sample.and_then(|sample| sample.rate) {
            self.delivered = self.delivered.max(rate);
        }
        if self.drains_since.is_some() {
            return self.drain(event);
        }
        self.smoothed_rtt = event.rtt.map(|rtt| rtt.smoothed).or(self.smoothed_rtt);
        let full = self.shows_queue(event) | self.shows_full_path(event, limited);
        self.growth.on_event(event, self.rounds.rounds());
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
        self.round_lost += event.lost.len() as u64;
        self.round_acked += event.acked.len() as u64;
        self.round_limited |= limited;
        let packets = (self.round_lost + self.round_acked).max(1) as f64;
        let share = self.round_lost as f64 / packets;
        let error = (share * (1.0 - share) / packets).sqrt();
        let loses = self.round_lost >= MIN_LOSSES && share - LOSS_ERRORS * error > MAX_RANDOM_LOSS;
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

    /// Waits until one bandwidth-delay product is in flight. Where that and the RTT stay larger, the queue is of other
    /// flows.
    fn drain(&mut self, event: &CongestionEvent<'_>) -> Option<FoundRate> {
        self.rounds.on_acked(event.acked);
        let since = self.drains_since.unwrap_or_default();
        let held = self.delivered.bytes_in(self.least_rtt.unwrap_or_default());
        let has_drained = event.in_flight_bytes <= held;
        let is_of_others = self.shows_queue(event) && !has_drained;
        let ends = has_drained || self.rounds.rounds() > since + MAX_DRAIN_ROUNDS;
        ends.then_some(FoundRate { rate: self.delivered, is_of_others })
    }

    /// Pacing rate; at least `initial` until the drain, and at least `least` in it: without a sample the delivery rate is
    /// zero.
    pub(super) fn rate(&self, initial: Bandwidth, least: Bandwidth) -> Bandwidth {
        if self.drains_since.is_some() {
            return self.delivered.scaled(DRAIN_GAIN).max(least);
        }
        let of_window = self.smoothed_rtt.map_or(Bandwidth::ZERO, |rtt| self.growth.rate(rtt));
        let slowest = self.delivered.scaled(MIN_PACING_GAIN);
        let fastest = self.of_delivery_rate(MAX_PACING_GAIN).unwrap_or(of_window);
        of_window.min(fastest).max(slowest).max(initial)
    }

    /// `gain` times the delivery rate, once it bounds start-up.
    fn of_delivery_rate(&self, gain: f64) -> Option<Bandwidth> {
        (self.rounds.rounds() > UNBOUNDED_ROUNDS).then(|| self.delivered.scaled(gain))
    }

    /// Most bytes in flight; `None` before the first round trip.
    pub(super) fn window_bytes(&self) -> Option<u64> {
        let time = self.least_rtt? + WINDOW_HEADROOM;
        let least = self.delivered.scaled(MIN_WINDOW_GAIN).bytes_in(time);
        let most = self.of_delivery_rate(MAX_WINDOW_GAIN).map_or(u64::MAX, |it| it.bytes_in(time));
        Some(self.growth.bytes().min(most).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, RttSample, Time};

    const RTT: Duration = Duration::from_millis(100);
    const INITIAL: Bandwidth = Bandwidth::from_bits_per_s(1_200_000);
    const LEAST: Bandwidth = Bandwidth::from_bits_per_s(20_000);

    /// A sender of 1500-byte packets, by the millisecond.
    struct Driver {
        start_up: Pipelined,
        sent: u64,
        acked: u64,
    }

    impl Driver {
        fn new() -> Self {
            Self { start_up: Pipelined::new(15_000), sent: 0, acked: 0 }
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
        fn ack(&mut self, ms: u64, queue: Duration) -> Option<FoundRate> {
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
    fn window_is_two_round_trips_of_the_delivery_rate_at_least() {
        let mut driver = Driver::new();
        let start_up = &driver.start_up;
        assert_eq!((start_up.rate(INITIAL, LEAST), start_up.window_bytes()), (INITIAL, None));
        driver.steady(0, 250);
        // Two round trips and the headroom, of 1500 bytes a millisecond.
        let window = driver.start_up.window_bytes().expect("a round trip is known");
        assert!((320_000..=335_000).contains(&window), "{window}");
        // And 2.77 times the delivery rate, which is 12 Mbit/s.
        let rate = driver.start_up.rate(INITIAL, LEAST).mbps();
        assert!((32.0..=40.0).contains(&rate), "{rate}");
    }

    #[test]
    fn initial_window_grows_by_what_is_acknowledged_whatever_the_delivery_rate() {
        let mut driver = Driver::new();
        (0..10).for_each(|_| driver.send(0));
        for acked in 1..=10 {
            driver.ack(100, Duration::ZERO);
            assert_eq!(driver.start_up.window_bytes(), Some(15_000 + acked * 1875));
        }
    }

    #[test]
    fn short_round_trips_do_not_raise_the_pacing_rate() {
        // The headroom of the window is ten of them.
        let mut driver = Driver::new();
        driver.steady(0, 300);
        driver.start_up.least_rtt = Some(RTT / 100);
        driver.start_up.smoothed_rtt = Some(RTT / 100);
        let rate = driver.start_up.rate(INITIAL, LEAST).mbps();
        assert!(rate <= 12.1 * MAX_PACING_GAIN, "{rate}");
    }

    #[test]
    fn window_is_three_round_trips_of_the_delivery_rate_at_most() {
        let mut driver = Driver::new();
        // A packet each millisecond comes back, four leave.
        for ms in 0..400 {
            if ms >= 100 {
                driver.ack(ms, Duration::ZERO);
            }
            (0..if ms < 100 { 1 } else { 4 }).for_each(|_| driver.send(ms));
        }
        let window = driver.start_up.window_bytes().expect("a round trip is known");
        assert!((480_000..=500_000).contains(&window), "{window}");
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
        assert!(driver.start_up.rate(INITIAL, LEAST).mbps() > 25.0, "seven samples are not enough");
        assert_eq!(driver.ack(257, queue), None);
        let drain = driver.start_up.rate(INITIAL, LEAST).mbps();
        assert!((drain - 6.0).abs() < 0.5, "{drain}");
        let done = (258..600).find_map(|ms| driver.ack(ms, queue)).expect("it has drained");
        assert!((done.rate.mbps() - 12.0).abs() < 0.5 && !done.is_of_others, "{done:?}");
        assert!((148_000..=155_000).contains(&driver.in_flight()), "{}", driver.in_flight());
    }

    #[test]
    fn drain_without_a_delivery_rate_is_at_the_least_rate() {
        let mut driver = Driver::new();
        (0..10).for_each(|_| driver.send(0));
        // All in the first round trip: no interval is long enough for a rate.
        driver.ack(100, Duration::ZERO);
        driver.start_up.delivered = Bandwidth::ZERO;
        driver.start_up.drains_since = Some(1);
        assert_eq!(driver.start_up.rate(INITIAL, LEAST), LEAST);
    }

    /// The first `packets` are lost, and `in_flight_bytes` are left.
    fn lose(driver: &mut Driver, packets: u64, in_flight_bytes: u64) {
        let lost: Vec<_> = (0..packets)
            .map(|number| LostPacket { number, sent: Time::ZERO, bytes: 1500 })
            .collect();
        driver.start_up.on_event(&CongestionEvent {
            now: Time::from_nanos(100_000_000),
            acked: &[],
            lost: &lost,
            rtt: None,
            ecn_ce: 0,
            prior_in_flight_bytes: in_flight_bytes + 1500 * packets,
            in_flight_bytes,
            app_limited: false,
        });
    }

    #[test]
    fn loss_that_is_surely_above_a_tenth_ends_start_up() {
        for (lost, ends) in [(4, false), (7, false), (12, true)] {
            let mut driver = Driver::new();
            (0..41).for_each(|_| driver.send(0));
            driver.acked = lost;
            (lost..40).for_each(|_| _ = driver.ack(100, Duration::ZERO));
            lose(&mut driver, lost, 1500);
            assert_eq!(driver.start_up.drains_since.is_some(), ends, "{lost}");
        }
    }

    #[test]
    fn losses_of_packets_sent_before_do_not_end_start_up() {
        let mut driver = Driver::new();
        driver.sent = 100;
        (0..10).for_each(|_| driver.send(0));
        lose(&mut driver, 100, 15_000);
        assert!(driver.start_up.drains_since.is_none());
    }

    #[test]
    fn queue_that_outlasts_the_drain_is_of_others() {
        let mut driver = Driver::new();
        driver.steady(0, 250);
        let queue = Duration::from_millis(30);
        // As much leaves as arrives: two bandwidth-delay products stay in flight.
        (0..100).for_each(|_| driver.send(250));
        let done = (250..900).find_map(|ms| {
            driver.send(ms);
            driver.ack(ms, queue)
        });
        let done = done.expect("two round trips are over");
        assert!(done.is_of_others, "{done:?}");
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
