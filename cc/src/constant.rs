use std::time::Duration;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use serde::de::Error as _;

use crate::algorithm::{self, AlgorithmEntry};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, PathStart,
    SentPacket, Time,
};

pub(crate) const ENTRIES: &[AlgorithmEntry] = &[AlgorithmEntry {
    names: &["constant"],
    summary: "a fixed rate, the parameter rate_mbps; for tests only: it never backs off",
    source: "Millrace",
    make: algorithm::read_settings::<ConstantConfig>,
}];

/// The window is this many round trips of the rate, so that the rate and never the
/// window limits the sender, also while acknowledgements are late.
/// Chosen by `the_rate_never_moves_and_the_window_covers_it`.
const WINDOW_ROUND_TRIPS: u32 = 4;
/// Least time that the window covers: acknowledgement delay and scheduling on a
/// path with next to no RTT. Chosen by `the_window_has_a_floor_in_time_and_in_packets`.
const MIN_WINDOW_TIME: Duration = Duration::from_millis(50);
/// Least window (RFC 9002, Section 7.2: two packets are the minimum; a few more keep
/// slow rates from waiting for delayed acknowledgements).
const MIN_WINDOW_PACKETS: u64 = 10;

/// A fixed rate, whatever the path does. For tests and for links of known capacity:
/// it does not back off, so it must never meet a shared network.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantConfig {
    /// The rate; `rate_mbps` in a configuration, 0.01 to 100000 Mbit/s (10^6 bit/s).
    #[serde(rename = "rate_mbps", deserialize_with = "possible_rate")]
    pub rate: Bandwidth,
    /// Largest share by which the rate differs from that, up or down, 0 to 0.9: it is drawn again for each epoch, to
    /// probe a path (Iris, Section III).
    #[serde(default, deserialize_with = "possible_spread")]
    pub spread: f64,
    /// Length of an epoch in milliseconds, 1 to 10000.
    #[serde(default = "default_epoch_ms", deserialize_with = "possible_epoch")]
    pub epoch_ms: f64,
    /// The window; without it, several round trips of the rate. For the fixed windows that measurements compare with.
    #[serde(default)]
    pub window_bytes: Option<u64>,
}

impl ConstantConfig {
    /// A rate that never changes.
    #[must_use]
    pub fn new(rate: Bandwidth) -> Self {
        Self { rate, spread: 0.0, epoch_ms: default_epoch_ms(), window_bytes: None }
    }
}

/// As long as those of the Iris paper's measurements (Section III).
fn default_epoch_ms() -> f64 {
    100.0
}

fn possible_spread<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    within(from, "spread", 0.0..=0.9)
}

fn possible_epoch<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    within(from, "epoch_ms", 1.0..=10_000.0)
}

fn within<'de, D: serde::Deserializer<'de>>(
    from: D,
    name: &str,
    range: std::ops::RangeInclusive<f64>,
) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    match range.contains(&value) {
        true => Ok(value),
        false => {
            let (low, high) = (range.start(), range.end());
            Err(D::Error::custom(format!("{name} is {value}; allowed are {low} to {high}")))
        }
    }
}

fn possible_rate<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Bandwidth, D::Error> {
    within(from, "rate_mbps", 0.01..=100_000.0).map(Bandwidth::from_mbps)
}

impl ControllerConfig for ConstantConfig {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        let epochs = (self.spread > 0.0).then(|| DrawnEpochs {
            config: *self,
            rng: Pcg64Mcg::seed_from_u64(start.seed),
            next: Time::ZERO,
        });
        Box::new(Constant {
            rate: self.rate,
            largest_rate: self.rate.scaled(1.0 + self.spread),
            fixed_window_bytes: self.window_bytes,
            mtu_bytes: start.mtu_bytes,
            smoothed_rtt: start.initial_rtt,
            epochs,
        })
    }
}

/// A controller that sends at the rate of its [`ConstantConfig`].
#[derive(Debug)]
pub struct Constant {
    rate: Bandwidth,
    largest_rate: Bandwidth,
    fixed_window_bytes: Option<u64>,
    mtu_bytes: u64,
    smoothed_rtt: Duration,
    /// Only with a spread.
    epochs: Option<DrawnEpochs>,
}

/// Epochs with a rate of their own.
#[derive(Debug)]
struct DrawnEpochs {
    config: ConstantConfig,
    rng: Pcg64Mcg,
    /// When the next one begins.
    next: Time,
}

impl DrawnEpochs {
    /// The rate of the epoch that begins now, if one begins.
    fn begin(&mut self, now: Time) -> Option<Bandwidth> {
        if now < self.next {
            return None;
        }
        let epoch = Duration::from_secs_f64(self.config.epoch_ms / 1e3);
        // After a pause epochs begin with the next packet.
        self.next = if now - self.next < epoch { self.next + epoch } else { now + epoch };
        let drawn = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        Some(self.config.rate.scaled(1.0 + self.config.spread * (2.0 * drawn - 1.0)))
    }
}

