//! Rate control by utility gradients: PCC Vivace (NSDI '18).
//!
//! Time is cut into monitor intervals of one round trip, each at a rate of its own. What
//! comes back of an interval's packets makes one number, its utility; the rate follows the
//! direction in which utility grows.
//!
//! - `monitor_interval`: which packets an interval has, and what became of them.
//! - `utility`: Eq. 1.
//! - `start_up`, `rate_control`: from outcomes to the next rate.

mod monitor_interval;
mod rate_control;
mod start_up;
mod utility;

use std::time::Duration;

use monitor_interval::{Extent, Intervals};
use rate_control::RateControl;
use serde::{Deserialize, Serialize};

pub use utility::Utility;

use crate::estimators::Slope;
use crate::registry::{self, Entry};
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, Metrics, PathModel, PathStart,
    SentPacket, Time,
};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[Entry {
    names: &["vivace-latency", "vivace"],
    make: |parameters| registry::read_over(&VivaceConfig::latency(), parameters),
}];

/// Least packets of an interval; the paper gives none. As many as the initial window, so that
/// intervals take one round trip from the first. 20 or 40 gained nothing once losses are
/// judged by [`VivaceConfig::loss_errors`], and start later (0.5, 2 and 12 Mbit/s, 1 % loss).
const MIN_INTERVAL_PACKETS: u64 = 10;
/// Least duration of an interval. The paper has one RTT and no path below 10 ms: a gradient
/// over less than this is the noise of schedulers and acknowledgement timers.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// T_timeout: an interval may wait so many round trips for feedback (Table 1).
const TIMEOUT_ROUND_TRIPS: u32 = 4;
/// Least time-out: a last packet may wait for the peer's acknowledgement delay (25 ms, RFC
/// 9000, Section 18.2) and, when lost, for a probe that waits for it again.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Probe time-outs in a row that count as a time-out. The first only asks whether the last
/// packet was lost (RFC 9002, Section 6.2).
const PROBE_TIMEOUTS: u32 = 2;
/// Least rate, 10^6 bit/s.
const MIN_RATE_MBPS: f64 = 0.1;
/// Least rate in packets a round trip: one would leave nothing to compare.
const MIN_RATE_PACKETS: f64 = 2.0;
/// Largest rate, 10^6 bit/s: only there to keep arithmetic finite.
const MAX_RATE_MBPS: f64 = 100_000.0;
/// The window is this many round trips of the rate. PCC has no window: this one never
/// decides while acknowledgements come, bounds what the transport buffers, and stops a
/// sender that hears nothing.
const WINDOW_ROUND_TRIPS: u32 = 3;
/// Least time beyond one round trip that the window covers, for acknowledgement delay and
/// scheduling on paths with next to no RTT.
const WINDOW_SLACK: Duration = Duration::from_millis(50);
/// Least window (RFC 9002, Section 7.2 starts with ten).
const MIN_WINDOW_PACKETS: u64 = 10;

