//! Ranges of the values of a setup.

use std::time::Duration;

use millrace_cc::Bandwidth;
use thiserror::Error;

/// An invalid setup.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SetupError(String);

pub(crate) fn check(good: bool, problem: impl FnOnce() -> String) -> Result<(), SetupError> {
    if good { Ok(()) } else { Err(SetupError(problem())) }
}

const MAX_DELAY: Duration = Duration::from_secs(20);
const MAX_BUFFER_BYTES: u64 = 1_000_000_000;
const MIN_RATE: Bandwidth = Bandwidth::from_bits_per_s(1_000);
const MAX_RATE: Bandwidth = Bandwidth::from_bits_per_s(100_000_000_000);

pub(crate) fn check_rate(what: &str, rate: Bandwidth) -> Result<(), SetupError> {
    check((MIN_RATE..=MAX_RATE).contains(&rate), || {
        format!("{what}: rate of {} bit/s; allowed are 1 kbit/s to 100 Gbit/s", rate.bits_per_s())
    })
}

pub(crate) fn check_delay(what: &str, name: &str, delay: Duration) -> Result<(), SetupError> {
    check(delay <= MAX_DELAY, || format!("{what}: {name} of {delay:?}; allowed are 0 to 20 s"))
}

pub(crate) fn check_loss(what: &str, loss: f64) -> Result<(), SetupError> {
    check((0.0..=1.0).contains(&loss), || {
        format!("{what}: loss of {loss}; allowed are 0 to 1 (0.01 is one per cent)")
    })
}

pub(crate) fn check_buffer(what: &str, bytes: u64) -> Result<(), SetupError> {
    check(bytes <= MAX_BUFFER_BYTES, || {
        format!("{what}: buffer of {bytes} bytes; allowed are 0 to 1 GB")
    })
}
