//! Any sequence of calls leaves every congestion controller with a sane rate and window.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use millrace_cc::{ControllerConfig, Time};
use millrace_replay::{Choices, Operations, algorithms, unknown_path};

static ALGORITHMS: LazyLock<Vec<Arc<dyn ControllerConfig>>> = LazyLock::new(algorithms);

const PACKET_BYTES: u64 = 1350;

/// Three bytes for each choice: enough for the largest that matters, and few to mutate.
struct Bytes<'a>(std::slice::ChunksExact<'a, u8>);

impl Choices for Bytes<'_> {
    fn next(&mut self) -> Option<u64> {
        let chunk = self.0.next()?;
        let value = u64::from(chunk[0]) | u64::from(chunk[1]) << 8 | u64::from(chunk[2]) << 16;
        Some(value | value << 24 | value << 48)
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let config = &ALGORITHMS[usize::from(*first) % ALGORITHMS.len()];
    let mut controller = config.build(Time::ZERO, &unknown_path(PACKET_BYTES, 1));
    let mut operations = Operations::new(Bytes(rest.chunks_exact(3)), PACKET_BYTES);
    while operations.step(&mut *controller).is_some() {}
});
