//! Memory in use by connections and flows, and the choice of flows to reset above the cap.
//!
//! Looked at once a tick: packets touch nothing of this. Windows that were promised do not count.
//! They are bounded for each stream by what its own reader takes (quiche's `set_min_stream_window`).

use std::time::{Duration, Instant};

use crate::tick::TICK;

/// The least window of a stream: that of a stream with a paused reader.
pub const MIN_STREAM_WINDOW_BYTES: u64 = 256 << 10;
/// The memory of a connection beside its streams' data: TLS, timers and tables. Measured: 500 idle connections
/// of one flow each raise the resident memory by 45 kB each at the client and 44 to 48 kB at the server.
pub const CONNECTION_BYTES: u64 = 46_000;
/// What is kept of each packet in flight, in bytes per byte in flight: one part in this many.
pub(crate) const IN_FLIGHT_DIVISOR: u64 = 4;
/// Eviction ends at this part of the cap, so that not each tick evicts.
const EVICT_TO_CAP_FRACTION: (u64, u64) = (15, 16);
/// Flows whose reader takes all that they hold within this time are never reset ...
const MAX_ACTIVE_DRAIN_TIME: Duration = Duration::from_secs(1);
/// ... unless it has taken nothing for so many ticks.
const MIN_STILL_TICKS: u32 = 4;
/// Flows are not reset before they are so old.
pub(crate) const MIN_RESET_AGE: Duration = Duration::from_secs(2);
/// Windows beyond the least one may promise this part of the cap together ...
const EXCESS_CAP_DIVISOR: u64 = 4;
/// ... and each of them no more than one part in this many of what is left of it.
const EXCESS_REST_DIVISOR: u64 = 8;
/// Evictions are logged at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What one connection was last seen to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBytes {
    /// Memory, in bytes.
    pub(crate) bytes: u64,
    /// What its windows beyond the least ones promise.
    pub(crate) promised_bytes: u64,
}

/// How much of one flow's data its reader took in the last ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainMeter {
    /// Parts of [`Self::PART_TICKS`] ticks, the newest first.
    parts: [u64; Self::PARTS],
    ticks: u32,
    still_ticks: u32,
    counted: u64,
}

impl DrainMeter {
    /// Four parts of 2.5 s, of which the newest is not over yet.
    const PARTS: usize = 4;
    /// Ticks of a part: 2.5 s.
    const PART_TICKS: u32 = 10;

    /// A tick has passed; `bytes` is the count since the beginning.
    pub(crate) fn tick(&mut self, bytes: u64) {
        self.ticks += 1;
        if self.ticks == Self::PART_TICKS {
            self.ticks = 0;
            self.parts.rotate_right(1);
            self.parts[0] = 0;
        }
        let drained = bytes.saturating_sub(self.counted);
        self.still_ticks = if drained > 0 { 0 } else { self.still_ticks.saturating_add(1) };
        self.parts[0] += drained;
        self.counted = bytes;
    }

    /// Whether the reader has taken nothing of `held` bytes lately.
    pub(crate) fn is_still(&self, held: u64) -> bool {
        held > 0 && self.still_ticks >= MIN_STILL_TICKS
    }

    /// How long the reader needs for `held` bytes at that rate, for a flow of this age.
    pub(crate) fn time_for(&self, held: u64, age: Duration) -> Duration {
        let ticks = (Self::PARTS as u32 - 1) * Self::PART_TICKS + self.ticks + 1;
        let span = age.clamp(TICK, TICK * ticks);
        let drained = self.parts.iter().sum::<u64>().max(1);
        Duration::try_from_secs_f64(span.as_secs_f64() * held as f64 / drained as f64)
            .unwrap_or(Duration::MAX)
    }
}

/// A flow that may be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) slot: usize,
    pub(crate) conn: usize,
    pub(crate) held: u64,
    pub(crate) drain_time: Duration,
    pub(crate) is_still: bool,
}

/// The flows to reset so that `excess` bytes become free: those that take longest first.
pub(crate) fn choose(mut candidates: Vec<Candidate>, excess: u64) -> Vec<Candidate> {
    candidates.retain(|it| it.held > 0 && (it.is_still || it.drain_time > MAX_ACTIVE_DRAIN_TIME));
    candidates.sort_unstable_by_key(|it| std::cmp::Reverse((it.drain_time, it.held)));
    let mut freed = 0;
    let goes = |it: &Candidate| {
        let is_needed = freed < excess;
        freed += it.held;
        is_needed
    };
    candidates.into_iter().take_while(goes).collect()
}

/// Flows that were reset for their memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EvictedFlows {
    pub(crate) flows: usize,
    pub(crate) bytes: u64,
}

/// Evictions that have not been logged yet.
#[derive(Debug, Default)]
pub(crate) struct EvictionLog {
    waiting: EvictedFlows,
    logged: Option<Instant>,
}

