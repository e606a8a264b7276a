//! Lock between the tests of one binary: how many run at the same time depends on what they measure.
//!
//! Most run beside many others. Tests that measure seconds run beside a few of their kind. Tests that measure rates, memory
//! or milliseconds run exclusively. A kind begins when no test of an earlier kind runs or waits, and
//! no two kinds run at the same time. Each test that waits keeps a thread of the test binary: with fewer threads than
//! exclusive tests, others run in what is left of them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Number of kinds.
const KINDS: usize = 3;

/// Tests of each [`Kind`] that run at the same time.
///
/// Of many: they wait most of the time; with 12, the 186 tests of `loopback` took 45 s and half of two processors. Less,
/// because other programs run beside them in `make test`. Of few: their bounds are half a second and more, and each pair of
/// proxies of theirs takes up to a quarter of a processor.
const MAX_RUNNING: [usize; KINDS] = [8, 4, 1];

static LOCK: Lock = Lock { state: Mutex::new([Count::NONE; KINDS]), changed: Condvar::new() };

struct Lock {
    state: Mutex<[Count; KINDS]>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
struct Count {
    waiting: usize,
    running: usize,
}

impl Count {
    const NONE: Self = Self { waiting: 0, running: 0 };
}

/// Beside which others a test may run. Earlier kinds come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Many others of its kind.
    Many,
    /// A few others of its kind.
    Few,
    /// No other test of this process.
    Exclusive,
}

/// Permission to run, until dropped.
#[derive(Debug)]
pub struct TestLock(Kind);

impl Lock {
    // A failed test does not affect others: the counts are right whenever the mutex is free.
    fn state(&self) -> MutexGuard<'_, [Count; KINDS]> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a test of this kind may begin.
fn is_open(kinds: &[Count; KINDS], kind: Kind) -> bool {
    let own = kind as usize;
    let others_run = (0..KINDS).any(|other| other != own && kinds[other].running > 0);
    let earlier_wait = kinds[..own].iter().any(|earlier| earlier.waiting > 0);
    !others_run && !earlier_wait && kinds[own].running < MAX_RUNNING[own]
}

impl Drop for TestLock {
    fn drop(&mut self) {
        LOCK.state()[self.0 as usize].running -= 1;
        LOCK.changed.notify_all();
    }
}

/// Waits until a test of this kind may run.
#[must_use]
pub fn wait(kind: Kind) -> TestLock {
    let mut state = LOCK.state();
    state[kind as usize].waiting += 1;
    let mut state = LOCK
        .changed
        .wait_while(state, |kinds| !is_open(kinds, kind))
        .unwrap_or_else(PoisonError::into_inner);
    state[kind as usize].waiting -= 1;
    state[kind as usize].running += 1;
    drop(state);
    // One that no longer waits may open a later kind.
    LOCK.changed.notify_all();
    TestLock(kind)
}

/// Waits until it may run beside many others.
#[must_use]
pub fn shared() -> TestLock {
    wait(Kind::Many)
}

/// Waits until no other test runs or waits to run, and keeps others from starting.
#[must_use]
pub fn exclusive() -> TestLock {
    wait(Kind::Exclusive)
}
