//! Repair of datagrams at the receiver. From a peer that may send anything: memory and work are bounded, all counts are
//! right, and each sequence number is new once. From a peer that follows the protocol, on a path that loses, repeats and
//! reorders: each packet is passed on once, as it was sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_tunnel::datagrams::fuzzing::receive;

fuzz_target!(|input: &[u8]| receive(input));
