use std::time::Duration;

use super::recovery::RecoveryPeriods;
use super::usage::WindowUse;
use crate::estimators::{PersistentCongestion, RoundCounter};
use crate::{
    AckedPacket, Bandwidth, CongestionEvent, PathModel, PathStart, RttSample, SentPacket, Time,
};

/// kMinimumWindow (RFC 9002, Section 7.2).
const MIN_WINDOW_PACKETS: u64 = 2;
/// Largest window: only there to keep arithmetic finite. 100 Gbit/s times 5 s.
const MAX_WINDOW_BYTES: f64 = (1_u64 << 36) as f64;
/// Pacing rate in windows per smoothed RTT: more than 1 because the RTT varies (RFC 9002, Section 7.7:
/// N = 1.25).
const PACING_GAIN: f64 = 1.25;
/// Pacing rate in slow start, where the window doubles within the paced round trip (Linux,
/// `tcp_pacing_ss_ratio`: 200 %).
const SLOW_START_PACING_GAIN: f64 = 2.0;
/// RTT for pacing before the first sample. The initial window may leave as a burst (RFC
/// 9002, Section 7.7); the value is Linux's.
const NOMINAL_RTT: Duration = Duration::from_millis(1);
/// Bounds of the pacing rate, 10^6 bit/s: only there to keep arithmetic finite.
const MIN_RATE_MBPS: f64 = 0.01;
const MAX_RATE_MBPS: f64 = 100_000.0;

/// Common part of all window algorithms: the window, slow start and its threshold, recovery periods,
/// rounds, and whether the window was used.
///
/// The window is a real number of bytes: at 10 Gbit/s and 2 s the growth for one
/// acknowledged packet is less than a byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowCore {
    window: f64,
    /// Infinite until the first congestion event.
    slow_start_threshold: f64,
    mtu_bytes: u64,
    rtt: Option<RttSample>,
    rounds: RoundCounter,
    usage: WindowUse,
    recovery: RecoveryPeriods,
    persistent: PersistentCongestion,
    before_reduction: Option<Reduction>,
    last_sent: Option<Time>,
    /// Whether the sender ran out of data since the last packet. Without that an empty flight is no pause: a
    /// window of two packets is empty whenever both are acknowledged.
    starved_since_sent: bool,
    idle_restart: bool,
    restart_window: f64,
}

/// State before a reduction, restored after spurious losses.
#[derive(Clone, Copy, Debug)]
struct Reduction {
    window: f64,
    slow_start_threshold: f64,
}

/// The parts of an event that change the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckEvent {
    pub(crate) now: Time,
    /// Present when there is a new RTT sample.
    pub(crate) rtt: Option<RttSample>,
    /// Bytes acknowledged now.
    pub(crate) delivered_bytes: u64,
    /// Bytes of these that let the window grow: sent after the latest recovery period began, with a
    /// window in use.
    pub(crate) growth_bytes: u64,
    /// Whether the window was in use.
    pub(crate) used: bool,
    /// Whether a round trip ended.
    pub(crate) round_ended: bool,
}

/// Congestion shown by an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Congestion {
    None,
    /// A recovery period begins.
    Loss,
    /// RFC 9002, Section 7.6.
    Persistent,
}

impl WindowCore {
    pub(crate) fn new(start: &PathStart) -> Self {
        let mut core = Self {
            window: 0.0,
            slow_start_threshold: f64::INFINITY,
            mtu_bytes: start.mtu_bytes.max(1),
            rtt: None,
            rounds: RoundCounter::default(),
            usage: WindowUse::default(),
            recovery: RecoveryPeriods::default(),
            persistent: PersistentCongestion::default(),
            before_reduction: None,
            last_sent: None,
            starved_since_sent: false,
            idle_restart: false,
            restart_window: start.initial_window_bytes as f64,
        };
        core.set_window(start.initial_window_bytes as f64);
        core
    }

    /// Lets the window decay while the sender is idle (RFC 5681, Section 4.1). RFC 9002, Section 7.8
    /// requires that of senders that do not pace.
    pub(crate) fn with_idle_restart(mut self) -> Self {
        self.idle_restart = true;
        self
    }

    pub(crate) fn mtu(&self) -> f64 {
        self.mtu_bytes as f64
    }

    pub(crate) fn window(&self) -> f64 {
        self.window
    }

