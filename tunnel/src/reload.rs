//! Values that change while workers run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_config::{Admin, Log, Runtime};

/// The newest value of something that each worker has a copy of. A worker looks when it is woken.
#[derive(Debug)]
pub struct Latest<T>(Arc<Mutex<Arc<T>>>);

impl<T> Latest<T> {
    /// Begins with `value`.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(value))))
    }

    /// The newest value.
    pub fn get(&self) -> Arc<T> {
        self.lock().clone()
    }

    /// Puts `value` in the place of the one before.
    pub fn set(&self, value: T) {
        *self.lock() = Arc::new(value);
    }

    // A pointer is right whatever thread panicked beside it.
    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The parts of a configuration that both programs have and that are as they were at the start.
#[derive(Clone, Copy, Debug)]
pub struct AtStart<'a> {
    /// `[runtime]`
    pub runtime: &'a Runtime,
    /// `[admin]`
    pub admin: &'a Admin,
    /// `[log]`
    pub log: &'a Log,
}

/// Warns of keys that have changed and that a running process can't follow: those of both programs,
/// from `started` to `now`, and the program's `own`.
pub fn needs_restart(started: AtStart<'_>, now: AtStart<'_>, own: &[(&'static str, bool)]) {
    let common = [
        ("runtime.workers", now.runtime.workers != started.runtime.workers),
        ("runtime.pin", now.runtime.pin != started.runtime.pin),
        ("runtime.user", now.runtime.user != started.runtime.user),
        ("runtime.group", now.runtime.group != started.runtime.group),
        ("admin", now.admin != started.admin),
        ("log", now.log != started.log),
    ];
    for (key, _) in own.iter().chain(&common).filter(|(_, changed)| *changed) {
        tracing::warn!(key, "the change takes effect with a restart only; all others are in force");
    }
}
