//! Lock between the tests of one binary: most run concurrently, but tests that measure time, memory or
//! rates run exclusively, when no other test runs or waits to run.
//!
//! Exclusive tests come last, so that the others need not wait for them. Each of those that wait keeps a
//! thread of the test binary: with fewer threads than exclusive tests, others run in what is left of them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Tests that run concurrently. They wait most of the time: with 12, the 186 tests of `loopback` that share took 45 s and
/// half of two processors. Less, because other programs run beside them in `make test`.
const MAX_SHARED: usize = 8;

static LOCK: Lock = Lock {
    state: Mutex::new(State { waiting: 0, running: 0, exclusive: false }),
    changed: Condvar::new(),
};

struct Lock {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Shared tests that wait.
    waiting: usize,
    /// Shared tests that run.
    running: usize,
    /// Whether a test runs exclusively.
    exclusive: bool,
}

/// Permission to run, until dropped.
#[derive(Debug)]
pub enum TestLock {
    /// Other tests may run at the same time.
    Shared,
    /// No other test of this process runs.
    Exclusive,
}

impl Lock {
    // A failed test does not affect others: the counts are right whenever the mutex is free.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        blocked: fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed
            .wait_while(state, |state| blocked(state))
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TestLock {
    fn drop(&mut self) {
        let mut state = LOCK.state();
        match self {
            Self::Shared => state.running -= 1,
            Self::Exclusive => state.exclusive = false,
        }
        drop(state);
        LOCK.changed.notify_all();
    }
}

/// Waits until no test runs exclusively, and fewer than [`MAX_SHARED`] others run.
#[must_use]
pub fn shared() -> TestLock {
    let mut state = LOCK.state();
    state.waiting += 1;
    let mut state = LOCK.wait_while(state, |state| state.exclusive || state.running >= MAX_SHARED);
    state.waiting -= 1;
    state.running += 1;
    TestLock::Shared
}

/// Waits until no other test runs or waits to run, and keeps others from starting.
#[must_use]
pub fn exclusive() -> TestLock {
    let state = LOCK.state();
    let mut state =
        LOCK.wait_while(state, |state| state.exclusive || state.running + state.waiting > 0);
    state.exclusive = true;
    TestLock::Exclusive
}
