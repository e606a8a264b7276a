//! A value that changes while workers run. `tests/models` runs this file under a scheduler of its own.

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The newest value of something that each worker has a copy of. A worker looks when it is woken.
#[derive(Debug)]
pub struct Published<T>(Arc<Mutex<Arc<T>>>);

impl<T> Published<T> {
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

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
