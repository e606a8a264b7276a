//! What connections and flows really hold in memory, and which flows are reset when it is too much.
//!
//! Looked at once a tick: packets touch nothing of this. Windows that were promised do not count.
//! They are bounded for each stream by what its own reader takes (quiche's `set_min_stream_window`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::conn::Conn;
use crate::core::Core;
use crate::flow::FlowEnd;

/// The least window of a stream, which one whose reader is paused has.
pub const MIN_STREAM_WINDOW_BYTES: u64 = 256 << 10;
/// The memory of a connection beside its streams' data: TLS, timers and tables. Measured: 500 idle connections
/// of one flow each raise the resident memory by 45 kB each at the client and 44 to 48 kB at the server.
pub const CONNECTION_BYTES: u64 = 46_000;
/// What is kept of each packet in flight, in bytes per byte in flight: one part in this many.
const IN_FLIGHT_SHARE: u64 = 4;
/// Eviction ends at this part of the cap, so that not each tick evicts.
const EVICT_TO: (u64, u64) = (15, 16);
/// Flows whose reader takes all that they hold within this time are never reset ...
const ACTIVE: Duration = Duration::from_secs(1);
/// ... unless it has taken nothing for so many ticks.
const STILL_TICKS: u32 = 4;
/// Flows are not reset before they are so old.
const NEW: Duration = Duration::from_secs(2);
/// Windows beyond the least one may promise this part of the cap together ...
const EXCESS_SHARE: u64 = 4;
/// ... and each of them no more than one part in this many of what is left of it.
const EXCESS_PART: u64 = 8;
/// Logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What one connection was last seen to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Memory, in bytes.
    pub(crate) bytes: u64,
    /// What its windows beyond the least ones promise.
    pub(crate) excess: u64,
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
    fn is_still(&self, held: u64) -> bool {
        held > 0 && self.still_ticks >= STILL_TICKS
    }

    /// How long the reader needs for `held` bytes at that rate, for a flow of this age.
    fn time_for(&self, held: u64, age: Duration) -> Duration {
        let ticks = (Self::PARTS as u32 - 1) * Self::PART_TICKS + self.ticks + 1;
        let span = age.clamp(Core::TICK, Core::TICK * ticks);
        let drained = self.parts.iter().sum::<u64>().max(1);
        Duration::try_from_secs_f64(span.as_secs_f64() * held as f64 / drained as f64)
            .unwrap_or(Duration::MAX)
    }
}

/// A flow that may be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    slot: usize,
    conn: usize,
    held: u64,
    time: Duration,
    is_still: bool,
}

/// The flows to reset so that `excess` bytes become free: those that take longest first.
fn choose(mut candidates: Vec<Candidate>, excess: u64) -> Vec<Candidate> {
    candidates.retain(|it| it.held > 0 && (it.is_still || it.time > ACTIVE));
    candidates.sort_unstable_by_key(|it| std::cmp::Reverse((it.time, it.held)));
    let mut freed = 0;
    let goes = |it: &Candidate| {
        let is_needed = freed < excess;
        freed += it.held;
        is_needed
    };
    candidates.into_iter().take_while(goes).collect()
}

/// How large a stream's window may become while windows beyond the least promise `excess` bytes
/// together; without a bound while that is little.
fn window_limit(excess: u64, cap: u64) -> u64 {
    let pool = cap / EXCESS_SHARE;
    match pool.checked_sub(excess) {
        Some(left) if left >= pool / 2 => u64::MAX,
        Some(left) => (left / EXCESS_PART).max(MIN_STREAM_WINDOW_BYTES),
        None => MIN_STREAM_WINDOW_BYTES,
    }
}

