use std::time::Duration;

use super::PeakInFlight;
use crate::{CongestionEvent, Time};

// No paper has these thresholds; docs/research/cc/pcc.md (Bound of what is in flight) has measurements.

/// A loss counts as the overflow of a buffer if the RTT around it is more than this multiple of the base RTT, and
/// [`MIN_QUEUE`] more. Elsewhere it may be random.
const QUEUE_RTT_RATIO: f64 = 1.25;
const MIN_QUEUE: Duration = Duration::from_millis(5);
/// Least bound, in packets (RFC 9002, Section 7.2 has two; four allow fast retransmission).
const MIN_PACKETS: f64 = 4.0;
/// Least first bound, in packets (RFC 9002, Section 7.2).
const INITIAL_PACKETS: f64 = 10.0;
/// The bound grows only while this share of it is in use (RFC 7661, Section 4.4).
const USED_FRACTION: f64 = 0.75;

/// Factor of the growth after each further severe overflow that comes before the last one is forgotten.
const CAUTION: f64 = 0.3;
const MIN_CAUTION: f64 = 0.1;

/// Share of the acknowledged bytes by which the bound grows while there is no queue: by half in a round trip.
const GROWTH: f64 = 0.5;
/// The bound is at most this multiple of the window.
const MAX_WINDOW_RATIO: f64 = 1.5;

/// Bounds the bytes in flight by what the path has held without loss.
///
/// Rates alone say nothing of a buffer: a link that falls to a tenth of its rate drops what is in flight beyond its
/// buffer, again with each fall. While RTTs show no queue the bound grows fast; with a queue, and for some time after an
/// overflow, by a packet or so in a round trip, as in TCP (RFC 5681, Section 3.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossWindow {
    config: LossWindowConfig,
    queued: bool,
    /// The base RTT and the RTT from which on a queue stands.
    queue_limit: (Duration, Duration),
    /// `None` before it begins.
    bound_bytes: Option<f64>,
    overflow: Option<Overflow>,
    peak: PeakInFlight,
    /// When the path was last out of contact: losses of packets sent before show no overflow.
    timeout: Option<Time>,
    severe: Option<SevereOverflow>,
    /// When a queue was last drained on purpose: RTTs that show none say nothing of the path then.
    drained: Option<Time>,
}

/// Severe overflows, each soon after the one before.
#[derive(Clone, Copy, Debug)]
struct SevereOverflow {
    /// The last one.
    since: Time,
    /// Factor of the growth.
    caution: f64,
}

/// Settings of a [`LossWindow`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossWindowConfig {
    /// How long an overflow is remembered.
    pub(crate) memory: Duration,
    /// Packets by which the bound grows in a round trip with a queue.
    pub(crate) growth_packets: f64,
    /// The bound after an overflow, as a share of what was in flight and not lost: below the queue that overflowed.
    pub(crate) decrease: f64,
    /// An overflow is severe if more than this share of what was in flight is lost: the link has become slower.
    pub(crate) severe_loss: f64,
    /// Whether the bound begins with the first queue, or with the first overflow.
    pub(crate) from_first_queue: bool,
}

#[derive(Clone, Copy, Debug)]
struct Overflow {
    /// Losses of packets sent before belong to it.
    since: Time,
    in_flight_bytes: f64,
    lost_bytes: f64,
}

impl LossWindow {
    pub(crate) fn new(config: LossWindowConfig) -> Self {
        Self {
            config,
            queued: false,
            queue_limit: (Duration::ZERO, MIN_QUEUE),
            bound_bytes: None,
            overflow: None,
            peak: PeakInFlight::default(),
            timeout: None,
            severe: None,
            drained: None,
        }
    }