impl EvictionLog {
    /// Adds some. Returns all that have not been logged, if they are to be logged now.
    pub(crate) fn add(&mut self, now: Instant, evicted: EvictedFlows) -> Option<EvictedFlows> {
        self.waiting.flows += evicted.flows;
        self.waiting.bytes += evicted.bytes;
        if self.logged.is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.waiting))
    }
}

/// How large a stream's window may become while windows beyond the least promise `excess` bytes
/// together; without a bound while that is little.
pub(crate) fn window_limit(excess: u64, cap: u64) -> u64 {
    let pool = cap / EXCESS_CAP_DIVISOR;
    match pool.checked_sub(excess) {
        Some(left) if left >= pool / 2 => u64::MAX,
        Some(left) => (left / EXCESS_REST_DIVISOR).max(MIN_STREAM_WINDOW_BYTES),
        None => MIN_STREAM_WINDOW_BYTES,
    }
}

/// The part of what is beyond `cap` that one holder of `own` bytes out of `total` has to free.
pub(crate) fn share_of_excess(own: u64, total: u64, cap: u64) -> u64 {
    if total <= cap {
        return 0;
    }
    let excess = total - cap / EVICT_TO_CAP_FRACTION.1 * EVICT_TO_CAP_FRACTION.0;
    let share = u128::from(excess) * u128::from(own) / u128::from(total.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(slot: usize, held: u64, seconds: u64) -> Candidate {
        let drain_time = Duration::from_secs(seconds);
        Candidate { slot, conn: 0, held, drain_time, is_still: false }
    }

    fn slots(chosen: &[Candidate]) -> Vec<usize> {
        chosen.iter().map(|it| it.slot).collect()
    }

    #[test]
    fn flows_that_take_longest_are_reset_first_and_no_more_than_needed() {
        let flows = vec![
            candidate(0, 100, 5),
            candidate(1, 100, 50),
            candidate(2, 300, 500),
            candidate(3, 500, 500),
            // Active, empty.
            candidate(4, 10_000, 1),
            candidate(5, 0, 500),
        ];
        assert_eq!(slots(&choose(flows.clone(), 0)), [0; 0]);
        assert_eq!(slots(&choose(flows.clone(), 1)), [3]);
        assert_eq!(slots(&choose(flows.clone(), 501)), [3, 2]);
        assert_eq!(slots(&choose(flows, 1 << 20)), [3, 2, 1, 0]);
        let still = Candidate { is_still: true, ..candidate(6, 10, 0) };
        assert_eq!(slots(&choose(vec![still], 1)), [6]);
    }

    #[test]
    fn time_to_drain_goes_by_the_last_ten_seconds() {
        let mut meter = DrainMeter::default();
        let age = Duration::from_secs(100);
        for tick in 1..=40 {
            meter.tick(tick * 25_000);
        }
        // 100,000 bytes a second.
        let time = meter.time_for(200_000, age).as_secs_f64();
        assert!((1.9..2.2).contains(&time), "{time}");
        // A flow as young as one tick took all 775,000 counted bytes in that time.
        let time = meter.time_for(200_000, Duration::ZERO).as_secs_f64();
        assert!((0.064..0.065).contains(&time), "{time}");
        for _ in 0..40 {
            meter.tick(1_000_000);
        }
        // The reader is paused: what is held decides.
        assert!(meter.time_for(200_000, age) > Duration::from_secs(1_000_000));
        assert_eq!(meter.time_for(0, age), Duration::ZERO);
    }

    #[test]
    fn workers_free_their_share_of_what_is_too_much() {
        assert_eq!(share_of_excess(50, 160, 160), 0);
        assert_eq!(share_of_excess(170, 170, 160), 20);
        assert_eq!(share_of_excess(85, 170, 160), 10);
        assert_eq!(share_of_excess(0, 170, 160), 0);
    }

    #[test]
    fn windows_are_limited_once_half_of_the_pool_is_promised() {
        let cap = 512_000_000;
        assert_eq!(window_limit(0, cap), u64::MAX);
        assert_eq!(window_limit(64_000_000, cap), u64::MAX);
        assert_eq!(window_limit(96_000_000, cap), 4_000_000);
        assert_eq!(window_limit(128_000_000, cap), MIN_STREAM_WINDOW_BYTES);
        assert_eq!(window_limit(u64::MAX, cap), MIN_STREAM_WINDOW_BYTES);
    }

    #[test]
    fn evictions_are_logged_once_in_an_interval_and_none_is_left_out() {
        let (mut log, start) = (EvictionLog::default(), Instant::now());
        let one = EvictedFlows { flows: 1, bytes: 10 };
        let mut logged =
            |at| log.add(start + at, one).map(|EvictedFlows { flows, bytes }| (flows, bytes));
        assert_eq!(logged(Duration::ZERO), Some((1, 10)));
        assert_eq!(logged(LOG_INTERVAL / 2), None);
        assert_eq!(logged(LOG_INTERVAL), Some((2, 20)));
    }
}
