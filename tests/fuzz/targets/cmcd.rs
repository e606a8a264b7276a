//! Requests of players: the incremental contract and the caps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{
    Parsed,
    cmcd::{MAX_HEAD_BYTES, parse},
};

fuzz_target!(|input: &[u8]| {
    let parsed = parse(input);
    match &parsed {
        Ok(Parsed::Incomplete) => assert!(input.len() < MAX_HEAD_BYTES),
        Ok(Parsed::Complete { consumed, .. }) => {
            assert!((1..=input.len().min(MAX_HEAD_BYTES)).contains(consumed));
            assert_eq!(parse(&input[..*consumed]), parsed);
            assert_eq!(parse(&input[..consumed - 1]), Ok(Parsed::Incomplete));
            assert_eq!(parse(&input[..consumed / 2]), Ok(Parsed::Incomplete));
        }
        Err(_) => {}
    }
});