    /// The window in packets, which formulas of TCP call segments.
    pub(crate) fn packets(&self) -> f64 {
        self.window / self.mtu()
    }

    pub(crate) fn window_bytes(&self) -> u64 {
        self.window as u64
    }

    pub(crate) fn slow_start_threshold(&self) -> f64 {
        self.slow_start_threshold
    }

    pub(crate) fn is_slow_start(&self) -> bool {
        self.window < self.slow_start_threshold
    }

    pub(crate) fn is_recovery(&self) -> bool {
        self.recovery.is_active()
    }

    /// Whether the sender was out of data in this round or the one before.
    pub(crate) fn is_starved(&self) -> bool {
        self.usage.is_starved()
    }

    pub(crate) fn rtt(&self) -> Option<&RttSample> {
        self.rtt.as_ref()
    }

    pub(crate) fn set_window(&mut self, window: f64) {
        let least = (MIN_WINDOW_PACKETS * self.mtu_bytes) as f64;
        self.window = window.min(MAX_WINDOW_BYTES).max(least);
    }

    /// Ends slow start: the threshold becomes the window.
    pub(crate) fn end_slow_start(&mut self) {
        self.slow_start_threshold = self.window;
    }

    pub(crate) fn begin_slow_start(&mut self) {
        self.slow_start_threshold = f64::INFINITY;
    }

    /// Grows by `bytes`, up to the threshold (RFC 9002, Section 7.3.1).
    pub(crate) fn slow_start(&mut self, bytes: f64) {
        self.set_window((self.window + bytes).min(self.slow_start_threshold));
    }

    /// Grows by `packets` packets per window acknowledged: with 1, RFC 9002, Section 7.3.3.
    pub(crate) fn grow_additively(&mut self, packets: f64, acked_bytes: u64) {
        let window = self.window + packets * self.mtu() * acked_bytes as f64 / self.window;
        self.set_window(window);
    }

    /// Slow start, then congestion avoidance (RFC 9002, Section 7.3).
    pub(crate) fn grow_as_reno(&mut self, acked_bytes: u64) {
        match self.is_slow_start() {
            true => self.slow_start(acked_bytes as f64),
            false => self.grow_additively(1.0, acked_bytes),
        }
    }

    /// A congestion event: window and threshold fall to `window`.
    pub(crate) fn reduce_to(&mut self, window: f64) {
        self.before_reduction = Some(Reduction {
            window: self.window,
            slow_start_threshold: self.slow_start_threshold,
        });
        self.set_window(window);
        self.slow_start_threshold = self.window;
    }

    /// Persistent congestion (RFC 9002, Section 7.6.2 and Appendix B.8).
    pub(crate) fn collapse(&mut self) {
        self.set_window(0.0);
        self.recovery.clear();
        self.before_reduction = None;
    }

    /// A packet leaves. Returns how long the sender was idle before it, if it was.
    pub(crate) fn on_sent(&mut self, packet: &SentPacket) -> Option<Duration> {
        self.rounds.on_sent(packet);
        let idle = self
            .last_sent
            .filter(|_| packet.prior_in_flight_bytes == 0 && self.starved_since_sent)
            .map(|last_sent| packet.time - last_sent);
        if let Some(idle) = idle {
            self.restart_after(idle);
        }
        self.last_sent = Some(packet.time);
        self.starved_since_sent = false;
        let flight_bytes = packet.prior_in_flight_bytes + packet.bytes;
        self.usage.on_sent(flight_bytes, self.window_bytes(), self.mtu_bytes);
        idle
    }

    /// RFC 5681, Section 4.1, with the halving per timeout of RFC 2861, Section 2, as in Linux
    /// (`tcp_cwnd_restart`).
    fn restart_after(&mut self, idle: Duration) {
        let Some(rtt) = self.rtt.filter(|_| self.idle_restart) else { return };
        let timeout = (rtt.smoothed + 4 * rtt.variation).max(Duration::from_millis(200));
        let timeouts = (idle.as_nanos() / timeout.as_nanos()).min(64) as i32;
        if timeouts == 0 || self.window <= self.restart_window {
            return;
        }
        self.slow_start_threshold = self.slow_start_threshold.max(0.75 * self.window);
        let halved = self.window * 0.5_f64.powi(timeouts);
        self.set_window(halved.max(self.restart_window));
    }

