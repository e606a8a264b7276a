//! What systemd is told (sd_notify(3)): readiness, reloads, the end, and that the workers turn.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use millrace_tunnel::heartbeat::{Heartbeat, stopped_worker};

/// Tells systemd; without systemd nothing happens.
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!(%error, "failed to notify systemd");
    }
}

/// The configuration is being read again.
pub(crate) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "failed to notify systemd of the reload"),
    }
}

/// Keeps systemd's watchdog (`WatchdogSec=`) quiet for as long as all workers turn, if it is on. The thread
/// ends with the process.
pub(crate) fn start(workers: Vec<Arc<Heartbeat>>) {
    let mut timeout_us = 0;
    if !sd_notify::watchdog_enabled(false, &mut timeout_us) {
        return;
    }
    // Twice in each time-out, as sd_watchdog_enabled(3) recommends.
    let interval = Duration::from_micros(timeout_us / 2);
    let started = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        loop {
            match stopped_worker(&workers, Instant::now()) {
                None => notify(&[NotifyState::Watchdog]),
                Some(problem) => tracing::error!(problem, "systemd watchdog not notified"),
            }
            thread::sleep(interval);
        }
    });
    if let Err(error) = started {
        tracing::error!(%error, "failed to start the watchdog thread");
    }
}
