//! Waits for conditions.

use std::io;
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

/// Longest time for which a closed socket stays open in a child of this process: a child has copies of all sockets until it
/// executes its program, and other tests start programs at the same time.
const CHILD_START_TIMEOUT: Duration = Duration::from_secs(2);

/// Binds, again and again while the address of a socket that was closed is still in use.
///
/// # Errors
/// What `bind` reports.
pub fn for_free_address<T>(mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + CHILD_START_TIMEOUT;
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(CHECK_INTERVAL);
            }
            bound => return bound,
        }
    }
}
