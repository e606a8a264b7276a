//! Enrolment: requests, responses and tokens. The incremental contract, caps, and one form of each value.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use millrace_wire::Parsed;
use millrace_wire::enrolment::{
    EnrolmentError, InviteToken, MAX_ENROLMENT_REQUEST_BYTES, MAX_ENROLMENT_RESPONSE_BYTES,
    parse_request, parse_response,
};

fuzz_target!(|input: &[u8]| {
    if let Some(request) = message(input, parse_request, MAX_ENROLMENT_REQUEST_BYTES) {
        assert!(input.starts_with(&request.encode().expect("it was parsed")));
    }
    if let Some(response) = message(input, parse_response, MAX_ENROLMENT_RESPONSE_BYTES) {
        assert!(input.starts_with(&response.encode().expect("it was parsed")));
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(token) = text.parse::<InviteToken>()
    {
        assert_eq!(token.to_string(), text);
    }
});

fn message<T: Clone + Debug + PartialEq>(
    input: &[u8],
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, EnrolmentError>,
    max_bytes: usize,
) -> Option<T> {
    let parsed = parse(input);
    match &parsed {
        Ok(Parsed::Incomplete) => assert!(input.len() < max_bytes),
        Ok(Parsed::Complete { value, consumed }) => {
            assert!((1..=input.len().min(max_bytes)).contains(consumed));
            assert_eq!(parse(&input[..*consumed]), parsed);
            assert_eq!(parse(&input[..consumed - 1]), Ok(Parsed::Incomplete));
            return Some(value.clone());
        }
        Err(_) => {}
    }
    None
}
