//! Who runs when. Tests of one binary run side by side; those that measure time, memory or rates
//! run alone.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// The right to run, until dropped.
#[derive(Debug)]
pub enum Turn {
    /// Beside others.
    Shared(RwLockReadGuard<'static, ()>),
    /// Alone in this process.
    Alone(RwLockWriteGuard<'static, ()>),
}

/// Waits for tests that must be alone.
#[must_use]
pub fn shared() -> Turn {
    // A test that failed says nothing about this one.
    Turn::Shared(TURN.read().unwrap_or_else(PoisonError::into_inner))
}

/// Waits for all other tests, and keeps new ones from starting.
#[must_use]
pub fn alone() -> Turn {
    Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner))
}
