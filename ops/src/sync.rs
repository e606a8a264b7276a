//! What [`crate::published`] synchronises with; `tests/models` has another one.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
