//! Iris: a small, equal queue load for every flow, by regression ("Statistical Learning Based
//! Congestion Control for Real-time Video Communication", Dai et al.).
//!
//! Time is cut into epochs of a constant rate. Each shows how much of the rate was received
//! and how long the queue is; the next rate is what was received and a little more or less, so that
//! the flow's packets in the queue come to B.
//!
//! - `epoch`: which packets an epoch has, and what became of them.
//! - `target`: T, the RTT from which the queue is counted.
//! - `slope`: k, by how much an excess of rate raises the RTT.
//! - `losses`: which losses are chance.
//! - `control`: from outcomes to the next rate.

mod control;
mod epoch;
mod losses;
mod slope;
mod target;

use std::sync::Arc;
use std::time::Duration;

use control::Control;
use epoch::{Epochs, Extent};
use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use target::Target;

use crate::estimators::SpuriousTimeout;
use crate::registry::{Algorithm, Entry};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, LostPacket, Metrics, PathModel,
    PathStart, SentPacket, Time,
};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry { names: &["iris-min", "iris"], make: read },
    Entry {
        names: &["iris-mid"],
        make: |mut parameters| {
            parameters.entry("target").or_insert_with(|| "mid".into());
            read(parameters)
        },
    },
];

fn read(parameters: Map<String, Value>) -> Result<Algorithm, serde_json::Error> {
    let config: IrisConfig = serde_json::from_value(Value::Object(parameters))?;
    match config.out_of_range() {
        None => Ok(Algorithm::Controller(Arc::new(config))),
        Some(problem) => Err(serde_json::Error::custom(problem)),
    }
}

/// Least packets of an epoch. The paper starts at 100 kbit/s with epochs of 50 ms, in which there
/// is not one packet of 1500 bytes: an epoch then lasts until two have left, because one has no
/// rate.
const MIN_EPOCH_PACKETS: u64 = 2;
/// Probe time-outs in a row that count as lost contact. The first only asks whether the last
/// packet was lost (RFC 9002, Section 6.2).
const PROBE_TIMEOUTS: u32 = 2;
/// From so many on, the path is taken for unknown and start-up runs again, as after a time-out
/// in TCP (RFC 5681, Section 3.1). The paper says nothing of outages.
const OUTAGE_TIMEOUTS: u32 = 3;
/// The window is this many round trips of the rate, without a queue, and B: it does not decide while
/// the queue is that of Eq. 3, and stops a sender that hears nothing. It bounds the queue where the
/// capacity falls to a fraction at once and the buffer has no end (recorded LTE links, 20 MB: 0.14
/// s of queueing on average instead of 30 with round trips as long as the queue makes them).
const WINDOW_ROUND_TRIPS: u32 = 3;
/// Least time beyond one round trip that the window covers, for acknowledgement delay and
/// scheduling on paths with next to no RTT.
const WINDOW_SLACK: Duration = Duration::from_millis(50);
/// Least window (RFC 9002, Section 7.2 starts with ten).
const MIN_WINDOW_PACKETS: u64 = 10;
/// An epoch's feedback is given up after so many round trips.
const GIVE_UP_ROUND_TRIPS: u32 = 4;
/// Least time until then: a last packet may wait for an acknowledgement delay and a probe.
const MIN_GIVE_UP: Duration = Duration::from_millis(200);

/// Settings of Iris; also its factory. What too little and too much of each costs is measured in
/// `docs/cc/iris.md`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IrisConfig {
    /// What T is: the two algorithms differ in nothing else.
    pub target: Target,
    /// Length of an epoch, 1 to 1000 (Table I: 50).
    pub epoch_ms: f64,
    /// B: packets that the flow keeps in the queue, 2 to 10000 (Table I: 10).
    pub load_packets: f64,
    /// delta: largest change of RTT that one epoch is to make, 0.01 to 1000 (Table I: 3).
    pub delta_ms: f64,
    /// M: packets of load error at which the step nears its largest, 1 to 1000000 (Table I:
    /// 100). `None` derives it from `loop_gain`, rate and RTT.
    pub expansion_packets: Option<f64>,
    /// Share of the load's error that one decision is to remove, 0.01 to 1.
    pub loop_gain: f64,
    /// Seconds from one drain to the next, 0.5 to 600. T is the smallest RTT of six times
    /// that, or the median of once (the paper has a window and no size).
    pub window_s: f64,
    /// Least rate to start with, 0.02 to 1000 (Section V-C: 0.1).
    pub initial_rate_mbps: f64,
}

