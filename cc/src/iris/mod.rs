//! Iris: a small, equal queue load for every flow, by regression ("Statistical Learning Based
//! Congestion Control for Real-time Video Communication", Dai et al.).
//!
//! Time is divided into epochs of a constant rate. Each shows the receiving rate and the queueing
//! delay. The next rate is the receiving rate and a little more or less, so that the flow keeps B
//! packets in the queue.
//!
//! - `epoch`: the packets of an epoch and their outcome.
//! - `target`: T, the RTT above which delay counts as queueing.
//! - `slope`: k, the increase of the RTT per excess of rate.
//! - `losses`: distinguishes random (non-congestion) loss.
//! - `control`: from outcomes to the next rate.

mod config;
mod control;
mod epoch;
mod losses;
mod slope;
mod target;

use std::sync::Arc;
use std::time::Duration;

use control::Control;
use epoch::{EpochExtent, Epochs};
use serde::de::Error;
use serde_json::{Map, Value};

pub use config::{Extensions, IrisConfig};
pub use slope::SlopeSource;
pub use target::Target;

use crate::algorithm::{Algorithm, AlgorithmEntry};
use crate::estimators::{LossWindow, LossWindowConfig, SpuriousTimeout};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, LostPacket,
    PathModel, PathStart, SentPacket, Time,
};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[AlgorithmEntry] = &[
    AlgorithmEntry {
        names: &["iris-min", "iris"],
        summary: "Iris: an equal load of the queue for every flow, against the smallest RTT",
        source: "Dai, Zhang, Zhang and Guo",
        make: read,
    },
    AlgorithmEntry {
        names: &["iris-mid"],
        summary: "Iris against the median RTT",
        source: "Dai, Zhang, Zhang and Guo",
        make: |mut parameters| {
            parameters.entry("target").or_insert_with(|| "mid".into());
            read(parameters)
        },
    },
];

/// `preset` (`default` or `published`) gives the values that the other parameters override.
fn read(mut parameters: Map<String, Value>) -> Result<Algorithm, serde_json::Error> {
    let base = match parameters.remove("preset") {
        None => IrisConfig::min(),
        Some(preset) => match preset.as_str() {
            Some("default") => IrisConfig::min(),
            Some("published") => IrisConfig::min().as_published(),
            _ => return Err(Error::custom("preset must be \"default\" or \"published\"")),
        },
    };
    let mut all = serde_json::to_value(base)?;
    for (name, value) in parameters {
        match (&mut all[name.as_str()], value) {
            // Extensions that are not named stay those of the preset.
            (Value::Object(fields), Value::Object(given)) => fields.extend(given),
            (field, value) => *field = value,
        }
    }
    let config: IrisConfig = serde_json::from_value(all)?;
    match config.out_of_range() {
        None => Ok(Algorithm::Controller(Arc::new(config))),
        Some(problem) => Err(serde_json::Error::custom(problem)),
    }
}

/// Least packets of an epoch. The paper starts at 100 kbit/s with epochs of 50 ms, which hold less than
/// one packet of 1500 bytes. A single packet has no rate.
const MIN_EPOCH_PACKETS: u64 = 2;
/// Consecutive probe timeouts that count as lost contact. The first only tests whether the last
/// packet was lost (RFC 9002, Section 6.2).
const MIN_PROBE_TIMEOUTS: u32 = 2;
/// Consecutive probe timeouts that mean an outage: start-up runs again, as after a timeout in TCP
/// (RFC 5681, Section 3.1). The paper does not cover outages.
const OUTAGE_TIMEOUTS: u32 = 3;
/// The window is this many base RTTs of the rate, and B. It does not limit while the queue is that of Eq. 3, and stops
/// a sender without feedback. It bounds the queue where the capacity drops to a fraction and the buffer is very large.
/// Measured in docs/research/cc/iris.md (Deviations from the paper).
const WINDOW_RTTS: u32 = 3;
/// Least time beyond one round trip that the window covers, for acknowledgement delay and
/// scheduling on paths with next to no RTT.
const MIN_WINDOW_HEADROOM: Duration = Duration::from_millis(50);
/// Least window (RFC 9002, Section 7.2 starts with ten).
const MIN_WINDOW_PACKETS: u64 = 10;
/// The bound in flight after an overflow, as a share of what was in flight and not lost. With 0.7 a link that pauses for
/// 2 s is used to less than 0.8 afterwards.
const OVERFLOW_DECREASE: f64 = 0.85;
/// An overflow that loses more than this share of what was in flight is severe.
const SEVERE_LOSS: f64 = 0.1;
/// An epoch without complete feedback is given up after this many RTTs, and [`MIN_GIVE_UP_TIME`].
const GIVE_UP_RTTS: u32 = 4;
/// Allows for an acknowledgement delay and a probe of the last packet.
const MIN_GIVE_UP_TIME: Duration = Duration::from_millis(200);

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

/// The Iris controller, with the settings of an [`IrisConfig`].
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
    /// Present with `loss_window_s`.
    loss_window: Option<LossWindow>,
}

