//! Pauses between attempts to reach a server.

use std::time::{Duration, Instant};

/// Pauses between attempts to connect. Each is twice the one before, with random jitter so that the
/// clients of a restarted server do not all reconnect at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    /// A back-off without failures.
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0, not_before: None }
    }

    /// An attempt failed. `jitter` is uniform in 0..1.
    pub(crate) fn failed(&mut self, now: Instant, jitter: f64) {
        let pause = self.min.saturating_mul(1 << self.failures.min(20)).min(self.max);
        self.failures += 1;
        self.not_before = Some(now + pause.mul_f64(0.5 + 0.5 * jitter));
    }

    /// Allows the next attempt at once. The pause after it is not changed.
    pub(crate) fn retry_now(&mut self) {
        self.not_before = None;
    }

    /// A connection lasted for `time`. If that is at least the longest pause, the next pause is the
    /// shortest again. A server that accepts connections and closes them at once, for example because it
    /// rejects the client's certificate (RFC 8446, Section 2), is not tried more often than a silent one.
    pub(crate) fn lasted(&mut self, time: Duration) {
        if time >= self.max {
            self.failures = 0;
        }
    }

    /// Whether the next attempt may be made.
    pub(crate) fn ready(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| at <= now)
    }

    /// When the next attempt may be made, if that is not now.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.not_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(min, max);
        let now = Instant::now();
        assert!(backoff.ready(now));
        for expected_ms in [100, 200, 400, 800, 1000, 1000] {
            backoff.failed(now, 1.0);
            assert_eq!(backoff.next(), Some(now + Duration::from_millis(expected_ms)));
        }
        backoff.retry_now();
        assert!(backoff.ready(now));
        backoff.lasted(max / 2);
        backoff.failed(now, 0.0);
        assert_eq!(backoff.next(), Some(now + max / 2), "it lasted for a moment only");
        backoff.lasted(max);
        backoff.failed(now, 0.0);
        assert_eq!(backoff.next(), Some(now + min / 2));
        assert!(!backoff.ready(now));
    }
}