/// Settings of Vivace; also its factory.
///
/// [`published`](Self::published) has the paper's values, [`latency`](Self::latency) those that
/// are used. Measured in the path model of this crate's tests over four seeds, from 3 s to 60 s (12
/// Mbit/s), 30 s or 20 s (5 ms): median goodput in Mbit/s and 95th percentile of the queueing
/// delay.
///
/// | path | published | used |
/// |---|---|---|
/// | 12 Mbit/s, 100 ms, 1 % loss, 150 kB | 7.4, 82 ms | 11.1, 14 ms |
/// | 100 Mbit/s, 30 ms, 75 kB | 94.3, 0.4 ms | 94.2, 0.3 ms |
/// | 100 Mbit/s, 30 ms, 1 % loss, 75 kB | 41.5, 0.0 ms | 92.8, 0.3 ms |
/// | 100 Mbit/s, 5 ms, jitter of 1 ms, 75 kB | 32.7, 0.5 ms | 91.5, 0.3 ms |
///
/// Known limit: below about 1 Mbit/s a step of 5 % is less than a packet an interval, so a
/// queue that start-up left is not seen and stays (0.5 Mbit/s, 15 kB: 200 ms).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VivaceConfig {
    /// Name in configurations and results.
    #[serde(skip, default = "latency_name")]
    pub name: &'static str,
    /// What is to be maximised.
    pub utility: Utility,
    /// RTT gradients smaller than this are taken for zero, s/s (Section 4.3, Table 1).
    /// Larger bears more jitter, smaller finds queues earlier.
    pub gradient_filter: f64,
    /// RTT gradients smaller than this many of their standard errors are taken for zero. 0 is
    /// the paper. On the last path of the table 0 gives 66 Mbit/s, 1 gives 75, 2 gives 91.
    pub gradient_errors: f64,
    /// Differences in loss between two probes smaller than this many of their standard errors
    /// are taken for chance. 0 is the paper. Of 111 packets at 1 % loss, two probes differ by
    /// a packet more often than not, and each such packet outweighs the gain of the rate: at
    /// 12 Mbit/s goodput is then 8.6 instead of 11.1, with all else equal. One packet is 1.0
    /// errors, two are 1.4: only more than that counts. Losses that both have still do.
    pub loss_errors: f64,
    /// Largest change of rate in one decision, as a share of the rate. Infinite is the paper,
    /// where a run of changes in one direction reaches 25 % and more: on 100 ms, feedback is
    /// three round trips late and the queue fills first. At 12 Mbit/s with 1 % loss: infinite
    /// 10.4 Mbit/s with 98 ms of queueing, 0.15 10.9 with 33 ms, 0.1 11.1 with 14 ms, 0.05
    /// 11.3 with 6 ms, but then it follows a change of the link more slowly.
    pub max_boundary: f64,
    /// Whether start-up ignores the first 50 losses and gradients below 0.2 (Section 5.2.1).
    /// Without, one loss among the first twenty packets ends it: at 1 % loss three of four runs
    /// took 7 to 9 s to reach 10 of 12 Mbit/s, instead of 1 s.
    pub initial_ignorance: bool,
    /// Whether start-up ends at what the path delivered rather than at half of what was too
    /// much, which may be little more than half of the capacity: 100 Mbit/s with 1 % loss is
    /// reached after 0.5 instead of 1.2 to 2.2 s. One interval at the half comes first, for
    /// the queue to drain.
    pub start_from_delivered: bool,
}

fn latency_name() -> &'static str {
    VivaceConfig::latency().name
}

impl VivaceConfig {
    /// `vivace-latency`: the paper's Vivace-Latency with what keeps chance from deciding.
    pub const fn latency() -> Self {
        Self {
            gradient_errors: 2.0,
            loss_errors: 1.5,
            max_boundary: 0.1,
            initial_ignorance: true,
            start_from_delivered: true,
            ..Self::published()
        }
    }

    /// Vivace-Latency as the paper has it (Table 1).
    pub const fn published() -> Self {
        Self {
            name: "vivace-latency",
            utility: Utility::LATENCY,
            gradient_filter: 0.01,
            gradient_errors: 0.0,
            loss_errors: 0.0,
            max_boundary: f64::INFINITY,
            initial_ignorance: false,
            start_from_delivered: false,
        }
    }

    /// Low-pass filter of the RTT gradient (Section 4.3).
    fn filtered(&self, slope: Slope) -> f64 {
        let noise = self.gradient_filter.max(self.gradient_errors * slope.error);
        if slope.value.abs() < noise { 0.0 } else { slope.value }
    }
}

impl ControllerConfig for VivaceConfig {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Vivace::new(*self, start))
    }
}

/// See [`VivaceConfig`].
///
/// Which RTT samples are taken: the one of the largest packet that an acknowledgement newly
/// names. The others had been at the peer for longer, by however long it held its
/// acknowledgement back: with one for two packets every other sample would be too long by a
/// packet's time, which near the filter's threshold is as much as the slope itself.
#[derive(Debug)]
pub struct Vivace {
    control: RateControl,
    intervals: Intervals,
    /// Rate in force: a probe's or the central one.
    rate: Bandwidth,
    start: PathStart,
    smoothed_rtt: Option<Duration>,
    mtu_bytes: u64,
    probe_timeouts: u32,
}

impl Vivace {
    fn new(config: VivaceConfig, start: &PathStart) -> Self {
        let rate = initial_rate(start, start.initial_rtt);
        let mut vivace = Self {
            control: RateControl::new(config, rate.mbps(), start.seed),
            intervals: Intervals::default(),
            rate,
            start: *start,
            smoothed_rtt: None,
            mtu_bytes: start.mtu_bytes.max(1),
            probe_timeouts: 0,
        };
        vivace.bound();
        vivace.rate = vivace.central();
        vivace
    }

    fn rtt(&self) -> Duration {
        self.smoothed_rtt.unwrap_or(self.start.initial_rtt)
    }

