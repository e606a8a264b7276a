use std::time::Duration;

use crate::path_change::PathChange;
use crate::{Bandwidth, CongestionEvent, LostPacket, RttSample, Time};

/// Weight of the newest event in [`PathModel::loss_short`]: about the last ten events.
const LOSS_SHORT_WEIGHT: f64 = 0.1;
/// Weight of the newest event in [`PathModel::loss_long`]: about the last thousand.
const LOSS_LONG_WEIGHT: f64 = 0.001;
/// A delivery rate counts as recent for this long (the bandwidth window of
/// draft-cardwell-iccrg-bbr-congestion-control-00, Section 4.1.2, in time).
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Shortest span over which a delivery rate is measured.
const MIN_RATE_SPAN: Duration = Duration::from_millis(1);
/// A path is a new one for so many round trips, at the beginning and after it has become longer: in about as
/// many a window grows in slow start from what it begins with to what a long path holds.
const NEW_ROUND_TRIPS: u32 = 8;
/// One that has become so many times as long is another kind of path, where the rate of before is no guide. On one
/// that is not the rate goes on: who starts anew there fills the buffer, or waits.
const FAR: f64 = 4.0;
/// RTTs of five to ten seconds are those of the path where the smallest is so many times the smallest ever...
const ABOVE: f64 = 2.0;
/// ...and the largest no more than so many times the smallest. CUBIC's queue swings by 1.4 also where the buffer
/// is deepest.
const KEEPS_WITHIN: f64 = 1.2;

/// What a connection has learned of its path.
///
/// The owner of a controller keeps it, not the algorithm, so that it outlives a
/// change of algorithm and can be handed to the next one with
/// [`Controller::inherit`](crate::Controller::inherit).
#[derive(Clone, Debug, Default)]
pub struct PathModel {
    /// Smallest RTT seen; where the path has become another one, since then.
    pub min_rtt: Option<Duration>,
    /// Largest RTT seen; since then.
    pub max_rtt: Duration,
    /// Most recent RTT sample.
    pub latest_rtt: Duration,
    /// Smoothed RTT (RFC 9002, Section 5.3).
    pub smoothed_rtt: Duration,
    /// RTT variation (RFC 9002, Section 5.3).
    pub rtt_variation: Duration,
    /// Largest congestion window that was in force.
    pub max_window_bytes: u64,
    /// Congestion window in force.
    pub window_bytes: u64,
    /// Most recent delivery rate.
    pub delivery_rate: Bandwidth,
    /// Highest delivery rate of the last ten seconds.
    pub max_delivery_rate: Bandwidth,
    /// Highest delivery rate ever.
    pub peak_delivery_rate: Bandwidth,
    /// Share of packets lost, short memory.
    pub loss_short: f64,
    /// Share of packets lost, long memory.
    pub loss_long: f64,
    /// Share of packets marked ECN-CE, short memory.
    pub ecn_ce: f64,
    /// Bytes acknowledged.
    pub delivered_bytes: u64,
    /// Bytes declared lost.
    pub lost_bytes: u64,
    /// How often the path has become another one: its round trips changed at once, and for good.
    pub changes: u32,
    /// Its smallest RTT by that of the one before, when it did so at last; 0 where it never has.
    pub rtt_ratio: f64,
    path_change: PathChange,
    /// Since the last change.
    least_rtt: Option<Duration>,
    /// When the first sample came.
    first_sample: Option<Time>,
    /// When it did, if it became so long that nothing is known of it.
    unknown_since: Option<Time>,
    round_start: Time,
    round_delivered_bytes: u64,
    /// When the last packet that was acknowledged was sent, and the one when the round began.
    last_sent: Time,
    round_sent: Time,
    max_rate_seen: Time,
}

impl PathModel {
    /// Takes in an event and the window that is in force after it.
    pub fn on_event(&mut self, event: &CongestionEvent<'_>, window_bytes: u64) {
        self.window_bytes = window_bytes;
        self.max_window_bytes = self.max_window_bytes.max(window_bytes);
        if let Some(rtt) = event.rtt {
            self.first_sample.get_or_insert(event.now);
            self.max_rtt = self.max_rtt.max(rtt.latest);
            self.watch(event.now, rtt.latest);
            self.min_rtt = Some(self.smallest(&rtt));
            self.latest_rtt = rtt.latest;
            self.smoothed_rtt = rtt.smoothed;
            self.rtt_variation = rtt.variation;
        }
        let acked: u64 = event.acked.iter().map(|packet| packet.bytes).sum();
        self.delivered_bytes += acked;
        self.lost_bytes += event.lost.iter().map(|packet| packet.bytes).sum::<u64>();

        let packets = event.acked.len() + event.lost.len();
        if packets > 0 {
            let lost = event.lost.len() as f64 / packets as f64;
            self.loss_short += LOSS_SHORT_WEIGHT * (lost - self.loss_short);
            self.loss_long += LOSS_LONG_WEIGHT * (lost - self.loss_long);
            let marked = event.ecn_ce as f64 / packets as f64;
            self.ecn_ce += LOSS_SHORT_WEIGHT * (marked.min(1.0) - self.ecn_ce);
        }
        self.last_sent = event.acked.last().map_or(self.last_sent, |packet| packet.sent);
        self.measure_rate(event.now);
    }

