//! Health of a worker, for other threads: whether its loop turns, and whether its data makes
//! progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A worker that has not turned for so long is stuck: it turns at least every [`crate::event_loop::core::Core::TICK`].
pub const BEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// One worker's signs of life.
#[derive(Debug)]
pub struct Heartbeat {
    started: Instant,
    /// When it turned last, since `started`.
    beat_ms: AtomicU64,
    /// Why its flows are stuck.
    stuck: Mutex<Option<String>>,
}

impl Heartbeat {
    /// Of a worker that turns now.
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self { started: now, beat_ms: AtomicU64::new(0), stuck: Mutex::new(None) })
    }

    /// The worker turns.
    pub(crate) fn beat(&self, now: Instant) {
        let since = now.saturating_duration_since(self.started).as_millis();
        self.beat_ms.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Sets what is stuck; `None` when all data moves.
    pub(crate) fn set_stuck(&self, stuck: Option<String>) {
        *self.stuck.lock().unwrap_or_else(PoisonError::into_inner) = stuck;
    }

    /// How long ago it turned.
    fn age(&self, now: Instant) -> Duration {
        let beat = Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(self.started).saturating_sub(beat)
    }

    /// Whether it turns.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < BEAT_TIMEOUT
    }

    fn stuck(&self) -> Option<String> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a process is dead: a worker whose loop does not turn.
pub fn stopped_worker(workers: &[Arc<Heartbeat>], now: Instant) -> Option<String> {
    let dead = workers.iter().position(|it| !it.is_fresh(now))?;
    let age_s = workers[dead].age(now).as_secs();
    Some(format!("worker {dead} has not turned for {age_s} s"))
}

/// Why a process is unhealthy: a worker whose loop does not turn, or whose flows are stuck.
pub fn unhealthy_worker(workers: &[Arc<Heartbeat>], now: Instant) -> Option<String> {
    stopped_worker(workers, now).or_else(|| workers.iter().find_map(|it| it.stuck()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_does_not_turn_is_named() {
        let start = Instant::now();
        let workers = [Heartbeat::new(start), Heartbeat::new(start)];
        let later = start + BEAT_TIMEOUT;
        assert_eq!(stopped_worker(&workers, start), None);
        workers[0].beat(later);
        let reason = stopped_worker(&workers, later + Duration::from_secs(2));
        assert_eq!(reason.as_deref(), Some("worker 1 has not turned for 7 s"));
        workers[1].beat(later);
        assert_eq!(unhealthy_worker(&workers, later), None);
    }

    #[test]
    fn flows_that_do_not_move_are_no_sign_of_death() {
        let start = Instant::now();
        let workers = [Heartbeat::new(start)];
        workers[0].set_stuck(Some("a flow does not move".to_owned()));
        assert_eq!(stopped_worker(&workers, start), None);
        assert_eq!(unhealthy_worker(&workers, start).as_deref(), Some("a flow does not move"));
        workers[0].set_stuck(None);
        assert_eq!(unhealthy_worker(&workers, start), None);
    }
}
