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
/// Round trips for which a path epoch counts as uncharacterised. About as many as slow start needs from the initial
/// window to what a long path holds.
const UNCHARACTERISED_RTTS: u32 = 8;
/// From this ratio of RTTs on, up or down, the delivery rate before a path change says nothing about the path after it.
/// Below it the controller keeps its rate: a new start would overshoot or underuse the path.
/// Measured in docs/research/mcc.md (RTSP streams with a varying round trip).
const DISTINCT_PATH_RATIO: f64 = 4.0;
/// The baseline RTT replaces the smallest RTT if its minimum is more than this multiple of the smallest RTT...
/// Chosen by `base_rtt_follows_a_slow_rtt_increase_but_not_a_queue`.
const BASELINE_SHIFT: f64 = 2.0;
/// ...and its maximum less than this multiple of its minimum. CUBIC's queue varies by 1.4 even in the deepest buffer.
const MAX_SPREAD: f64 = 1.2;

/// What a connection has learned of its path.
///
/// The owner of a controller keeps it, not the algorithm, so that it outlives a
/// change of algorithm and can be handed to the next one with
/// [`Controller::init_from_path`](crate::Controller::init_from_path).
///
/// A path epoch lasts from one path change (RTT step) to the next.
#[derive(Clone, Debug, Default)]
pub struct PathModel {
    /// Smallest RTT of this path epoch.
    pub min_rtt: Option<Duration>,
    /// Largest RTT of this path epoch.
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
    /// Path changes so far: RTT steps that persisted.
    pub path_changes: u32,
    /// RTT after the latest path change over the RTT before it; 0 without a path change.
    pub rtt_ratio: f64,
    path_change: PathChange,
    /// Smallest RTT since the latest path change; `None` without one.
    epoch_min_rtt: Option<Duration>,
    /// When the first sample came.
    first_sample: Option<Time>,
    /// When the latest path change came, if it made the path so long that its rate is unknown.
    unknown_since: Option<Time>,
    round_start: Time,
    round_delivered_bytes: u64,
    /// When the packet that was acknowledged last was sent.
    last_sent: Time,
    /// `last_sent` at the start of the round.
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
            self.detect_path_change(event.now, rtt.latest);
            self.min_rtt = Some(self.path_min_rtt(&rtt));
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

    /// Starts a new path epoch if the sample confirms a path change.
    fn detect_path_change(&mut self, now: Time, rtt: Duration) {
        let Some(change) = self.path_change.on_rtt(now, rtt) else {
            self.epoch_min_rtt = self.epoch_min_rtt.map(|least| least.min(rtt));
            return;
        };
        self.path_changes += 1;
        self.epoch_min_rtt = Some(change.now.least);
        self.max_rtt = change.now.most;
        self.rtt_ratio = change.now.least.as_secs_f64() / change.before.as_secs_f64().max(1e-9);
        let is_distinct =
            !(1.0 / DISTINCT_PATH_RATIO..=DISTINCT_PATH_RATIO).contains(&self.rtt_ratio);
        self.unknown_since = (self.is_longer() && is_distinct).then_some(now);
        // On a similar path the recent rate stays valid; the round trip of the change itself has a gap.
        if is_distinct {
            self.max_delivery_rate = self.delivery_rate;
            self.max_rate_seen = now;
        }
    }

    /// The smallest RTT of this path epoch, given the latest sample `rtt`. After a path change it differs from the
    /// connection's.
    pub(crate) fn path_min_rtt(&self, rtt: &RttSample) -> Duration {
        self.epoch_min_rtt.map_or(rtt.min, |least| least.min(rtt.latest))
    }

    /// Estimate of the path's RTT without a queue: [`PathModel::min_rtt`], or a steady RTT well above it.
    /// A path can become longer in steps that are too small to be path changes. Unlike a queue, such an RTT is steady.
    #[must_use]
    pub fn base_rtt(&self) -> Option<Duration> {
        let min = self.min_rtt?;
        let steady = self.path_change.baseline().filter(|(least, most)| {
            *least > min.mul_f64(BASELINE_SHIFT) && *most < least.mul_f64(MAX_SPREAD)
        });
        Some(steady.map_or(min, |(least, _)| least))
    }

    /// Delay of a standing queue, if the smoothed RTT is more than `times` the base RTT.
    pub(crate) fn standing_queue(&self, times: f64) -> Option<Duration> {
        let base = self.base_rtt()?;
        (self.smoothed_rtt > base.mul_f64(times)).then(|| self.smoothed_rtt - base)
    }

    /// Whether the latest path change made the path longer.
    #[must_use]
    pub fn is_longer(&self) -> bool {
        self.rtt_ratio > 1.0
    }

    /// Whether the path's rate is unknown: at the start, and just after a path change to a far longer path.
    #[must_use]
    pub fn is_uncharacterised(&self, now: Time) -> bool {
        let since = self.unknown_since.or(self.first_sample);
        since.is_none_or(|since| now - since < self.smoothed_rtt * UNCHARACTERISED_RTTS)
    }

    /// A packet that was declared lost had only been late. The loss shares are not corrected: they decay.
    pub fn on_spurious_loss(&mut self, packet: &LostPacket) {
        self.lost_bytes = self.lost_bytes.saturating_sub(packet.bytes);
        self.delivered_bytes += packet.bytes;
    }

    /// One sample per round trip: bytes delivered over the longer of the times that delivery and sending took.
    /// Acknowledgements that come all at once, as when a path becomes shorter, show no rate
    /// (draft-cheng-iccrg-delivery-rate-estimation-02).
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

    /// A packet per millisecond on a path of 100 ms, then 10 ms: the packets of 90 ms arrive at once.
    #[test]
    fn acknowledgements_that_come_at_once_do_not_raise_the_rate() {
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
    fn base_rtt_follows_a_slow_rtt_increase_but_not_a_queue() {
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
            assert_eq!(path.path_changes, 0);
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
