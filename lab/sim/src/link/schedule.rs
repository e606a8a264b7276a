//! Serialisation times of a link.

use std::sync::Arc;

use crate::trace::{RateTrace, TraceKind};

/// Nanoseconds with 32 fractional bits, so that a rate that does not divide a nanosecond (12 Mbit/s:
/// 1500 bytes are exactly 1 ms, 1499 are not) errs by less than 1 ns in 10^9 packets.
pub(super) type FixedNs = u128;

/// Bits times 10^9 times 2^32: a rate in bit/s times [`FixedNs`], without a remainder.
pub(super) type Work = u128;

const FRACTION_BITS: u32 = 32;

pub(super) fn fixed(ns: u64) -> FixedNs {
    u128::from(ns) << FRACTION_BITS
}

/// Rounds up: a packet is never complete before its last bit.
pub(super) fn whole_ns(at: FixedNs) -> u64 {
    let ns = (at + ((1 << FRACTION_BITS) - 1)) >> FRACTION_BITS;
    u64::try_from(ns).expect("584 years of nanoseconds fit 64 bits")
}

pub(super) fn work(bytes: u64) -> Work {
    (u128::from(bytes) * 8 * 1_000_000_000) << FRACTION_BITS
}

/// Whole bytes of `work`.
pub(super) fn bytes(work: Work) -> u64 {
    let bytes = (work >> FRACTION_BITS) / 8_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// When a packet is on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransmissionSlot {
    /// When its first bit leaves.
    pub starts_at: FixedNs,
    /// When its last bit has left.
    pub ends_at: FixedNs,
    /// The part that leaves at the start time itself.
    head: Work,
}

/// The capacity of a line over time.
#[derive(Debug)]
pub(super) enum Schedule {
    Constant(ConstantRate),
    Steps(Cursor),
    Opportunities(Cursor),
}

/// A rate, and the time of the last packet size: most packets have one size, and a division of 128 bits
/// is expensive.
#[derive(Debug)]
pub(super) struct ConstantRate {
    rate_bps: u64,
    last_work: Work,
    last_time: FixedNs,
}

/// A place in a trace that loops.
#[derive(Debug)]
pub(super) struct Cursor {
    trace: Arc<RateTrace>,
    /// When the trace came into force.
    epoch_ns: u64,
    /// When the current turn of the trace began.
    turn_ns: u64,
    /// Next entry of the trace.
    index: usize,
    /// Opportunities only: when the last one was used.
    spare_at: FixedNs,
    /// Opportunities only: unused part of the last one.
    spare: Work,
}

impl Schedule {
    pub(super) fn constant(rate_bps: u64) -> Self {
        Self::Constant(ConstantRate { rate_bps, last_work: 0, last_time: 0 })
    }

    /// Plays `trace` from `epoch_ns` on.
    pub(super) fn trace(trace: Arc<RateTrace>, epoch_ns: u64) -> Self {
        let opportunities = matches!(trace.kind, TraceKind::Opportunities(_));
        let cursor = Cursor { trace, epoch_ns, turn_ns: epoch_ns, index: 0, spare_at: 0, spare: 0 };
        if opportunities { Self::Opportunities(cursor) } else { Self::Steps(cursor) }
    }

    /// Whether a packet may have to wait although the line is free.
    pub(super) fn is_opportunities(&self) -> bool {
        matches!(self, Self::Opportunities(_))
    }

    /// The slot of `work`, which can start at `free` at the earliest. Calls are in order of `free`.
    pub(super) fn plan(&mut self, free: FixedNs, work: Work) -> TransmissionSlot {
        match self {
            Self::Constant(constant) => TransmissionSlot {
                starts_at: free,
                ends_at: free + constant.time_for(work),
                head: 0,
            },
            Self::Steps(cursor) => TransmissionSlot {
                starts_at: free,
                ends_at: cursor.walk_steps(free, work),
                head: 0,
            },
            Self::Opportunities(cursor) => cursor.take_opportunities(free, work),
        }
    }

    /// The line is idle: the rest of an opportunity is lost.
    pub(super) fn on_idle(&mut self) {
        if let Self::Opportunities(cursor) = self {
            cursor.spare = 0;
        }
    }

    /// The part of `total`, planned as `slot`, that is still to be carried at `now`.
    pub(super) fn left(&self, slot: &TransmissionSlot, total: Work, now: FixedNs) -> Work {
        if slot.starts_at > now {
            return total;
        }
        total.saturating_sub(slot.head + self.capacity(slot.starts_at, now))
    }

