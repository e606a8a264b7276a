use std::time::Duration;

use crate::{Bandwidth, Time};

/// Time between two portions of data. A wake-up for each packet would cost more, and a longer time larger bursts:
/// 5 Mbit/s are two packets in 5 ms, RFC 9002, Section 7.7, allows ten.
const INTERVAL: Duration = Duration::from_millis(5);
/// Smallest portion in bytes: two packets.
const MIN_PORTION_BYTES: u64 = 2400;
/// Portions that may go at once: one, and another for a late wake-up.
const MAX_PORTIONS: u32 = 2;

/// Limits data to a rate, in portions. It begins full.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Bandwidth,
    /// The rate is used up to this moment.
    used_until: Time,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: Bandwidth, now: Time) -> Self {
        let mut bucket = Self { rate, used_until: Time::ZERO };
        bucket.used_until = bucket.oldest(now);
        bucket
    }

    /// The rate.
    #[must_use]
    pub fn rate(&self) -> Bandwidth {
        self.rate
    }

    /// Continues with another rate.
    pub fn set_rate(&mut self, rate: Bandwidth) {
        self.rate = rate;
    }

    /// Bytes that may go now: none, or at least a portion.
    #[must_use]
    pub fn allowed_bytes(&self, now: Time) -> u64 {
        let unused = now.since(self.used_until.max(self.oldest(now)));
        if unused < self.portion_time() { 0 } else { self.rate.bytes_in(unused) }
    }

    /// When bytes may go, if none may now.
    #[must_use]
    pub fn ready(&self) -> Time {
        self.used_until + self.portion_time()
    }

    /// So many have gone.
    pub fn take(&mut self, bytes: u64, now: Time) {
        self.used_until = self.used_until.max(self.oldest(now)) + self.rate.time_for(bytes);
    }

    fn portion_time(&self) -> Duration {
        INTERVAL.max(self.rate.time_for(MIN_PORTION_BYTES))
    }

    /// Older time is lost: nothing is caught up on.
    fn oldest(&self, now: Time) -> Time {
        let depth = self.portion_time().saturating_mul(MAX_PORTIONS);
        let depth_ns = u64::try_from(depth.as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(now.as_nanos().saturating_sub(depth_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 kB/ms, hence portions of 50 kB.
    const RATE: Bandwidth = Bandwidth::from_bits_per_s(80_000_000);

    fn at(ms: u64) -> Time {
        Time::from_nanos(1_000_000 * ms)
    }

    /// Bytes within a second, where the owner looks when the bucket is ready and `late` after.
    fn bytes_in_a_second(rate: Bandwidth, late: Duration) -> u64 {
        let mut bucket = TokenBucket::new(rate, at(1000));
        let (mut now, mut bytes) = (at(1000), 0);
        bucket.take(bucket.allowed_bytes(now), now);
        while now < at(2000) {
            now = bucket.ready() + late;
            let allowed = bucket.allowed_bytes(now);
            assert!(allowed > 0, "ready at {now:?}");
            bucket.take(allowed, now);
            bytes += allowed;
        }
        bytes
    }

    #[test]
    fn a_second_has_the_bytes_of_the_rate() {
        for mbps in [0.1, 0.5, 5.25, 80.0, 1000.0] {
            let rate = Bandwidth::from_mbps(mbps);
            let expected = rate.bytes_in(Duration::from_secs(1));
            let bytes = bytes_in_a_second(rate, Duration::ZERO);
            let off = bytes.abs_diff(expected);
            let portion = rate.bytes_in(2 * INTERVAL).max(2 * MIN_PORTION_BYTES);
            assert!(off <= portion, "{mbps} Mbit/s: {bytes} not {expected}");
        }
    }

    #[test]
    fn a_wake_up_that_is_late_by_a_portion_costs_no_rate() {
        let exact = bytes_in_a_second(RATE, Duration::ZERO);
        let late = bytes_in_a_second(RATE, INTERVAL);
        assert!(late.abs_diff(exact) <= 100_000, "{late} {exact}");
        let too_late = bytes_in_a_second(RATE, 3 * INTERVAL);
        assert!(too_late < exact * 6 / 10, "{too_late} {exact}");
    }

    #[test]
    fn idle_time_allows_two_portions() {
        let mut bucket = TokenBucket::new(RATE, at(1000));
        assert_eq!(bucket.allowed_bytes(at(1000)), 100_000, "it begins full");
        bucket.take(100_000, at(1000));
        assert_eq!((bucket.allowed_bytes(at(1004)), bucket.ready()), (0, at(1005)));
        assert_eq!(bucket.allowed_bytes(at(1005)), 50_000);
        assert_eq!(bucket.allowed_bytes(at(9000)), 100_000);
    }

    #[test]
    fn another_rate_continues_where_the_first_was() {
        let mut bucket = TokenBucket::new(RATE, at(1000));
        bucket.take(100_000, at(1000));
        bucket.set_rate(RATE.scaled(0.5));
        assert_eq!((bucket.allowed_bytes(at(1004)), bucket.allowed_bytes(at(1005))), (0, 25_000));
    }
}
