//! How long the parts of a run take.

use std::time::Duration;

use super::plan::SweepLoad;

/// Seconds in which system calls are counted.
pub const CALLS_S: u64 = 1;
/// How long the paced flow runs before it is captured.
pub const PACING_WARMUP: Duration = Duration::from_millis(400);
/// How long it is captured.
pub const PACING_CAPTURE: Duration = Duration::from_millis(1200);

/// Warm-up in seconds where so much is asked for. Of video, the first segments are needed a second after their requests,
/// which take a second to begin.
pub fn warmup_s(load: SweepLoad, asked_s: u64) -> u64 {
    match load {
        SweepLoad::Bulk => asked_s,
        SweepLoad::Video => asked_s.max(2),
    }
}
