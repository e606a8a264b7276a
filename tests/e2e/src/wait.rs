//! Waiting for something to become so.

use std::time::{Duration, Instant};

/// How long things take that should take no time at all, on a machine that has other work.
pub const SOON: Duration = Duration::from_secs(10);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Asks again and again until there is an answer, at most for `at_most`.
pub fn until<T>(at_most: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + at_most;
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
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
