//! HTTP/3 field lists. A field is a byte with the name's length, a byte with the value's, and both.
//! What is accepted reads back the same from the fields that it would be sent with.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{
    ConnectFailure,
    h3_connect::{MAX_NAME_BYTES, Response, parse_request, parse_response},
};

fuzz_target!(|input: &[u8]| {
    let fields = split(input);
    match parse_request(fields.iter().copied()) {
        Ok(request) => {
            for name in [&request.class, &request.congestion_control].into_iter().flatten() {
                assert!(name.len() <= MAX_NAME_BYTES);
            }
            let again = request.fields();
            let again = again.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            assert_eq!(parse_request(again), Ok(request));
        }
        Err(error) => assert!((400..=599).contains(&error.status())),
    }
    if let Ok(Response::Failed { status, .. }) = parse_response(fields.iter().copied()) {
        assert!((300..=599).contains(&status));
    }
    for (_, value) in fields {
        ConnectFailure::from_response(502, Some(value));
    }
});

fn split(mut input: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut fields = Vec::new();
    while let [name_bytes, value_bytes, rest @ ..] = input {
        let (name_bytes, value_bytes) = (usize::from(*name_bytes), usize::from(*value_bytes));
        let Some((name, rest)) = rest.split_at_checked(name_bytes) else {
            break;
        };
        let Some((value, rest)) = rest.split_at_checked(value_bytes) else {
            break;
        };
        fields.push((name, value));
        input = rest;
    }
    fields
}
