use std::time::Duration;

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
    /// The window; without it, several round trips of the rate. For the fixed windows that measurements compare with.
    #[serde(default)]
    pub window_bytes: Option<u64>,
}

fn possible_rate<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Bandwidth, D::Error> {
    let mbps = f64::deserialize(from)?;
    match (0.01..=100_000.0).contains(&mbps) {
        true => Ok(Bandwidth::from_mbps(mbps)),
        false => {
            let problem = format!("rate_mbps is {mbps}; allowed are 0.01 to 100000");
            Err(D::Error::custom(problem))
        }
    }
}

impl ControllerConfig for ConstantConfig {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Constant {
            rate: self.rate,
            fixed_window_bytes: self.window_bytes,
            mtu_bytes: start.mtu_bytes,
            smoothed_rtt: start.initial_rtt,
        })
    }
}

/// A controller that sends at the rate of its [`ConstantConfig`].
#[derive(Debug)]
pub struct Constant {
    rate: Bandwidth,
    fixed_window_bytes: Option<u64>,
    mtu_bytes: u64,
    smoothed_rtt: Duration,
}

impl Controller for Constant {
    fn on_packet_sent(&mut self, _packet: &SentPacket) {}

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
        self.fixed_window_bytes.unwrap_or_else(|| self.rate.bytes_in(time).max(least))
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
        ConstantConfig { rate: Bandwidth::from_mbps(mbps), window_bytes: None }
            .build(Time::ZERO, &start)
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
    fn the_window_has_a_floor_in_time_and_in_packets() {
        let mut fast = build(100.0);
        fast.on_event(&event(0, &[]));
        assert_eq!(fast.window_bytes(), fast.pacing_rate().bytes_in(MIN_WINDOW_TIME));
        let fixed = ConstantConfig { rate: fast.pacing_rate(), window_bytes: Some(27_000) };
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