impl Controller for Constant {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        if let Some(rate) = self.epochs.as_mut().and_then(|epochs| epochs.begin(packet.time)) {
            self.rate = rate;
        }
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        if let Some(rtt) = event.rtt {
            self.smoothed_rtt = rtt.smoothed;
        }
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes;
    }

    fn window_bytes(&self) -> u64 {
        let time = (self.smoothed_rtt * WINDOW_ROUND_TRIPS).max(MIN_WINDOW_TIME);
        let least = MIN_WINDOW_PACKETS * self.mtu_bytes;
        self.fixed_window_bytes.unwrap_or_else(|| self.largest_rate.bytes_in(time).max(least))
    }

    fn pacing_rate(&self) -> Bandwidth {
        self.rate
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics {
            state: "constant",
            pacing_rate: self.rate,
            window_bytes: self.window_bytes(),
            figures: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(mbps: f64) -> Box<dyn Controller> {
        let start = PathStart {
            mtu_bytes: 1350,
            initial_window_bytes: 13_500,
            initial_rtt: Duration::from_millis(100),
            seed: 1,
        };
        ConstantConfig::new(Bandwidth::from_mbps(mbps)).build(Time::ZERO, &start)
    }

    fn event(rtt_ms: u64, lost: &[crate::LostPacket]) -> CongestionEvent<'_> {
        let rtt = Duration::from_millis(rtt_ms);
        CongestionEvent {
            now: Time::from_nanos(1),
            acked: &[],
            lost,
            rtt: Some(crate::RttSample { latest: rtt, smoothed: rtt, variation: rtt, min: rtt }),
            ecn_ce: 0,
            prior_in_flight_bytes: 0,
            in_flight_bytes: 0,
            app_limited: false,
        }
    }

    #[test]
    fn the_rate_never_moves_and_the_window_covers_it() {
        let rate = Bandwidth::from_mbps(100.0);
        let mut constant = build(100.0);
        assert_eq!(constant.window_bytes(), rate.bytes_in(Duration::from_millis(400)));
        let lost = [crate::LostPacket { number: 1, sent: Time::ZERO, bytes: 1350 }];
        for _ in 0..100 {
            constant.on_event(&event(50, &lost));
            constant.on_probe_timeout(Time::from_nanos(2));
        }
        assert_eq!(constant.pacing_rate(), rate);
        assert_eq!(constant.window_bytes(), rate.bytes_in(Duration::from_millis(200)));
    }

    #[test]
    fn a_spread_draws_a_rate_for_each_epoch() {
        let start = PathStart {
            mtu_bytes: 1350,
            initial_window_bytes: 13_500,
            initial_rtt: Duration::from_millis(100),
            seed: 1,
        };
        let config =
            ConstantConfig { spread: 0.2, ..ConstantConfig::new(Bandwidth::from_mbps(10.0)) };
        let mut probe = config.build(Time::ZERO, &start);
        let mut send = |ms: u64| {
            let time = Time::from_nanos(ms * 1_000_000);
            let (bytes, prior_in_flight_bytes) = (1350, 0);
            probe.on_packet_sent(&SentPacket {
                number: ms,
                time,
                bytes,
                prior_in_flight_bytes,
                has_data: true,
            });
            probe.pacing_rate().mbps()
        };
        let rates: Vec<f64> = (0..1000).map(|epoch| send(epoch * 100)).collect();
        assert!(rates.iter().all(|rate| (8.0..=12.0).contains(rate)), "{rates:?}");
        let mean = rates.iter().sum::<f64>() / 1000.0;
        assert!((9.8..10.2).contains(&mean), "{mean}");
        let extremes = rates.iter().filter(|rate| (**rate - 10.0).abs() > 1.0).count();
        assert!((400..600).contains(&extremes), "half of an even distribution: {extremes}");
        let before = send(100_000);
        assert_eq!(send(100_050), before, "within an epoch");
    }

    #[test]
    fn the_window_has_a_floor_in_time_and_in_packets() {
        let mut fast = build(100.0);
        fast.on_event(&event(0, &[]));
        assert_eq!(fast.window_bytes(), fast.pacing_rate().bytes_in(MIN_WINDOW_TIME));
        let fixed = ConstantConfig {
            window_bytes: Some(27_000),
            ..ConstantConfig::new(fast.pacing_rate())
        };
        let start = PathStart {
            mtu_bytes: 1350,
            initial_window_bytes: 13_500,
            initial_rtt: Duration::from_millis(100),
            seed: 1,
        };
        assert_eq!(fixed.build(Time::ZERO, &start).window_bytes(), 27_000);
        let mut slow = build(0.01);
        assert_eq!(slow.window_bytes(), 13_500);
        slow.on_mtu(1200);
        assert_eq!(slow.window_bytes(), 12_000);
    }
}