    pub(crate) fn on_starved(&mut self) {
        self.usage.on_starved();
        self.starved_since_sent = true;
    }

    /// Processes an event. Losses come before acknowledgements (RFC 9002, Appendix A.7).
    pub(crate) fn on_event(&mut self, event: &CongestionEvent<'_>) -> (Congestion, AckEvent) {
        if event.app_limited {
            self.on_starved();
        }
        self.rtt = event.rtt.or(self.rtt);
        let persistent =
            self.persistent.on_event(event.now, event.acked, event.lost, self.rtt.as_ref());
        let begins = self.recovery.on_event(event);
        let ack = self.acknowledge(event);
        let congestion = match (persistent, begins) {
            (true, _) => Congestion::Persistent,
            (false, true) => Congestion::Loss,
            (false, false) => Congestion::None,
        };
        (congestion, ack)
    }

    fn acknowledge(&mut self, event: &CongestionEvent<'_>) -> AckEvent {
        let used = self.usage.is_used(self.window_bytes(), self.is_slow_start());
        let bytes = |counts: &dyn Fn(&AckedPacket) -> bool| {
            event.acked.iter().filter(|packet| counts(packet)).map(|packet| packet.bytes).sum()
        };
        let round_ended = self.rounds.on_acked(event.acked);
        if round_ended {
            self.usage.on_round();
        }
        AckEvent {
            now: event.now,
            rtt: event.rtt,
            delivered_bytes: bytes(&|_| true),
            growth_bytes: bytes(&|packet| used && !self.recovery.covers(packet.sent)),
            used,
            round_ended,
        }
    }

    /// A loss was spurious. Returns whether the latest reduction was undone because all of its losses were
    /// (RFC 9438, Section 4.9; Linux, `tcp_undo_cwnd_reduction`).
    pub(crate) fn on_spurious_loss(&mut self, sent: Time) -> bool {
        if !self.recovery.on_spurious_loss(sent) {
            return false;
        }
        let Some(before) = self.before_reduction.take() else { return false };
        self.set_window(self.window.max(before.window));
        self.slow_start_threshold = self.slow_start_threshold.max(before.slow_start_threshold);
        true
    }

    /// RFC 9002, Section 7.2: the initial window consists of full packets.
    pub(crate) fn on_mtu(&mut self, mtu_bytes: u64) {
        let before = self.mtu();
        self.mtu_bytes = mtu_bytes.max(1);
        let window = match self.rtt {
            None => self.window * self.mtu() / before,
            Some(_) => self.window,
        };
        self.set_window(window);
    }

    /// Warm start at what the path carried: the bytes in flight at its highest recent rate (rate times RTT), at most
    /// the previous window, which may be a multiple of that.
    pub(crate) fn init_from_path(&mut self, path: &PathModel) {
        let carried = path.max_delivery_rate.bytes_in(path.smoothed_rtt);
        let window = match carried {
            0 => path.window_bytes,
            carried => carried.min(path.window_bytes),
        };
        self.set_window(window as f64);
        self.end_slow_start();
        self.before_reduction = None;
        if let Some(min) = path.min_rtt {
            let (latest, smoothed) = (path.latest_rtt, path.smoothed_rtt);
            let sample = RttSample { latest, smoothed, variation: path.rtt_variation, min };
            self.rtt = Some(sample);
        }
    }

    /// The pacing rate (RFC 9002, Section 7.7).
    pub(crate) fn pacing_rate(&self) -> Bandwidth {
        let gain = if self.is_slow_start() { SLOW_START_PACING_GAIN } else { PACING_GAIN };
        self.paced_at(gain, self.rtt.map(|rtt| rtt.smoothed))
    }

    /// `gain` windows per `rtt`.
    pub(crate) fn paced_at(&self, gain: f64, rtt: Option<Duration>) -> Bandwidth {
        let rtt_s = rtt.unwrap_or(NOMINAL_RTT).as_secs_f64().max(1e-9);
        let mbps = gain * self.window * 8.0 / 1e6 / rtt_s;
        Bandwidth::from_mbps(mbps.clamp(MIN_RATE_MBPS, MAX_RATE_MBPS))
    }

    /// The rate of a sender that does not pace.
    pub(crate) fn unpaced_rate() -> Bandwidth {
        Bandwidth::from_mbps(MAX_RATE_MBPS)
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
