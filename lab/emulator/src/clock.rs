//! The clocks of the link: its times are monotonic, the kernel's frame stamps are of the wall clock.

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

/// The monotonic and the wall clock at the same moment, in nanoseconds. A thread that is stopped
/// between the two readings would shift the arrivals, so such a pair is read again.
pub(super) fn both_clocks() -> Result<(u64, u64)> {
    const MAX_READING_GAP_NS: u64 = 2_000;
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let before_ns = monotonic_ns()?;
        let wall_ns = clock_ns(ClockId::CLOCK_REALTIME)?;
        let apart_ns = monotonic_ns()? - before_ns;
        best = best.min((apart_ns, before_ns + apart_ns / 2, wall_ns));
        if apart_ns <= MAX_READING_GAP_NS {
            break;
        }
    }
    Ok((best.1, best.2))
}

/// Now.
pub fn monotonic_ns() -> Result<u64> {
    clock_ns(ClockId::CLOCK_MONOTONIC)
}

pub(super) fn clock_ns(clock: ClockId) -> Result<u64> {
    let time = clock_gettime(clock)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