    /// Processes acknowledgements and losses of a path with a base RTT; `window_bytes` is the window without a bound.
    pub(crate) fn on_event(
        &mut self,
        event: &CongestionEvent<'_>,
        base_rtt: Duration,
        window_bytes: u64,
        mtu_bytes: u64,
    ) {
        if let Some(rtt) = event.rtt {
            // The base RTT seldom changes, and `mul_f64` is slow.
            if base_rtt != self.queue_limit.0 {
                let limit = base_rtt.mul_f64(QUEUE_RTT_RATIO).max(base_rtt + MIN_QUEUE);
                self.queue_limit = (base_rtt, limit);
            }
            self.queued = rtt.latest.min(rtt.smoothed) > self.queue_limit.1;
        }
        let smoothed = event.rtt.map(|rtt| rtt.smoothed);
        self.peak.add(event.now, smoothed, event.prior_in_flight_bytes);
        let in_flight = self.peak.get();
        let mtu = mtu_bytes as f64;
        let timeout = self.timeout;
        let lost = || event.lost.iter().filter(move |it| timeout.is_none_or(|at| it.sent > at));
        let mut bound = match self.bound_bytes {
            Some(bound) => bound,
            None if self.queued && (self.config.from_first_queue || lost().next().is_some()) => {
                in_flight.max(INITIAL_PACKETS * mtu)
            }
            None => return,
        };
        for packet in lost() {
            match &mut self.overflow {
                Some(overflow) if packet.sent <= overflow.since => {
                    overflow.lost_bytes += packet.bytes as f64;
                }
                _ if self.queued => {
                    let lost_bytes = packet.bytes as f64;
                    let since = event.now;
                    self.overflow =
                        Some(Overflow { since, in_flight_bytes: in_flight, lost_bytes });
                }
                _ => continue,
            }
            if let Some(overflow) = &self.overflow {
                bound = bound
                    .min(self.config.decrease * (overflow.in_flight_bytes - overflow.lost_bytes));
            }
        }
        self.count_severe();
        let least = MIN_PACKETS * mtu;
        // The small window after a timeout says nothing of the path.
        let most = match self.timeout.is_some_and(|at| event.now.since(at) < self.config.memory) {
            true => f64::INFINITY,
            false => MAX_WINDOW_RATIO * window_bytes as f64,
        };
        bound = bound.max(least);
        bound += self.growth(event, bound, mtu);
        self.bound_bytes = Some(bound.min(most).max(least));
    }

    fn count_severe(&mut self) {
        let Some(overflow) = self.overflow else { return };
        let counted = self.severe.filter(|severe| severe.since == overflow.since);
        let is_severe = overflow.lost_bytes > self.config.severe_loss * overflow.in_flight_bytes;
        if !is_severe || counted.is_some() {
            return;
        }
        let before = self.severe.filter(|it| overflow.since.since(it.since) < self.config.memory);
        let caution = before.map_or(1.0, |it| (CAUTION * it.caution).max(MIN_CAUTION));
        self.severe = Some(SevereOverflow { since: overflow.since, caution });
    }

    fn caution(&self, now: Time) -> f64 {
        let known = self.severe.filter(|severe| now.since(severe.since) < self.config.memory);
        known.map_or(1.0, |severe| severe.caution)
    }

    fn growth(&self, event: &CongestionEvent<'_>, bound: f64, mtu: f64) -> f64 {
        if (event.prior_in_flight_bytes as f64) < USED_FRACTION * bound {
            return 0.0;
        }
        let after = |sent: Time| self.overflow.is_none_or(|overflow| sent > overflow.since);
        let acked: u64 =
            event.acked.iter().filter(|packet| after(packet.sent)).map(|packet| packet.bytes).sum();
        let acked = acked as f64;
        let is_recent = |at: Time| event.now.since(at) < self.config.memory;
        let drained = self.drained.is_some_and(is_recent);
        match self.queued || drained || self.has_overflowed(event.now) {
            true => self.caution(event.now) * self.config.growth_packets * mtu * acked / bound,
            false => GROWTH * acked,
        }
    }

