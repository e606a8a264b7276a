//! In place of `ops/src/sync.rs`.

pub(crate) use std::sync::PoisonError;

pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
