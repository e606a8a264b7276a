//! Lock between the tests of one binary: most run concurrently, but tests that measure time, memory or
//! rates run exclusively.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static LOCK: RwLock<()> = RwLock::new(());

/// Permission to run, until dropped.
#[derive(Debug)]
pub enum TestLock {
    /// Other tests may run at the same time.
    Shared(RwLockReadGuard<'static, ()>),
    /// No other test of this process runs.
    Exclusive(RwLockWriteGuard<'static, ()>),
}

/// Waits until no test runs exclusively.
#[must_use]
pub fn shared() -> TestLock {
    // A failed test does not affect this one.
    TestLock::Shared(LOCK.read().unwrap_or_else(PoisonError::into_inner))
}

/// Waits for all running tests, and keeps other tests from starting.
#[must_use]
pub fn exclusive() -> TestLock {
    TestLock::Exclusive(LOCK.write().unwrap_or_else(PoisonError::into_inner))
}