    fn central(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.control.central_mbps())
    }

    fn bound(&mut self) {
        let rtt_s = self.rtt().as_secs_f64().max(1e-9);
        let floor = MIN_RATE_PACKETS * self.mtu_bytes as f64 * 8.0 / rtt_s / 1e6;
        self.control.bound(floor.clamp(MIN_RATE_MBPS, MAX_RATE_MBPS), MAX_RATE_MBPS);
    }

    /// Hands complete intervals to the rate control, and gives up on those without feedback.
    fn conclude(&mut self, now: Time) {
        while let Some((id, outcome)) = self.intervals.pop_complete() {
            self.control.on_outcome(id, outcome);
        }
        let limit = (self.rtt() * TIMEOUT_ROUND_TRIPS).max(MIN_TIMEOUT);
        if self.intervals.is_overdue(now, limit) {
            self.time_out();
        }
        if !self.intervals.is_open() {
            self.rate = self.central();
        }
    }

    fn time_out(&mut self) {
        self.intervals.clear();
        self.control.on_timeout();
        self.rate = self.central();
    }
}

impl Controller for Vivace {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        self.intervals.close_if_due(packet);
        self.conclude(packet.time);
        if !self.intervals.is_open()
            && let Some((id, mbps)) = self.control.next_probe()
        {
            self.rate = Bandwidth::from_mbps(mbps);
            let duration = self.rtt().max(MIN_INTERVAL);
            let extent = Extent { duration, packets: MIN_INTERVAL_PACKETS };
            if let Some(given_up) = self.intervals.open(id, self.rate, extent, packet) {
                self.control.on_given_up(given_up);
            }
        }
        self.intervals.on_sent(packet);
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        if event.app_limited {
            self.intervals.on_app_limited();
        }
        if let Some(rtt) = event.rtt {
            if self.smoothed_rtt.is_none() {
                let rate = initial_rate(&self.start, rtt.smoothed);
                // An interval as long as the assumed RTT of 333 ms would only waste time.
                if self.control.restart_at(rate.mbps()) {
                    self.intervals.clear();
                }
            }
            self.smoothed_rtt = Some(rtt.smoothed);
            self.bound();
            if let Some(largest) = event.acked.last() {
                self.intervals.on_rtt(largest, event.now.since(largest.sent));
            }
        }
        for packet in event.acked {
            self.intervals.on_acked(event.now, packet);
        }
        for packet in event.lost {
            self.intervals.on_lost(packet);
        }
        if !event.acked.is_empty() {
            self.probe_timeouts = 0;
        }
        self.conclude(event.now);
    }

    fn on_packet_discarded(&mut self, number: u64) {
        self.intervals.on_discarded(number);
    }

    fn on_probe_timeout(&mut self, _now: Time) {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        if self.probe_timeouts >= PROBE_TIMEOUTS {
            self.time_out();
        }
    }

    fn on_app_limited(&mut self, _now: Time, _in_flight_bytes: u64) {
        self.intervals.on_app_limited();
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes.max(1);
        self.bound();
    }

    fn inherit(&mut self, _now: Time, path: &PathModel) {
        let rtt = match path.smoothed_rtt {
            Duration::ZERO => self.start.initial_rtt,
            rtt => rtt,
        };
        self.smoothed_rtt = Some(rtt);
        self.bound();
        let of_window = Bandwidth::from_bytes_and_time(path.window_bytes, rtt);
        // A window may be a multiple of what the path carries; what it carried is not.
        let rate = match path.max_delivery_rate {
            Bandwidth::ZERO => of_window,
            delivered => delivered.min(of_window),
        };
        self.intervals.clear();
        self.control.learn_from(rate.mbps());
        self.rate = self.central();
    }

    fn window_bytes(&self) -> u64 {
        let Some(rtt) = self.smoothed_rtt else {
            return self.start.initial_window_bytes.max(2 * self.mtu_bytes);
        };
        let time = (rtt * WINDOW_ROUND_TRIPS).max(rtt + WINDOW_SLACK);
        self.rate.bytes_in(time).max(MIN_WINDOW_PACKETS * self.mtu_bytes)
    }

    fn pacing_rate(&self) -> Bandwidth {
        self.rate
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            state: self.control.state(),
            pacing_rate: self.rate,
            window_bytes: self.window_bytes(),
            figures: vec![
                ("central_rate_mbps", self.control.central_mbps()),
                ("utility_gradient", self.control.last_gradient()),
                ("decisions", self.control.decisions() as f64),
            ],
        }
    }
}

/// The initial window in a round trip (RFC 9002, Section 7.2), which is not taken as less than
/// an interval: ten packets in 0.1 ms would be more than 1 Gbit/s.
fn initial_rate(start: &PathStart, rtt: Duration) -> Bandwidth {
    Bandwidth::from_bytes_and_time(start.initial_window_bytes, rtt.max(MIN_INTERVAL))
}
