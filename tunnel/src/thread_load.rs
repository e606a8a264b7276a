//! Whether the thread of an event loop is short of processor time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// What the kernel says of the calling thread: nanoseconds on a processor and in the queue for one.
const SCHEDULER_STATISTICS: &str = "/proc/thread-self/schedstat";
/// Interval of measurements. The kernel counts with each timer interrupt, at least every 10 ms.
const INTERVAL: Duration = Duration::from_millis(20);
/// Share of the time that the thread runs or waits for a processor from which it is busy.
const MIN_BUSY_SHARE: f64 = 0.75;
/// The share below which it is no longer busy.
const MAX_IDLE_SHARE: f64 = 0.5;

/// The load of one thread.
#[derive(Debug)]
pub(crate) struct ThreadLoad {
    statistics: Option<File>,
    measured: Instant,
    used: Duration,
    is_high: bool,
}

impl ThreadLoad {
    /// The load of the calling thread from now on.
    pub(crate) fn of_this_thread() -> Self {
        let statistics = File::open(SCHEDULER_STATISTICS).ok();
        let used = processor_time(statistics.as_ref());
        Self { statistics, measured: Instant::now(), used, is_high: false }
    }

    /// Whether the thread was busy in the last interval.
    pub(crate) fn is_high(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.measured) >= INTERVAL {
            let used = processor_time(self.statistics.as_ref());
            self.update(now, used);
        }
        self.is_high
    }

    fn update(&mut self, now: Instant, used: Duration) {
        let interval = now.saturating_duration_since(self.measured);
        let share = used.saturating_sub(self.used).as_secs_f64() / interval.as_secs_f64();
        self.is_high = share >= if self.is_high { MAX_IDLE_SHARE } else { MIN_BUSY_SHARE };
        (self.measured, self.used) = (now, used);
    }
}

/// Time that the calling thread has run and waited for a processor; without the latter where the kernel does not tell.
fn processor_time(statistics: Option<&File>) -> Duration {
    let mut text = [0; 64];
    let read = statistics.and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
    parse(&text[..read]).unwrap_or_else(|| {
        // It does not fail for a thread's own clock.
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
    })
}

fn parse(statistics: &[u8]) -> Option<Duration> {
    let mut fields = std::str::from_utf8(statistics).ok()?.split_ascii_whitespace();
    let mut nanoseconds = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_nanos(nanoseconds()?.saturating_add(nanoseconds()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_time_on_a_processor_and_in_its_queue() {
        assert_eq!(parse(b"1000 500 3\n"), Some(Duration::from_nanos(1500)));
        assert_eq!(parse(b"1000\n"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn load_is_high_from_three_quarters_until_below_a_half() {
        let start = Instant::now();
        let mut load =
            ThreadLoad { statistics: None, measured: start, used: Duration::ZERO, is_high: false };
        let mut used = Duration::ZERO;
        let shares = [(14, false), (15, true), (11, true), (9, false), (14, false), (20, true)];
        for (number, (used_ms, is_high)) in (1..).zip(shares) {
            used += Duration::from_millis(used_ms);
            load.update(start + INTERVAL * number, used);
            assert_eq!(load.is_high, is_high, "{used_ms} ms of 20");
        }
    }

    #[test]
    fn a_thread_that_computes_is_busy_and_one_that_sleeps_is_not() {
        let mut load = ThreadLoad::of_this_thread();
        let start = Instant::now();
        while start.elapsed() < 3 * INTERVAL {
            std::hint::black_box(start);
        }
        assert!(load.is_high(Instant::now()));
        std::thread::sleep(3 * INTERVAL);
        assert!(!load.is_high(Instant::now()));
    }
}
