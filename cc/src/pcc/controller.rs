use std::time::Duration;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::bandwidth_probe::Resumable;
use super::base_rtt::STANDING_QUEUE_RTT_RATIO;
use super::config::{NoiseFilter, PccConfig, StartUpKind};
use super::monitor_interval::{IntervalExtent, Intervals};
use super::noise::AckFilter;
use super::path_window::PathWindow;
use super::pipelined::Pipelined;
use super::rate_control::{PathBounds, RateControl};
use crate::estimators::SpuriousTimeout;
use crate::{
    Bandwidth, CongestionEvent, Controller, ControllerMetrics, LostPacket, PathModel, PathStart,
    SentPacket, Time, Tuning,
};

/// Least packets of an interval; the paper gives none. As many as the initial window (RFC 9002, Section 7.2),
/// so that intervals take one round trip from the first.
const MIN_INTERVAL_PACKETS: u64 = 10;
/// Least duration of an interval. The paper has one RTT and no path below 10 ms: a gradient over less than this is noise.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// T_timeout: an interval waits this many round trips for feedback (Table 1).
const TIMEOUT_RTTS: u32 = 4;
/// Least timeout: a last packet may wait for the peer's acknowledgement delay (25 ms, RFC
/// 9000, Section 18.2) and, when lost, for a probe that waits for it again.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Consecutive probe timeouts that count as a timeout. The first only tests whether the last
/// packet was lost (RFC 9002, Section 6.2).
const MIN_PROBE_TIMEOUTS: u32 = 2;
/// Least rate, 10^6 bit/s: a packet each half second.
/// Chosen by `fifty_kilobits_and_ten_gigabits_work` (lab/sim/tests/real_conditions.rs).
const MIN_RATE_MBPS: f64 = 0.02;
/// Least rate in packets a round trip: one would leave nothing to compare.
const MIN_RATE_PACKETS: f64 = 2.0;
/// Largest rate, 10^6 bit/s: only there to keep arithmetic finite.
const MAX_RATE_MBPS: f64 = 100_000.0;
/// The window is this many round trips of the rate, if the algorithm is not latency-sensitive. PCC has no window:
/// this one never limits while acknowledgements arrive, bounds what the transport buffers, and stops a sender without
/// feedback.
const WINDOW_RTTS: u32 = 3;
/// Least time beyond one round trip that the window covers, for acknowledgement delay and
/// scheduling on paths with next to no RTT.
const MIN_WINDOW_HEADROOM: Duration = Duration::from_millis(50);
/// Least window (RFC 9002, Section 7.2 starts with ten).
const MIN_WINDOW_PACKETS: u64 = 10;

/// Keeps the draws of gaps apart from those of probes.
const GAP_SEED: u64 = 0x6761_7073;

/// The controller of the family, with the settings of a [`PccConfig`].
///
/// RTT samples are those of the largest newly acknowledged packet. The peer held back the
/// acknowledgements of the others: with one acknowledgement for two packets, every other sample would
/// be too long by a packet's time, about the slope itself near the filter's threshold.
#[derive(Debug)]
pub(super) struct Pcc {
    control: RateControl,
    intervals: Intervals,
    /// Rate in force: a probe's or the central one.
    rate: Bandwidth,
    start: PathStart,
    smoothed_rtt: Option<Duration>,
    path_window: PathWindow,
    mtu_bytes: u64,
    probe_timeouts: u32,
    /// The central rate, 10^6 bit/s.
    spurious_timeout: SpuriousTimeout<f64>,
    /// Present while pipelined start-up runs: there are no intervals then.
    pipelined: Option<Pipelined>,
    config: PccConfig,
    /// Gap after the last packet, as a multiple of the mean gap.
    gap: f64,
    gap_rng: Pcg64Mcg,
    /// Present with Proteus's filter.
    ack_filter: Option<AckFilter>,
}

