//! First bytes of flows: a longer beginning never changes the answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::first_bytes::{MAX_FIRST_BYTES, recognise};

fuzz_target!(|input: &[u8]| {
    let protocol = recognise(input);
    assert!(protocol.is_some() || input.len() < MAX_FIRST_BYTES);
    for length in [input.len().saturating_sub(1), input.len() / 2, input.len() / 3] {
        let first = &input[..length];
        assert!(recognise(first).is_none_or(|it| Some(it) == protocol));
    }
});
