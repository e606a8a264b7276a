//! Packets of QUIC that wait for earlier ones. From a peer that may send anything: memory is bounded, all counts are right, no
//! packet waits for ever, and each new one is passed on once. From a peer that follows the protocol: each number is new once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_tunnel::datagrams::in_order_fuzzing::order;

fuzz_target!(|input: &[u8]| order(input));
