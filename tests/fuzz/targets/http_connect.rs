//! CONNECT heads: the incremental contract, caps, and answers to what is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{
    Parsed,
    http_connect::{MAX_HEAD_BYTES, parse},
};

fuzz_target!(|input: &[u8]| {
    let parsed = parse(input);
    match &parsed {
        Ok(Parsed::Incomplete) => assert!(input.len() < MAX_HEAD_BYTES),
        Ok(Parsed::Complete { value, consumed }) => {
            assert!((1..=input.len().min(MAX_HEAD_BYTES)).contains(consumed));
            assert_eq!(parse(&input[..*consumed]), parsed);
            assert_eq!(parse(&input[..consumed - 1]), Ok(Parsed::Incomplete));
            assert_eq!(parse(&input[..consumed / 2]), Ok(Parsed::Incomplete));
            assert_eq!(value.to_string().parse().as_ref(), Ok(value));
        }
        Err(error) => {
            let answer = error.response();
            let mut fields = [httparse::EMPTY_HEADER; 8];
            let mut response = httparse::Response::new(&mut fields);
            assert!(matches!(response.parse(&answer), Ok(httparse::Status::Complete(_))));
            assert_eq!(response.code, Some(error.status()));
        }
    }
});