impl IrisConfig {
    /// `iris-min`: T is the smallest RTT.
    pub const fn min() -> Self {
        Self {
            target: Target::Min,
            epoch_ms: 50.0,
            load_packets: 10.0,
            delta_ms: 3.0,
            expansion_packets: None,
            loop_gain: 0.25,
            window_s: 5.0,
            initial_rate_mbps: 0.1,
        }
    }

    /// `iris-mid`: T is the median RTT.
    pub const fn mid() -> Self {
        Self { target: Target::Mid, ..Self::min() }
    }

    /// Which setting can't be, and what it may be.
    fn out_of_range(&self) -> Option<String> {
        let ranges = [
            ("epoch_ms", self.epoch_ms, 1.0..=1000.0),
            ("load_packets", self.load_packets, 2.0..=10_000.0),
            ("delta_ms", self.delta_ms, 0.01..=1000.0),
            ("expansion_packets", self.expansion_packets.unwrap_or(100.0), 1.0..=1e6),
            ("loop_gain", self.loop_gain, 0.01..=1.0),
            ("window_s", self.window_s, 0.5..=600.0),
            ("initial_rate_mbps", self.initial_rate_mbps, 0.02..=1000.0),
        ];
        let wrong = ranges.iter().find(|(_, value, range)| !range.contains(value));
        wrong.map(|(name, value, range)| {
            format!("{name} is {value}; allowed are {} to {}", range.start(), range.end())
        })
    }

    fn epoch(&self) -> Duration {
        Duration::from_secs_f64(self.epoch_ms / 1e3)
    }

    fn window(&self) -> Duration {
        Duration::from_secs_f64(self.window_s)
    }
}

impl Default for IrisConfig {
    fn default() -> Self {
        Self::min()
    }
}

impl ControllerConfig for IrisConfig {
    fn name(&self) -> &'static str {
        match self.target {
            Target::Min => "iris-min",
            Target::Mid => "iris-mid",
        }
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Iris::new(*self, start))
    }
}

/// See [`IrisConfig`].
#[derive(Debug)]
pub struct Iris {
    config: IrisConfig,
    control: Control,
    epochs: Epochs,
    start: PathStart,
    smoothed_rtt: Option<Duration>,
    mtu_bytes: u64,
    probe_timeouts: u32,
    /// The rate, 10^6 bit/s.
    spurious_timeout: SpuriousTimeout<f64>,
}

impl Iris {
    fn new(config: IrisConfig, start: &PathStart) -> Self {
        let mtu_bytes = start.mtu_bytes.max(1);
        let rate = initial_mbps(&config, start, start.initial_rtt);
        Self {
            config,
            control: Control::new(config, rate, mtu_bytes),
            epochs: Epochs::default(),
            start: *start,
            smoothed_rtt: None,
            mtu_bytes,
            probe_timeouts: 0,
            spurious_timeout: SpuriousTimeout::default(),
        }
    }

    fn rtt(&self) -> Duration {
        self.smoothed_rtt.unwrap_or(self.start.initial_rtt)
    }
}