    /// Capacity after `from`, up to and including `to`.
    pub(super) fn capacity(&self, from: FixedNs, to: FixedNs) -> Work {
        match self {
            Self::Constant(constant) => u128::from(constant.rate_bps) * to.saturating_sub(from),
            Self::Steps(cursor) | Self::Opportunities(cursor) => {
                cursor.carried_until(to).saturating_sub(cursor.carried_until(from))
            }
        }
    }
}

impl ConstantRate {
    fn time_for(&mut self, work: Work) -> FixedNs {
        if self.last_work != work {
            self.last_work = work;
            self.last_time = work / u128::from(self.rate_bps);
        }
        self.last_time
    }
}

impl Cursor {
    /// The entry at the cursor: its moment and its value.
    fn entry(&self) -> (u64, u64) {
        let (TraceKind::Opportunities(entries) | TraceKind::Steps(entries)) = &self.trace.kind;
        let (at_ns, value) = entries[self.index];
        (self.turn_ns + at_ns, value)
    }

    fn next_entry(&mut self) {
        let (TraceKind::Opportunities(entries) | TraceKind::Steps(entries)) = &self.trace.kind;
        self.index += 1;
        if self.index == entries.len() {
            self.index = 0;
            self.turn_ns += self.trace.period_ns;
        }
    }

    /// When the step at the cursor ends.
    fn step_end_ns(&self) -> u64 {
        let (TraceKind::Opportunities(entries) | TraceKind::Steps(entries)) = &self.trace.kind;
        let end_ns = entries.get(self.index + 1).map_or(self.trace.period_ns, |(at_ns, _)| *at_ns);
        self.turn_ns + end_ns
    }

    /// When `left` has been carried, from `at` on.
    fn walk_steps(&mut self, mut at: FixedNs, mut left: Work) -> FixedNs {
        self.skip_turns(at);
        loop {
            let end = fixed(self.step_end_ns());
            if end <= at {
                self.next_entry();
                continue;
            }
            let rate_bps = u128::from(self.entry().1);
            let possible = rate_bps * (end - at);
            if possible >= left && rate_bps > 0 {
                return at + left / rate_bps;
            }
            left -= possible;
            at = end;
            self.next_entry();
        }
    }

    /// Passes whole turns at once, so that a long pause costs nothing.
    fn skip_turns(&mut self, at: FixedNs) {
        let at_ns = (at >> FRACTION_BITS) as u64;
        let turns = at_ns.saturating_sub(self.turn_ns) / self.trace.period_ns;
        if turns > 0 {
            self.turn_ns += turns * self.trace.period_ns;
            self.index = 0;
        }
    }

    fn take_opportunities(&mut self, free: FixedNs, total: Work) -> TransmissionSlot {
        self.skip_turns(free);
        let mut left = total;
        let mut slot = TransmissionSlot { starts_at: free, ends_at: free, head: 0 };
        if self.spare > 0 && self.spare_at == free {
            let taken = self.spare.min(left);
            self.spare -= taken;
            left -= taken;
            slot.head = taken;
        }
        while left > 0 {
            let (at_ns, offered) = self.entry();
            self.next_entry();
            let at = fixed(at_ns);
            // A packet that arrives at the time of an opportunity misses it, as in mahimahi.
            if at <= free {
                continue;
            }
            let offered = work(offered);
            let taken = offered.min(left);
            if left == total {
                slot = TransmissionSlot { starts_at: at, ends_at: at, head: taken };
            }
            slot.ends_at = at;
            left -= taken;
            (self.spare_at, self.spare) = (at, offered - taken);
        }
        slot
    }

    /// Capacity from the epoch to `to`, inclusive.
    fn carried_until(&self, to: FixedNs) -> Work {
        let since = to.saturating_sub(fixed(self.epoch_ns));
        let period = fixed(self.trace.period_ns);
        let (turns, rest) = (since / period, since % period);
        turns * self.within_turn(period) + self.within_turn(rest)
    }

    /// Capacity of the first `span` of a turn, inclusive.
    fn within_turn(&self, span: FixedNs) -> Work {
        match &self.trace.kind {
            TraceKind::Opportunities(entries) => {
                let taken = entries.iter().take_while(|(at_ns, _)| fixed(*at_ns) <= span);
                work(taken.map(|(_, bytes)| bytes).sum())
            }
            TraceKind::Steps(entries) => {
                let ends = entries.iter().skip(1).map(|(at_ns, _)| *at_ns);
                let ends = ends.chain([self.trace.period_ns]);
                let steps = entries.iter().zip(ends);
                steps
                    .map(|((from_ns, rate_bps), end_ns)| {
                        let end = fixed(end_ns).min(span);
                        u128::from(*rate_bps) * end.saturating_sub(fixed(*from_ns))
                    })
                    .sum()
            }
        }
    }
}