    /// A timeout: nothing came back, so that an outage or a pause explains what is lost, and not a full buffer.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        self.timeout = Some(now);
    }

    /// The sender has drained a queue: growth is as with a queue for some time.
    pub(crate) fn on_drained(&mut self, now: Time) {
        self.drained = Some(now);
    }

    /// The path has become longer, or another one: what it holds is unknown.
    pub(crate) fn forget(&mut self) {
        *self = Self { timeout: self.timeout, ..Self::new(self.config) };
    }

    /// `window_bytes`, bounded.
    pub(crate) fn bound(&self, window_bytes: u64) -> u64 {
        self.bound_bytes.map_or(window_bytes, |bound| window_bytes.min(bound as u64))
    }

    /// Whether an overflow is remembered.
    pub(crate) fn has_overflowed(&self, now: Time) -> bool {
        self.overflow.is_some_and(|overflow| now.since(overflow.since) < self.config.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, LostPacket, RttSample};

    const MTU: u64 = 1350;
    const BASE: Duration = Duration::from_millis(40);
    const WINDOW: u64 = 400 * MTU;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// An acknowledgement of `acked` packets and the loss of `lost`, sent at `sent_ms`, with a round trip of `rtt_ms`.
    fn event(
        window: &mut LossWindow,
        (now_ms, sent_ms, rtt_ms): (u64, u64, u64),
        (acked, lost): (u64, u64),
        in_flight_packets: u64,
    ) {
        let rtt = Duration::from_millis(rtt_ms);
        let sample = RttSample { latest: rtt, smoothed: rtt, variation: rtt, min: BASE };
        let sent = at(sent_ms);
        let acked: Vec<_> =
            (0..acked).map(|number| AckedPacket { number, sent, bytes: MTU }).collect();
        let lost: Vec<_> =
            (0..lost).map(|number| LostPacket { number, sent, bytes: MTU }).collect();
        let event = CongestionEvent {
            now: at(now_ms),
            acked: &acked,
            lost: &lost,
            rtt: Some(sample),
            ecn_ce: 0,
            prior_in_flight_bytes: in_flight_packets * MTU,
            in_flight_bytes: in_flight_packets * MTU,
            app_limited: false,
        };
        window.on_event(&event, BASE, WINDOW, MTU);
    }

    fn packets(window: &LossWindow) -> u64 {
        window.bound(WINDOW) / MTU
    }

    const CONFIG: LossWindowConfig = LossWindowConfig {
        memory: Duration::from_secs(10),
        growth_packets: 1.0,
        decrease: 0.85,
        severe_loss: 0.2,
        from_first_queue: true,
    };

    fn window() -> LossWindow {
        LossWindow::new(CONFIG)
    }

    #[test]
    fn losses_without_a_queue_bound_nothing() {
        let mut window = window();
        event(&mut window, (100, 60, 44), (1, 50), 400);
        assert_eq!(packets(&window), 400);
    }

    #[test]
    fn an_overflow_leaves_what_was_not_lost() {
        let mut window = window();
        event(&mut window, (200, 100, 100), (1, 100), 400);
        assert_eq!(packets(&window), 255, "0.85 of 300");
        event(&mut window, (210, 110, 100), (1, 200), 300);
        assert_eq!(packets(&window), 85, "losses of the same round trip add up");
        event(&mut window, (400, 300, 40), (0, 1), 85);
        assert_eq!(packets(&window), 85, "a random loss later");
        event(&mut window, (600, 550, 40), (0, 0), 85);
        event(&mut window, (700, 650, 100), (0, 85), 85);
        assert_eq!(packets(&window), 4, "the least");
    }

    #[test]
    fn the_bound_grows_by_a_packet_in_a_round_trip_and_fast_when_the_overflow_is_old() {
        let mut window = window();
        event(&mut window, (200, 100, 100), (1, 300), 400);
        assert_eq!(packets(&window), 85);
        for round in 0..10 {
            let now = 300 + 40 * round;
            event(&mut window, (now, now - 40, 40), (85, 0), 85);
        }
        assert_eq!(packets(&window), 94);
        event(&mut window, (20_000, 19_960, 40), (50, 0), 20);
        assert_eq!(packets(&window), 94, "not in use");
        for round in 0..5 {
            let now = 20_000 + 40 * round;
            event(&mut window, (now, now - 40, 40), (80, 0), 90 + 40 * round);
        }
        assert_eq!(packets(&window), 294, "half of what is acknowledged");
        assert!(window.has_overflowed(at(10_100)) && !window.has_overflowed(at(10_300)));
    }

    #[test]
    fn losses_after_a_timeout_of_what_was_sent_before_it_are_no_overflow() {
        let mut window = window();
        event(&mut window, (100, 60, 60), (80, 0), 200);
        window.on_timeout(at(500));
        event(&mut window, (2_000, 400, 100), (1, 150), 200);
        assert_eq!(packets(&window), 200);
        event(&mut window, (2_100, 2_000, 100), (1, 100), 200);
        assert_eq!(packets(&window), 85, "0.85 of 100");
    }

    #[test]
    fn growth_is_slower_after_each_severe_overflow_until_they_are_old() {
        let mut window = window();
        let mut grown = |start_ms: u64| {
            event(&mut window, (start_ms, start_ms - 40, 100), (1, 50), 100);
            let before = packets(&window);
            for round in 0..20 {
                let now = start_ms + 100 + 100 * round;
                event(&mut window, (now, now - 50, 100), (50, 0), 60);
            }
            packets(&window) - before
        };
        let (first, second, third) = (grown(1_000), grown(5_000), grown(9_000));
        assert!(second < first / 2 && third < second, "{first} {second} {third} packets");
        assert_eq!(grown(60_000), first);
    }

    #[test]
    fn the_bound_begins_with_the_first_queue_and_follows_a_smaller_window() {
        let mut window = window();
        event(&mut window, (100, 60, 40), (80, 0), 200);
        assert_eq!(packets(&window), 400);
        event(&mut window, (200, 100, 60), (100, 0), 100);
        assert_eq!(packets(&window), 200, "the most in flight of the last two round trips");
        window.on_event(&no_event(), BASE, 20 * MTU, MTU);
        assert_eq!(window.bound_bytes, Some(30.0 * MTU as f64), "half as much again as the window");
    }

    #[test]
    fn a_queue_that_was_drained_on_trial_does_not_let_the_bound_grow_fast() {
        let grown = |drained: bool| {
            let mut window = window();
            event(&mut window, (200, 100, 100), (100, 0), 100);
            if drained {
                window.on_drained(at(300));
            }
            for round in 0..10 {
                let now = 400 + 40 * round;
                event(&mut window, (now, now - 40, 40), (80, 0), 100);
            }
            packets(&window)
        };
        assert_eq!((grown(true), grown(false)), (108, 141));
    }

    #[test]
    fn nothing_bounds_after_the_path_has_become_longer() {
        let mut window = LossWindow::new(LossWindowConfig { from_first_queue: false, ..CONFIG });
        event(&mut window, (200, 100, 100), (1, 300), 400);
        assert_eq!(packets(&window), 85);
        window.forget();
        assert_eq!(packets(&window), 400);
        assert!(!window.has_overflowed(at(300)));
    }

    #[test]
    fn the_loss_of_a_last_packet_does_not_bound_by_what_is_in_flight_then() {
        let mut window = LossWindow::new(LossWindowConfig { from_first_queue: false, ..CONFIG });
        event(&mut window, (100, 60, 60), (40, 0), 80);
        assert_eq!(window.bound_bytes, None, "no overflow");
        event(&mut window, (150, 90, 60), (1, 1), 2);
        assert_eq!(packets(&window), 67, "0.85 of 79");
    }

    fn no_event() -> CongestionEvent<'static> {
        CongestionEvent {
            now: at(400),
            acked: &[],
            lost: &[],
            rtt: None,
            ecn_ce: 0,
            prior_in_flight_bytes: 0,
            in_flight_bytes: 0,
            app_limited: false,
        }
    }
}
