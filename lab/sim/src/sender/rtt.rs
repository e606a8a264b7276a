use std::time::Duration;

use millrace_cc::RttSample;

/// RTT assumed before the first sample (RFC 9002, Section 6.2.2).
pub(crate) const INITIAL_RTT: Duration = Duration::from_millis(333);
/// Timer granularity (kGranularity, RFC 9002, Section 6.1.2).
const GRANULARITY_NS: u64 = 1_000_000;

/// RTT estimates in nanoseconds (RFC 9002, Section 5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    latest_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    min_ns: u64,
    sampled: bool,
}

impl Rtt {
    pub(super) fn new() -> Self {
        let initial_ns = INITIAL_RTT.as_nanos() as u64;
        Self {
            latest_ns: initial_ns,
            smoothed_ns: initial_ns,
            variation_ns: initial_ns / 2,
            min_ns: 0,
            sampled: false,
        }
    }

    /// RFC 9002, Section 5.3; the acknowledgement delay is no longer than the peer promised.
    pub(super) fn sample(&mut self, latest_ns: u64, ack_delay_ns: u64) -> RttSample {
        self.latest_ns = latest_ns;
        if !self.sampled {
            self.sampled = true;
            self.min_ns = latest_ns;
            self.smoothed_ns = latest_ns;
            self.variation_ns = latest_ns / 2;
        } else {
            self.min_ns = self.min_ns.min(latest_ns);
            let without_delay = latest_ns.saturating_sub(ack_delay_ns);
            let adjusted_ns = if without_delay >= self.min_ns { without_delay } else { latest_ns };
            let deviation_ns = self.smoothed_ns.abs_diff(adjusted_ns);
            self.variation_ns = (self.variation_ns * 3 + deviation_ns) / 4;
            self.smoothed_ns = (self.smoothed_ns * 7 + adjusted_ns) / 8;
        }
        RttSample {
            latest: Duration::from_nanos(self.latest_ns),
            smoothed: Duration::from_nanos(self.smoothed_ns),
            variation: Duration::from_nanos(self.variation_ns),
            min: Duration::from_nanos(self.min_ns),
        }
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.sampled.then(|| Duration::from_nanos(self.smoothed_ns))
    }

    /// `eighths` of the larger of the latest and the smoothed RTT (RFC 9002, Section 6.1.2: 9).
    pub(super) fn loss_delay_ns(&self, eighths: u64) -> u64 {
        (self.smoothed_ns.max(self.latest_ns) * eighths / 8).max(GRANULARITY_NS)
    }

    /// The probe timeout before any backoff (RFC 9002, Section 6.2.1).
    pub(super) fn probe_delay_ns(&self, max_ack_delay_ns: u64) -> u64 {
        self.smoothed_ns + (self.variation_ns * 4).max(GRANULARITY_NS) + max_ack_delay_ns
    }
}
