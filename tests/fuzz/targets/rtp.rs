//! RTP packets and session descriptions as they pass by: the payload is in the packet, and what is read is bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{rtp, sdp};

fuzz_target!(|input: &[u8]| {
    if let Some(header) = rtp::parse(input) {
        assert!(!rtp::is_rtcp(input) && header.payload_type < 128);
        let payload = &input[header.payload];
        rtp::h264(payload);
        rtp::h265(payload);
    }
    let media = sdp::parse(input);
    assert!(media.len() <= 64);
    assert!(media.iter().flat_map(|it| &it.encodings).all(|it| it.payload_type < 128));
    assert!(media.iter().all(|it| it.encodings.len() <= 128));
});