impl Pcc {
    pub(super) fn new(config: PccConfig, start: &PathStart) -> Self {
        let packets = config.initial_window_packets.unwrap_or(u64::MAX);
        let most = packets.saturating_mul(start.mtu_bytes.max(1));
        let start =
            &PathStart { initial_window_bytes: start.initial_window_bytes.min(most), ..*start };
        let rate = initial_rate(&config, start, start.initial_rtt);
        let mut pcc = Self {
            control: RateControl::new(config, rate.mbps(), start.seed),
            intervals: Intervals::default(),
            rate,
            start: *start,
            smoothed_rtt: None,
            path_window: PathWindow::new(&config),
            mtu_bytes: start.mtu_bytes.max(1),
            probe_timeouts: 0,
            spurious_timeout: SpuriousTimeout::default(),
            gap: 1.0,
            gap_rng: Pcg64Mcg::seed_from_u64(start.seed ^ GAP_SEED),
            pipelined: None,
            config,
            ack_filter: (config.noise_filter == NoiseFilter::Proteus).then(AckFilter::default),
        };
        pcc.begin_start_up();
        pcc.bound();
        pcc.rate = pcc.idle_rate();
        pcc
    }

    fn rtt(&self) -> Duration {
        self.smoothed_rtt.unwrap_or(self.start.initial_rtt)
    }

    /// The rate while no interval is open.
    fn idle_rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(self.control.waiting_mbps())
    }

    fn bound(&mut self) {
        let rtt_s = self.rtt().as_secs_f64().max(1e-9);
        let packet_mbps = self.mtu_bytes as f64 * 8.0 / rtt_s / 1e6;
        self.control.bound(PathBounds {
            floor_mbps: (MIN_RATE_PACKETS * packet_mbps).clamp(MIN_RATE_MBPS, MAX_RATE_MBPS),
            ceiling_mbps: MAX_RATE_MBPS,
            packet_mbps,
            standing_queue_rtt_s: self.path_window.standing_queue_rtt_s(),
        });
    }

    /// Passes complete intervals to the rate control, and gives up those without feedback.
    fn conclude(&mut self, now: Time) {
        while let Some((id, outcome)) = self.intervals.pop_complete() {
            self.control.on_outcome(id, outcome);
        }
        if self.config.interval_timeout && self.is_overdue(now) {
            self.time_out(now);
        }
        if !self.intervals.is_open() {
            self.rate = self.idle_rate();
        }
    }

    /// Whether an interval has waited for feedback for longer than T_timeout.
    fn is_overdue(&self, now: Time) -> bool {
        let waited = self.intervals.longest_wait(now);
        waited > MIN_TIMEOUT && waited > self.rtt() * TIMEOUT_RTTS
    }

    fn begin_start_up(&mut self) {
        self.pipelined = match self.config.start_up {
            StartUpKind::Pipelined if self.control.is_starting() => {
                Some(Pipelined::new(self.start.initial_window_bytes))
            }
            _ => None,
        };
    }

    /// Runs pipelined start-up. Returns whether it is active.
    fn start_up_event(&mut self, event: &CongestionEvent<'_>) -> bool {
        let Some(start_up) = &mut self.pipelined else { return false };
        if let Some(found) = start_up.on_event(event) {
            self.pipelined = None;
            match found.is_of_others {
                true => self.control.start_up_from(found.rate.mbps()),
                false => self.control.learn_from(found.rate.mbps()),
            }
            self.rate = self.idle_rate();
            return true;
        }
        let initial = Bandwidth::from_mbps(self.control.central_mbps());
        let least = Bandwidth::from_mbps(self.control.least_mbps());
        self.rate = start_up.rate(initial, least);
        true
    }

    fn time_out(&mut self, now: Time) {
        if !self.control.is_starting() {
            self.spurious_timeout.on_timeout(now, self.control.central_mbps());
        }
        self.intervals.clear();
        self.path_window.on_timeout(now);
        self.control.on_timeout();
        // A path that goes out of contact varies: start-up by acknowledgements would overflow its buffer each time.
        self.pipelined = None;
        self.rate = self.idle_rate();
    }
}

