//! First bytes of flows: a longer beginning never changes the answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{
    Parsed,
    first_bytes::{FlowProtocol, MAX_FIRST_BYTES, parse_rtsp_start, recognise},
};

fuzz_target!(|input: &[u8]| {
    let protocol = recognise(input);
    assert!(protocol.is_some() || input.len() < MAX_FIRST_BYTES);
    let start = parse_rtsp_start(input);
    let is_rtsp = matches!(start, Ok(Parsed::Complete { .. }));
    assert_eq!(is_rtsp, protocol == Some(FlowProtocol::Rtsp));
    for length in [input.len().saturating_sub(1), input.len() / 2, input.len() / 3] {
        let first = &input[..length];
        assert!(recognise(first).is_none_or(|it| Some(it) == protocol));
        match parse_rtsp_start(first) {
            Ok(Parsed::Incomplete) => {}
            decided => assert_eq!(decided, start),
        }
    }
});
