//! The emulator's report of a run.

use hdrhistogram::Histogram;
use millrace_sim::link::PipeCounters;
use serde::Serialize;

use super::port::FrameIo;

/// Largest value that the histograms resolve: 10 s in nanoseconds.
const MAX_RECORDED_NS: u64 = 10_000_000_000;

/// Later than this is late.
const MIN_LATE_NS: u64 = 1_000_000;

/// Durations of one kind.
#[derive(Debug)]
pub struct Durations {
    histogram: Histogram<u64>,
    late: u64,
}

impl Default for Durations {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_RECORDED_NS, 3)
            .expect("1 ns to 10 s with three digits are valid bounds");
        Self { histogram, late: 0 }
    }
}

impl Durations {
    /// Counts `ns`; what exceeds ten seconds counts as ten seconds.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
        self.late += u64::from(ns > MIN_LATE_NS);
    }

    /// The figures.
    #[must_use]
    pub fn summary(&self) -> Quantiles {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(self.histogram.value_at_quantile(quantile));
        Quantiles {
            count: self.histogram.len(),
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.histogram.max()),
            above_1ms: self.late,
        }
    }
}

/// Quantiles of durations, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Quantiles {
    /// How many were measured.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
    /// How many exceeded one millisecond.
    pub above_1ms: u64,
}

/// Packets delivered, by transport.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Transports {
    /// TCP packets.
    pub tcp_packets: u64,
    /// UDP packets.
    pub udp_packets: u64,
    /// Anything else.
    pub other_packets: u64,
}

impl Transports {
    /// Counts a packet by its IP protocol number, `None` when it is not IP.
    pub fn count(&mut self, protocol: Option<u8>) {
        match protocol {
            Some(6) => self.tcp_packets += 1,
            Some(17) => self.udp_packets += 1,
            _ => self.other_packets += 1,
        }
    }
}

/// One direction over the whole run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PipeReport {
    /// Packets and bytes.
    #[serde(flatten)]
    pub counters: PipeCounters,
    /// What was delivered.
    #[serde(flatten)]
    pub transports: Transports,
    /// Packets inside when the emulator stopped.
    pub inside_packets: u64,
    /// Delivered bits over the time from the first arrival to the last delivery, in Mbit/s.
    pub delivered_mbps: f64,
    /// Random losses over arrivals.
    pub loss_rate: f64,
    /// Waiting time in the buffer.
    pub waited: Quantiles,
}

/// A finished run of the emulator.
#[derive(Debug, Clone, Serialize)]
pub struct EmulatorReport {
    /// How long it ran, in seconds.
    pub duration_s: f64,
    /// Server to client.
    pub down: PipeReport,
    /// Client to server.
    pub up: PipeReport,
    /// How late packets were handed to the outgoing interface.
    pub lateness: Quantiles,
    /// How long packets lay in the kernel before the emulator read them. The emulated time starts
    /// at the kernel's stamp, so this delays nothing unless it exceeds the propagation.
    pub read_delay: Quantiles,
    /// Frames that the kernel dropped before the emulator read them.
    pub kernel_drops: u64,
    /// Frames that the outgoing interface refused.
    pub send_errors: u64,
    /// Frames above the link's MTU: segmentation offload was not off.
    pub oversize_frames: u64,
    /// Processor time of the emulator's thread, in seconds.
    pub cpu_s: f64,
    /// The thread's scheduling class.
    pub priority: &'static str,
    /// How it sent and received frames.
    pub frame_io: FrameIo,
    /// Why the run is invalid; empty for a valid run.
    pub invalid: Vec<String>,
}

impl EmulatorReport {
    /// Applies the validity rules: no drop inside the emulator, packets on time, processor time to spare.
    pub(super) fn judge(&mut self) {
        let mut reasons = Vec::new();
        if self.kernel_drops > 0 {
            reasons.push(format!("{} frames dropped before the emulator", self.kernel_drops));
        }
        if self.send_errors > 0 {
            reasons.push(format!("{} frames refused by the outgoing interface", self.send_errors));
        }
        if self.oversize_frames > 0 {
            reasons.push(format!("{} frames above the MTU", self.oversize_frames));
        }
        if self.lateness.p99_us > 500.0 {
            reasons.push(format!("lateness p99 {:.0} us > 500 us", self.lateness.p99_us));
        }
        if self.lateness.above_1ms * 200 > self.lateness.count {
            reasons.push(format!("{} packets late by more than 1 ms", self.lateness.above_1ms));
        }
        if self.lateness.max_us > 20_000.0 {
            reasons.push(format!("a packet late by {:.1} ms", self.lateness.max_us / 1e3));
        }
        if self.cpu_s > 0.85 * self.duration_s {
            reasons.push(format!("emulator used {:.1} s of {:.1} s", self.cpu_s, self.duration_s));
        }
        self.invalid = reasons;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_recorded() {
        let mut durations = Durations::default();
        for us in 1..=1000 {
            durations.record(us * 1000);
        }
        durations.record(5_000_000);
        let summary = durations.summary();
        assert_eq!(summary.count, 1001);
        assert!((summary.p50_us - 500.0).abs() < 2.0, "{}", summary.p50_us);
        assert!((summary.p99_us - 990.0).abs() < 3.0, "{}", summary.p99_us);
        assert!((summary.max_us - 5000.0).abs() < 6.0, "{}", summary.max_us);
        assert_eq!(summary.above_1ms, 1);
    }
}