impl Controller for Iris {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        self.control.on_time(packet.time);
        let extent =
            Extent { duration: self.control.epoch(self.rtt()), packets: MIN_EPOCH_PACKETS };
        self.epochs.on_sent(packet, self.control.decision(), self.pacing_rate(), extent);
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        if event.app_limited {
            self.epochs.on_app_limited();
        }
        if let Some(rtt) = event.rtt {
            if self.smoothed_rtt.is_none() && self.control.is_fresh() {
                let rate = initial_mbps(&self.config, &self.start, rtt.smoothed);
                self.control.start_at(rate);
            }
            self.smoothed_rtt = Some(rtt.smoothed);
        }
        // Only the largest packet that an acknowledgement names was not held back at the peer.
        let sampled = event.rtt.and(event.acked.last()).map(|largest| largest.number);
        for packet in event.acked {
            self.epochs.on_acked(event.now, packet, sampled == Some(packet.number));
        }
        for packet in event.lost {
            self.epochs.on_lost(packet);
        }
        if !event.acked.is_empty() {
            self.probe_timeouts = 0;
        }
        if let Some(rate_mbps) = self.spurious_timeout.on_event(event) {
            self.control.go_on_at(rate_mbps);
        }
        self.control.on_time(event.now);
        let limit = (self.rtt() * GIVE_UP_ROUND_TRIPS).max(MIN_GIVE_UP);
        self.epochs.give_up_overdue(event.now, limit);
        while let Some(outcome) = self.epochs.pop_complete() {
            self.control.on_outcome(event.now, &outcome, self.rtt());
        }
    }

    fn on_packet_discarded(&mut self, number: u64) {
        self.epochs.on_discarded(number);
    }

    fn on_spurious_loss(&mut self, _now: Time, _packet: &LostPacket) {
        self.control.on_mistake();
    }

    fn on_probe_timeout(&mut self, now: Time) {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        if self.probe_timeouts >= PROBE_TIMEOUTS {
            if !self.control.is_starting() {
                self.spurious_timeout.on_timeout(now, self.control.lasting_mbps());
            }
            self.epochs.clear();
            self.control.on_timeout(self.probe_timeouts >= OUTAGE_TIMEOUTS);
        }
    }

    fn on_app_limited(&mut self, _now: Time, _in_flight_bytes: u64) {
        self.epochs.on_app_limited();
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes.max(1);
        self.control.set_mtu(self.mtu_bytes);
    }

    fn inherit(&mut self, _now: Time, path: &PathModel) {
        let rtt = match path.smoothed_rtt {
            Duration::ZERO => self.start.initial_rtt,
            rtt => rtt,
        };
        self.smoothed_rtt = Some(rtt);
        let of_window = Bandwidth::from_bytes_and_time(path.window_bytes, rtt);
        // A window may be a multiple of what the path carries; what it carried is not.
        let rate = match path.max_delivery_rate {
            Bandwidth::ZERO => of_window,
            delivered => delivered.min(of_window),
        };
        self.epochs.clear();
        self.control.go_on_at(rate.mbps());
    }

    fn window_bytes(&self) -> u64 {
        let Some(smoothed) = self.smoothed_rtt else {
            return self.start.initial_window_bytes.max(2 * self.mtu_bytes);
        };
        let rtt = self.control.least_rtt().unwrap_or(smoothed);
        let time = (rtt * WINDOW_ROUND_TRIPS).max(rtt + WINDOW_SLACK);
        let rate = Bandwidth::from_mbps(self.control.lasting_mbps());
        let load = (self.config.load_packets * self.mtu_bytes as f64) as u64;
        (rate.bytes_in(time) + load).max(MIN_WINDOW_PACKETS * self.mtu_bytes)
    }

    fn pacing_rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.control.rate_mbps())
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            state: self.control.state(),
            pacing_rate: self.pacing_rate(),
            window_bytes: self.window_bytes(),
            figures: self.control.figures(),
        }
    }
}

/// The paper's 100 kbit/s, or the initial window in a round trip where that is more (RFC 9002,
/// Section 7.2). A round trip is not taken as less than an epoch.
fn initial_mbps(config: &IrisConfig, start: &PathStart, rtt: Duration) -> f64 {
    let time = rtt.max(config.epoch());
    let window = Bandwidth::from_bytes_and_time(start.initial_window_bytes, time).mbps();
    window.max(config.initial_rate_mbps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{self, Spec};

    #[test]
    fn settings_are_found_by_name_and_kept_in_range() {
        let name = |spec: Spec| registry::find(&spec).map(|found| found.name());
        assert_eq!(name(Spec::named("iris").with("load_packets", 20)), Ok("iris-min"));
        assert_eq!(name(Spec::named("iris-mid").with("window_s", 2)), Ok("iris-mid"));
        for (parameter, value) in [("epoch_ms", 0.0), ("window_s", -1.0), ("loop_gain", 1.5)] {
            let error = name(Spec::named("iris").with(parameter, value)).expect_err("impossible");
            assert!(error.to_string().contains(parameter), "{error}");
        }
    }

    #[test]
    fn it_starts_with_100_kbit_per_s_or_the_initial_window() {
        let start = |initial_window_bytes| PathStart {
            mtu_bytes: 1350,
            initial_window_bytes,
            initial_rtt: Duration::from_millis(333),
            seed: 1,
        };
        let mbps = |start, rtt| initial_mbps(&IrisConfig::min(), &start, rtt);
        assert_eq!(mbps(start(2700), Duration::from_secs(1)), 0.1);
        assert_eq!(mbps(start(13_500), Duration::from_millis(100)), 1.08);
        assert_eq!(mbps(start(13_500), Duration::from_micros(100)), 2.16, "an epoch at least");
    }
}
