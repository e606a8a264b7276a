//! Ctrl-C and SIGTERM: recorded, and handled in every wait, so that every `Drop` still runs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use thiserror::Error;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Time between two checks of a wait.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The user asked for the end.
#[derive(Debug, Error)]
#[error("interrupted")]
pub struct Interrupted;

/// From now on records SIGINT and SIGTERM instead of ending the process.
///
/// # Errors
/// When the handlers can't be installed.
pub fn install() -> Result<()> {
    let flag = ASKED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag.clone()).context("signal handler")?;
    }
    Ok(())
}

/// # Errors
/// [`Interrupted`] once a signal has arrived.
pub fn check() -> Result<(), Interrupted> {
    match ASKED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Interrupted),
        _ => Ok(()),
    }
}

/// Polls `ready` until it answers a value, at most for `at_most`; `None` after that time.
///
/// # Errors
/// [`Interrupted`], or the first error of `ready`.
pub fn wait_for<T>(
    at_most: Duration,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let end = Instant::now() + at_most;
    loop {
        check()?;
        if let Some(value) = ready()? {
            return Ok(Some(value));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Whether a call on a socket with a time limit returned only for the caller to check whether to go on.
#[must_use]
pub fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_ready_and_gives_up_in_time() {
        let mut looks = 0;
        let found = wait_for(Duration::from_secs(5), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), Some(3));
        let never = wait_for(Duration::from_millis(30), || Ok(None::<()>));
        assert_eq!(never.unwrap(), None);
    }
}