impl Resumable for Pcc {
    fn rate(&self) -> Bandwidth {
        self.rate
    }

    fn is_starting(&self) -> bool {
        self.control.is_starting()
    }

    fn is_below_capacity(&self) -> bool {
        self.control.is_below_capacity()
    }

    fn has_overflowed(&self, now: Time) -> bool {
        self.path_window.has_overflowed(now)
    }

    fn take_rate_drop(&mut self) -> Option<f64> {
        self.control.take_rate_drop()
    }
}

impl Controller for Pcc {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        if self.config.gap_spread > 0.0 {
            let part = f64::from(self.gap_rng.next_u32()) / f64::from(u32::MAX);
            self.gap = 1.0 + self.config.gap_spread * (2.0 * part - 1.0);
        }
        if let Some(start_up) = &mut self.pipelined {
            return start_up.on_sent(packet);
        }
        self.intervals.close_if_due(packet);
        self.conclude(packet.time);
        if !self.intervals.is_open()
            && let Some((id, mbps)) = self.control.next_probe()
        {
            self.rate = Bandwidth::from_mbps(mbps);
            let round_trips = self.control.interval_round_trips();
            let duration = self.rtt().mul_f64(round_trips).max(MIN_INTERVAL);
            let extent = IntervalExtent { duration, packets: MIN_INTERVAL_PACKETS };
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
                let rate = initial_rate(&self.config, &self.start, rtt.smoothed);
                // An interval as long as the assumed RTT of 333 ms would only waste time.
                if self.control.restart_at(rate.mbps()) {
                    self.intervals.clear();
                }
            }
            let mean = self.smoothed_rtt.replace(rtt.smoothed).unwrap_or(rtt.smoothed);
            self.bound();
            let central = self.control.central_mbps();
            if let Some(before) = self.path_window.on_rtt(event, central) {
                self.intervals.clear();
                self.control.learn_from(before);
            }
            // What is sent then is not what the interval's rate is.
            if self.path_window.is_trying() {
                self.intervals.on_app_limited();
            }
            let mut filter = self.ack_filter.as_mut();
            if filter.as_mut().is_none_or(|filter| filter.admits(event.now, rtt.latest, mean))
                && let Some(largest) = event.acked.last()
            {
                self.intervals.on_rtt(largest, event.now.since(largest.sent));
            }
        }
        let unbounded = self.unbounded_window_bytes();
        self.path_window.on_event(event, unbounded, self.mtu_bytes);
        if !event.acked.is_empty() {
            self.probe_timeouts = 0;
        }
        if let Some(before) = self.spurious_timeout.on_event(event) {
            self.pipelined = None;
            self.intervals.clear();
            self.control.learn_from(before);
        }
        if self.start_up_event(event) {
            return;
        }
        for packet in event.acked {
            self.intervals.on_acked(event.now, packet);
        }
        for packet in event.lost {
            self.intervals.on_lost(packet);
        }
        self.conclude(event.now);
    }

    fn on_packet_discarded(&mut self, number: u64) {
        self.intervals.on_discarded(number);
        if let Some(start_up) = &mut self.pipelined {
            start_up.on_discarded(number);
        }
    }

    fn on_spurious_loss(&mut self, _now: Time, packet: &LostPacket) {
        self.intervals.on_spurious_loss(packet.number);
        if let Some(start_up) = &mut self.pipelined {
            start_up.on_spurious_loss(packet);
        }
    }

    fn tune(&mut self, tuning: Tuning) -> bool {
        self.control.tune(tuning)
    }

    fn on_probe_timeout(&mut self, now: Time) {
        self.probe_timeouts = self.probe_timeouts.saturating_add(1);
        if self.probe_timeouts >= MIN_PROBE_TIMEOUTS {
            self.time_out(now);
        }
    }

    fn on_app_limited(&mut self, _now: Time, in_flight_bytes: u64) {
        self.intervals.on_app_limited();
        if let Some(start_up) = &mut self.pipelined {
            start_up.on_app_limited(in_flight_bytes);
        }
    }

    fn on_mtu(&mut self, mtu_bytes: u64) {
        self.mtu_bytes = mtu_bytes.max(1);
        self.bound();
    }

    fn init_from_path(&mut self, now: Time, path: &PathModel) {
        let rtt = match path.smoothed_rtt {
            Duration::ZERO => self.start.initial_rtt,
            rtt => rtt,
        };
        self.smoothed_rtt = Some(rtt);
        if let Some(min_rtt) = path.min_rtt {
            self.path_window.begin_with(now, min_rtt);
        }
        self.bound();
        let of_window = Bandwidth::from_bytes_and_time(path.window_bytes, rtt);
        // The window may be a multiple of what the path carries; the delivery rate is not.
        let rate = match path.max_delivery_rate {
            Bandwidth::ZERO => of_window,
            delivered => delivered.min(of_window),
        };
        self.intervals.clear();
        self.pipelined = None;
        // A latency-sensitive controller drains the standing queue in one round trip. Lowering the rate step by step
        // would end far below the link's rate, because each step waits for feedback.
        match path
            .standing_queue(STANDING_QUEUE_RTT_RATIO)
            .filter(|_| self.config.utility.is_latency_sensitive())
        {
            Some(queue) => {
                self.control.drain_and_learn_from(rate.mbps(), queue.div_duration_f64(rtt));
            }
            None => self.control.warm_start_at(rate.mbps()),
        }
        self.rate = self.idle_rate();
    }

    fn window_bytes(&self) -> u64 {
        self.path_window.bounded(self.unbounded_window_bytes()).max(2 * self.mtu_bytes)
    }

    /// Without what bounds the window only for a time, and with twice the headroom: the next path may be longer.
    fn steady_state_window_bytes(&self) -> u64 {
        self.unbounded_window_bytes() + self.rate.bytes_in(self.config.queue_headroom())
    }

    fn pacing_rate(&self) -> Bandwidth {
        if self.config.gap_spread == 0.0 {
            return self.rate;
        }
        let least = Bandwidth::from_mbps(MIN_RATE_MBPS);
        self.rate.scaled(1.0 / self.gap).clamp(least, Bandwidth::from_mbps(MAX_RATE_MBPS))
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics {
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

impl Pcc {
    /// The window without the bound after an overflow.
    fn unbounded_window_bytes(&self) -> u64 {
        let Some(rtt) = self.smoothed_rtt else {
            return self.start.initial_window_bytes.max(2 * self.mtu_bytes);
        };
        if let Some(window) = self.pipelined.as_ref().and_then(Pipelined::window_bytes) {
            return window
                .max(self.start.initial_window_bytes)
                .max(MIN_WINDOW_PACKETS * self.mtu_bytes);
        }
        let time_s = match self.path_window.horizon_s() {
            Some(horizon_s) => horizon_s,
            None => (rtt * WINDOW_RTTS).max(rtt + MIN_WINDOW_HEADROOM).as_secs_f64(),
        };
        // Called for each packet: exact arithmetic would dominate the cost.
        let window = self.rate.bits_per_s() as f64 / 8.0 * time_s;
        (window as u64).max(MIN_WINDOW_PACKETS * self.mtu_bytes)
    }
}

/// The configured rate, else the initial window per round trip (RFC 9002, Section 7.2), or per interval if that is
/// longer: ten packets in 0.1 ms would be more than 1 Gbit/s.
fn initial_rate(config: &PccConfig, start: &PathStart, rtt: Duration) -> Bandwidth {
    if let Some(mbps) = config.initial_rate_mbps {
        return Bandwidth::from_mbps(mbps);
    }
    Bandwidth::from_bytes_and_time(start.initial_window_bytes, rtt.max(MIN_INTERVAL))
}
