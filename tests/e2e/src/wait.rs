//! Waits for conditions.

use std::time::{Duration, Instant};

/// Timeout for events that should occur at once, on a busy machine.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Polls `ready` until it returns a value, at most for `at_most`.
pub fn until<T>(at_most: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + at_most;
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Like [`until`] for a condition.
///
/// # Panics
/// When it does not become true in time; says `what` it was waiting for.
#[track_caller]
pub fn for_true(what: &str, at_most: Duration, mut ready: impl FnMut() -> bool) {
    assert!(until(at_most, || ready().then_some(())).is_some(), "not within {at_most:?}: {what}");
}
