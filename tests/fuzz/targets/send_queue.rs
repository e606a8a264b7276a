//! The queue of media in an RTSP connection: the order stays, only whole frames are dropped, a decoder can use what remains,
//! and sequence numbers have no gap. Where nothing is dropped, the bytes are those of the origin.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_tunnel::rtsp::queue_fuzzing::relay;

fuzz_target!(|input: &[u8]| relay(input));