/// The part of what is beyond `cap` that one holder of `own` bytes out of `total` has to free.
pub(crate) fn share_of_excess(own: u64, total: u64, cap: u64) -> u64 {
    if total <= cap {
        return 0;
    }
    let excess = total - cap / EVICT_TO.1 * EVICT_TO.0;
    let share = u128::from(excess) * u128::from(own) / u128::from(total.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl Conn {
    /// What it holds, without the buffers of its flows.
    fn look(&self) -> Held {
        let quic = self.quic.held_bytes();
        let in_flight = self.quic.bytes_in_flight() as u64 / IN_FLIGHT_SHARE;
        // The number of those that are not authenticated is limited by itself.
        let fixed = if self.handshake_place.is_some() { 0 } else { CONNECTION_BYTES };
        Held {
            bytes: fixed + quic.received + quic.sent + in_flight + self.blocked_bytes(),
            excess: quic.excess_credit,
        }
    }
}

impl Core {
    /// Brings the counts of all connections up to date, and resets flows when they are too high.
    pub(crate) fn account_memory(&mut self) {
        for (_, conn) in &mut self.conns {
            conn.relay_bytes = 0;
        }
        for (_, flow) in &self.flows {
            if let Some(conn) = self.conns.get_mut(flow.conn.slot) {
                conn.relay_bytes += flow.held_bytes();
            }
        }
        let mut own = 0;
        for (_, conn) in &mut self.conns {
            if std::mem::take(&mut conn.was_driven) {
                conn.seen = conn.look();
            }
            let held = Held { bytes: conn.seen.bytes + conn.relay_bytes, ..conn.seen };
            self.shared.memory.replace(conn.held, held);
            if let Some(place) = &mut conn.peer_place {
                place.set_memory(held.bytes);
            }
            conn.held = held;
            own += held.bytes;
        }
        self.shared.idle_memory.observe(self.shared.metrics.flows_active.get());
        self.limit_windows();
        let excess = self.shared.memory.share_of_excess(own);
        if excess > 0 {
            self.evict(excess, |_| true);
        }
        self.evict_for_peers();
    }

    /// Tells all connections how large their streams' windows may become.
    fn limit_windows(&mut self) {
        let limit = window_limit(self.shared.memory.excess(), self.shared.memory.cap());
        if std::mem::replace(&mut self.window_limit, limit) != limit {
            for (_, conn) in &mut self.conns {
                conn.quic.set_stream_window_limit(limit);
            }
        }
    }

    /// The same for each peer that has more than it may.
    fn evict_for_peers(&mut self) {
        let mut full: HashMap<Arc<str>, (u64, u64, u64, HashSet<usize>)> = HashMap::new();
        for (slot, conn) in &self.conns {
            let Some(place) = conn.peer_place.as_ref().filter(|place| place.is_over_memory())
            else {
                continue;
            };
            let (own, total, cap, slots) = full.entry(place.name().clone()).or_default();
            *own += conn.held.bytes;
            (*total, *cap) = place.memory();
            slots.insert(slot);
        }
        for (own, total, cap, slots) in full.into_values() {
            self.evict(share_of_excess(own, total, cap), |slot| slots.contains(&slot));
        }
    }

    /// Resets flows of the connections that `select` picks, until `excess` bytes are free.
    fn evict(&mut self, excess: u64, select: impl Fn(usize) -> bool) {
        let now = self.now;
        let candidates = self
            .flows
            .iter()
            .filter(|(_, flow)| select(flow.conn.slot))
            .filter(|(_, flow)| now.saturating_duration_since(flow.opened) >= NEW)
            .filter_map(|(slot, flow)| Some((slot, flow, self.conn(flow.conn)?)))
            .map(|(slot, flow, conn)| {
                let quic = conn.quic.stream_held_bytes(flow.stream);
                let age = now.saturating_duration_since(flow.opened);
                let (down, up) = (quic.received + flow.held_bytes(), quic.sent);
                let time = flow.down.time_for(down, age).max(flow.up.time_for(up, age));
                let is_still = flow.down.is_still(down) || flow.up.is_still(up);
                Candidate { slot, conn: flow.conn.slot, held: down + up, time, is_still }
            })
            .collect();
        let chosen = choose(candidates, excess);
        let freed = chosen.iter().map(|it| it.held).sum::<u64>();
        for it in &chosen {
            self.end_flow(it.slot, FlowEnd::Memory);
            self.release(it.conn, it.held);
        }
        if !chosen.is_empty() {
            self.evicted_since_log += chosen.len();
            self.log_evictions(now, freed);
        }
    }

    /// Other workers must not free the same once more before the next tick.
    fn release(&mut self, slot: usize, bytes: u64) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let left = Held { bytes: conn.held.bytes.saturating_sub(bytes), ..conn.held };
        self.shared.memory.replace(conn.held, left);
        if let Some(place) = &mut conn.peer_place {
            place.set_memory(left.bytes);
        }
        conn.held = left;
    }

    fn log_evictions(&mut self, now: Instant, freed: u64) {
        let is_due =
            self.evictions_logged.is_none_or(|at| now.saturating_duration_since(at) >= LOG_EVERY);
        if is_due {
            self.evictions_logged = Some(now);
            tracing::warn!(
                flows = std::mem::take(&mut self.evicted_since_log),
                freed_bytes = freed,
                used_bytes = self.shared.memory.bytes(),
                cap_bytes = self.shared.memory.cap(),
                "memory cap reached: flows that their readers drain slowest were reset"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(slot: usize, held: u64, seconds: u64) -> Candidate {
        let time = Duration::from_secs(seconds);
        Candidate { slot, conn: 0, held, time, is_still: false }
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
}
