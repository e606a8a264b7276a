//! RTSP connections that both ends of a tunnel follow: requests of the player and answers of the origin, in
//! pieces of any size. Memory is bounded, every port pair is given back, the mark stays inside the tunnel, and the
//! size of the pieces does not change the output.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_tunnel::rtsp::fuzzing::follow;

fuzz_target!(|input: &[u8]| follow(input));