    /// Whether the path has become another one.
    fn watch(&mut self, now: Time, rtt: Duration) {
        let Some(change) = self.path_change.on_rtt(now, rtt) else {
            self.least_rtt = self.least_rtt.map(|least| least.min(rtt));
            return;
        };
        self.changes += 1;
        self.least_rtt = Some(change.now.least);
        self.max_rtt = change.now.most;
        self.rtt_ratio = change.now.least.as_secs_f64() / change.before.as_secs_f64().max(1e-9);
        let is_far = !(1.0 / FAR..=FAR).contains(&self.rtt_ratio);
        self.unknown_since = (self.is_longer() && is_far).then_some(now);
        // Else what it carried lately is what it carries: the round trip of the change had a gap in it.
        if is_far {
            self.max_delivery_rate = self.delivery_rate;
            self.max_rate_seen = now;
        }
    }

    /// The smallest RTT of this path, of which `rtt` is the latest: of a connection that was on another one
    /// before it is not that of the connection.
    pub(crate) fn smallest(&self, rtt: &RttSample) -> Duration {
        self.least_rtt.map_or(rtt.min, |least| least.min(rtt.latest))
    }

    /// The RTT that the path has without a queue, as far as can be told: [`PathModel::min_rtt`], or what it
    /// has kept to lately, far above. A path can become longer in steps that are too small to be told from a
    /// queue; but then they stay what they are, where a queue grows and drains.
    #[must_use]
    pub fn base_rtt(&self) -> Option<Duration> {
        let min = self.min_rtt?;
        let lately = self.path_change.known().filter(|(least, most)| {
            *least > min.mul_f64(ABOVE) && *most < least.mul_f64(KEEPS_WITHIN)
        });
        Some(lately.map_or(min, |(least, _)| least))
    }

    /// What a queue that stands adds to the round trip, where that is more than `times` as long as without one.
    pub(crate) fn standing_queue(&self, times: f64) -> Option<Duration> {
        let base = self.base_rtt()?;
        (self.smoothed_rtt > base.mul_f64(times)).then(|| self.smoothed_rtt - base)
    }

    /// Whether the path became a longer one when it changed at last.
    #[must_use]
    pub fn is_longer(&self) -> bool {
        self.rtt_ratio > 1.0
    }

    /// Whether the path is new, or has just become a far longer one: what it carries is not known yet.
    #[must_use]
    pub fn is_new(&self, now: Time) -> bool {
        let since = self.unknown_since.or(self.first_sample);
        since.is_none_or(|since| now - since < self.smoothed_rtt * NEW_ROUND_TRIPS)
    }

    /// A packet that was counted as lost had only been late. The shares keep it: they are of the
    /// moment, and forget.
    pub fn on_spurious_loss(&mut self, packet: &LostPacket) {
        self.lost_bytes = self.lost_bytes.saturating_sub(packet.bytes);
        self.delivered_bytes += packet.bytes;
    }

    /// One sample a round trip: bytes delivered over the time that they took, or the time in which they were
    /// sent where that is longer. Acknowledgements that come all at once, as where a path becomes shorter, say
    /// nothing of a rate (draft-cheng-iccrg-delivery-rate-estimation-02).
    fn measure_rate(&mut self, now: Time) {
        if self.round_start == Time::ZERO {
            self.round_start = now;
            self.round_sent = self.last_sent;
            self.round_delivered_bytes = self.delivered_bytes;
            return;
        }
        let span = now - self.round_start;
        if span < self.smoothed_rtt.max(MIN_RATE_SPAN) {
            return;
        }
        let span = span.max(self.last_sent - self.round_sent);
        let bytes = self.delivered_bytes - self.round_delivered_bytes;
        self.delivery_rate = Bandwidth::from_bytes_and_time(bytes, span);
        self.peak_delivery_rate = self.peak_delivery_rate.max(self.delivery_rate);
        if self.delivery_rate >= self.max_delivery_rate || now - self.max_rate_seen > RATE_WINDOW {
            self.max_delivery_rate = self.delivery_rate;
            self.max_rate_seen = now;
        }
        self.round_start = now;
        self.round_sent = self.last_sent;
        self.round_delivered_bytes = self.delivered_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, RttSample};