impl Iris {
    fn new(config: IrisConfig, start: &PathStart) -> Self {
        let mtu_bytes = start.mtu_bytes.max(1);
        let most = config.initial_window_packets.unwrap_or(u64::MAX).saturating_mul(mtu_bytes);
        let start =
            &PathStart { initial_window_bytes: start.initial_window_bytes.min(most), ..*start };
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
            loss_window: (config.loss_window_s > 0.0).then(|| {
                LossWindow::new(LossWindowConfig {
                    memory: Duration::from_secs_f64(config.loss_window_s),
                    growth_packets: config.loss_window_growth,
                    decrease: OVERFLOW_DECREASE,
                    severe_loss: SEVERE_LOSS,
                    from_first_queue: false,
                })
            }),
        }
    }

    /// The window without the bound after an overflow.
    fn unbounded_window_bytes(&self) -> u64 {
        let Some(smoothed) = self.smoothed_rtt else {
            return self.start.initial_window_bytes.max(2 * self.mtu_bytes);
        };
        let rtt = self.control.least_rtt().unwrap_or(smoothed);
        let time = (rtt * WINDOW_RTTS).max(rtt + MIN_WINDOW_HEADROOM);
        let rate = Bandwidth::from_mbps(self.control.steady_state_mbps());
        let load = (self.config.load_packets * self.mtu_bytes as f64) as u64;
        (rate.bytes_in(time) + load).max(MIN_WINDOW_PACKETS * self.mtu_bytes)
    }

    fn rtt(&self) -> Duration {
        self.smoothed_rtt.unwrap_or(self.start.initial_rtt)
    }
}

impl Controller for Iris {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        self.control.advance_to(packet.time);
        let extent =
            EpochExtent { duration: self.control.epoch(self.rtt()), packets: MIN_EPOCH_PACKETS };
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
        // The peer did not delay the acknowledgement of the largest newly acknowledged packet.
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
        let unbounded = self.unbounded_window_bytes();
        if let Some(window) = &mut self.loss_window
            && let Some(base) = self.control.least_rtt()
        {
            window.on_event(event, base, unbounded, self.mtu_bytes);
        }
        if let Some(rate_mbps) = self.spurious_timeout.on_event(event) {
            self.control.continue_at(rate_mbps);
        }
        self.control.advance_to(event.now);
        let limit = (self.rtt() * GIVE_UP_RTTS).max(MIN_GIVE_UP_TIME);
        self.epochs.give_up_overdue(event.now, limit);
        while let Some(outcome) = self.epochs.pop_complete() {
            self.control.on_outcome(event.now, &outcome, self.rtt());
        }
    }

    fn on_packet_discarded(&mut self, number: u64) {
        self.epochs.on_discarded(number);
    }

    fn on_spurious_loss(&mut self, _now: Time, _packet: &LostPacket) {
        self.control.on_spurious_loss();
    }

    fn on_probe_timeout(&mut self, now: Time) {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        if self.probe_timeouts >= MIN_PROBE_TIMEOUTS {
            if !self.control.is_starting() {
                self.spurious_timeout.on_timeout(now, self.control.steady_state_mbps());
            }
            self.epochs.clear();
            self.loss_window.iter_mut().for_each(|window| window.on_timeout(now));
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

    fn init_from_path(&mut self, _now: Time, path: &PathModel) {
        let rtt = match path.smoothed_rtt {
            Duration::ZERO => self.start.initial_rtt,
            rtt => rtt,
        };
        self.smoothed_rtt = Some(rtt);
        let of_window = Bandwidth::from_bytes_and_time(path.window_bytes, rtt);
        // The window may be a multiple of what the path carries; the delivery rate is not.
        let rate = match path.max_delivery_rate {
            Bandwidth::ZERO => of_window,
            delivered => delivered.min(of_window),
        };
        self.epochs.clear();
        self.control.continue_at(rate.mbps());
    }

    fn window_bytes(&self) -> u64 {
        let window = self.unbounded_window_bytes();
        let bounded = self.loss_window.as_ref().map_or(window, |bound| bound.bound(window));
        bounded.max(2 * self.mtu_bytes)
    }

    fn pacing_rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.control.rate_mbps())
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics {
            state: self.control.state(),
            pacing_rate: self.pacing_rate(),
            window_bytes: self.window_bytes(),
            figures: self.control.figures(),
        }
    }
}

/// The paper's 100 kbit/s, or the initial window per round trip if that is more (RFC 9002, Section
/// 7.2). A round trip counts as an epoch at least.
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
    fn the_published_preset_has_the_papers_rules_unless_told_otherwise() {
        let settings = |spec: Spec| match registry::find(&spec).expect("settings of Iris") {
            Algorithm::Controller(config) => format!("{config:?}"),
            Algorithm::Transport { .. } => unreachable!("of this crate"),
        };
        let published = Spec::named("iris-mid").with("preset", "published");
        let shown = settings(published.clone());
        for part in
            ["Mid", "expansion_packets: Some(100.0)", "drains: false", "window_packets: Some(10)"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let with_drains = published.with("extensions", serde_json::json!({ "drains": true }));
        let shown = settings(with_drains);
        assert!(shown.contains("drains: true") && shown.contains("trials: false"), "{shown}");
        assert!(settings(Spec::named("iris")).contains("trials: true"));
        let wrong = registry::find(&Spec::named("iris").with("preset", "code"));
        assert!(wrong.expect_err("unknown").to_string().contains("published"));
        let unknown = serde_json::json!({ "magic": true });
        registry::find(&Spec::named("iris").with("extensions", unknown)).expect_err("unknown");
    }

    #[test]
    fn a_preset_bounds_the_initial_window() {
        let start = PathStart {
            mtu_bytes: 1350,
            initial_window_bytes: 32 * 1350,
            initial_rtt: Duration::from_millis(100),
            seed: 1,
        };
        assert_eq!(Iris::new(IrisConfig::min(), &start).window_bytes(), 32 * 1350);
        let published = IrisConfig::min().as_published();
        assert_eq!(Iris::new(published, &start).window_bytes(), 13_500);
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
