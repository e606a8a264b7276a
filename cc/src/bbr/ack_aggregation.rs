use std::time::Duration;

use crate::estimators::WindowedMax;
use crate::{Bandwidth, Time};

/// Round trips that the maximum covers (draft-ietf-ccwg-bbr, BBR.ExtraAckedFilterLen).
const FILTER_ROUNDS: u64 = 10;
/// The allowance is at most this time of the rate (Linux 5.1, `bbr_extra_acked_max_us`).
const MAX_ALLOWANCE_TIME: Duration = Duration::from_millis(100);

/// Bytes acknowledged beyond the expected rate. That much must be in flight beyond the bandwidth-delay product,
/// so that the sender does not stall between bunched acknowledgements (draft-ietf-ccwg-bbr, Section
/// "BBR.extra_acked").
#[derive(Clone, Debug)]
pub(super) struct AckAggregation {
    epoch_start: Time,
    epoch_bytes: u64,
    excess_bytes: WindowedMax<u64>,
}

impl AckAggregation {
    pub(super) fn new(now: Time) -> Self {
        Self { epoch_start: now, epoch_bytes: 0, excess_bytes: WindowedMax::new(FILTER_ROUNDS) }
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.epoch_start = now;
        self.epoch_bytes = 0;
    }

    /// Sets the round trips that the maximum covers.
    pub(super) fn set_rounds(&mut self, rounds: u64) {
        self.excess_bytes.set_window(rounds);
    }

    pub(super) fn on_acked(&mut self, now: Time, acked: &Acknowledged) {
        let mut expected_bytes = acked.rate.bytes_in(now - self.epoch_start);
        if self.epoch_bytes <= expected_bytes {
            self.restart(now);
            expected_bytes = 0;
        }
        self.epoch_bytes = self.epoch_bytes.saturating_add(acked.bytes);
        let excess = (self.epoch_bytes - expected_bytes).min(acked.window_bytes);
        self.excess_bytes.add(acked.round, excess);
    }

    /// The allowance at `rate`.
    pub(super) fn excess_bytes(&self, rate: Bandwidth) -> u64 {
        self.excess_bytes.get().unwrap_or(0).min(rate.bytes_in(MAX_ALLOWANCE_TIME))
    }
}

/// Input of [`AckAggregation`] for an acknowledgement.
pub(super) struct Acknowledged {
    pub(super) bytes: u64,
    pub(super) round: u64,
    /// The expected rate.
    pub(super) rate: Bandwidth,
    pub(super) window_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(every_ms: u64, bytes: u64) -> u64 {
        let mut aggregation = AckAggregation::new(Time::ZERO);
        let rate = Bandwidth::from_mbps(8.0);
        for ack in 1..200 {
            let now = Time::from_nanos(ack * every_ms * 1_000_000);
            let acked = Acknowledged { bytes, round: ack / 10, rate, window_bytes: 100_000 };
            aggregation.on_acked(now, &acked);
        }
        aggregation.excess_bytes(rate)
    }

    #[test]
    fn the_allowance_is_what_comes_at_once() {
        // 8 Mbit/s are 1000 bytes a millisecond.
        assert_eq!(run(2, 2000), 2000, "a bunch of two");
        assert_eq!(run(20, 20_000), 20_000);
        assert_eq!(run(200, 200_000), 100_000, "as much as the window or 100 ms");
        // Twice the rate: the excess adds up to the window.
        assert_eq!(run(1, 2000), 100_000);
    }

    #[test]
    fn an_allowance_is_forgotten_after_ten_rounds() {
        let mut aggregation = AckAggregation::new(Time::ZERO);
        let rate = Bandwidth::from_mbps(8.0);
        for round in 1..=12 {
            let bytes = if round == 1 { 50_000 } else { 1000 };
            let now = Time::from_nanos(round * 100_000_000);
            let acked = Acknowledged { bytes, round, rate, window_bytes: 100_000 };
            aggregation.on_acked(now, &acked);
            assert_eq!(aggregation.excess_bytes(rate), if round < 12 { 50_000 } else { 1000 });
        }
    }
}