    fn event<'a>(ms: u64, acked: &'a [AckedPacket], lost: &'a [LostPacket]) -> CongestionEvent<'a> {
        let rtt = Duration::from_millis(10);
        CongestionEvent {
            now: Time::from_nanos(ms * 1_000_000),
            acked,
            lost,
            rtt: Some(RttSample { latest: rtt, smoothed: rtt, variation: rtt / 2, min: rtt }),
            ecn_ce: 0,
            prior_in_flight_bytes: 0,
            in_flight_bytes: 0,
            app_limited: false,
        }
    }

    #[test]
    fn the_delivery_rate_is_what_was_acknowledged() {
        let mut path = PathModel::default();
        for ms in 1..=200 {
            let acked = [AckedPacket { number: ms, sent: Time::ZERO, bytes: 1500 }];
            path.on_event(&event(ms, &acked, &[]), 30_000);
        }
        let mbps = path.delivery_rate.mbps();
        assert!((mbps - 12.0).abs() < 0.01, "{mbps}");
        assert_eq!(path.delivered_bytes, 300_000);
        assert_eq!(path.max_window_bytes, 30_000);
        assert_eq!(path.loss_long, 0.0);
    }

    /// A packet each ms, and a path that is 100 ms long and then 10 ms: what had left in 90 ms comes at once.
    #[test]
    fn acknowledgements_that_come_at_once_are_no_rate() {
        let mut path = PathModel::default();
        for ms in 1..=1000_u64 {
            let arrived = match ms {
                ..500 => ms.saturating_sub(100)..ms.saturating_sub(99),
                500 => 400..491,
                _ => ms - 10..ms - 9,
            };
            let acked: Vec<_> = arrived
                .map(|sent| AckedPacket {
                    number: sent,
                    sent: Time::from_nanos(sent * 1_000_000),
                    bytes: 1500,
                })
                .collect();
            path.on_event(&event(ms, &acked, &[]), 30_000);
        }
        let mbps = path.max_delivery_rate.mbps();
        assert!(mbps > 11.9 && mbps < 13.5, "{mbps}");
    }

    #[test]
    fn a_round_trip_that_crept_up_and_stays_is_the_paths_and_a_queue_is_not() {
        let base_ms = |rtt_ms: &dyn Fn(u64) -> u64| {
            let mut path = PathModel::default();
            for ms in (0..30_000).step_by(10) {
                let latest = Duration::from_millis(rtt_ms(ms));
                let rtt = RttSample {
                    latest,
                    smoothed: latest,
                    variation: latest / 2,
                    min: Duration::from_millis(20),
                };
                path.on_event(&CongestionEvent { rtt: Some(rtt), ..event(ms, &[], &[]) }, 30_000);
            }
            assert_eq!(path.changes, 0);
            path.base_rtt().map(|rtt| rtt.as_millis())
        };
        let crept = |ms: u64| 20 + (ms / 100).min(80);
        assert_eq!(base_ms(&crept), Some(100));
        // From 70 to 100 ms in each two seconds.
        let queue = |ms: u64| if ms < 5000 { 20 + ms / 100 } else { 70 + ms % 2000 * 15 / 1000 };
        assert_eq!(base_ms(&queue), Some(20));
        assert_eq!(base_ms(&|_| 20), Some(20));
        assert_eq!(PathModel::default().base_rtt(), None);
    }

    #[test]
    fn loss_moves_the_short_memory_first() {
        let mut path = PathModel::default();
        let lost = [LostPacket { number: 1, sent: Time::ZERO, bytes: 1500 }];
        for ms in 1..=10 {
            path.on_event(&event(ms, &[], &lost), 30_000);
        }
        assert!(path.loss_short > 0.6 && path.loss_short < 0.7, "{}", path.loss_short);
        assert!(path.loss_long < 0.02, "{}", path.loss_long);
        assert_eq!(path.lost_bytes, 15_000);
    }

    #[test]
    fn an_old_maximum_gives_way() {
        let mut path = PathModel::default();
        for ms in 1..=12_000_u64 {
            let bytes = if ms < 1000 { 1500 } else { 150 };
            let acked = [AckedPacket { number: ms, sent: Time::ZERO, bytes }];
            path.on_event(&event(ms, &acked, &[]), 30_000);
        }
        assert!((path.max_delivery_rate.mbps() - 1.2).abs() < 0.01, "{}", path.max_delivery_rate);
        assert!((path.peak_delivery_rate.mbps() - 12.0).abs() < 0.01);
    }
}
