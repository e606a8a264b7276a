//! Heads of requests in absolute form and of responses: the incremental contract, caps, and what is written for the next
//! parser, which must read the same message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::Parsed;
use millrace_wire::http_connect::{MAX_FIELDS, MAX_HEAD_BYTES};
use millrace_wire::http_forward::{
    BodyFraming, MAX_RESPONSE_HEAD_BYTES, parse_request, parse_response,
};

fuzz_target!(|input: &[u8]| {
    request(input);
    response(input, false);
    response(input, true);
});

fn request(input: &[u8]) {
    let parsed = parse_request(input);
    match &parsed {
        Ok(Parsed::Incomplete) => assert!(input.len() < MAX_HEAD_BYTES),
        Ok(Parsed::Complete { value, consumed }) => {
            assert!((1..=input.len().min(MAX_HEAD_BYTES)).contains(consumed));
            assert_eq!(parse_request(&input[..*consumed]), parsed);
            assert_eq!(parse_request(&input[..consumed - 1]), Ok(Parsed::Incomplete));
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS + 4];
            let mut written = httparse::Request::new(&mut fields);
            let whole = Ok(httparse::Status::Complete(value.head.len()));
            assert_eq!(written.parse(&value.head), whole);
            assert!(written.path.is_some_and(|path| path.starts_with('/') || path == "*"));
            let count = |name: &str| {
                let is_named = |field: &&httparse::Header| field.name.eq_ignore_ascii_case(name);
                written.headers.iter().filter(is_named).count()
            };
            assert_eq!((count("host"), count("connection")), (1, 1));
            let framing = match value.framing {
                BodyFraming::Empty => (0, 0),
                BodyFraming::Length(_) => (1, 0),
                BodyFraming::Chunked => (0, 1),
            };
            assert_eq!((count("content-length"), count("transfer-encoding")), framing);
        }
        Err(error) => answer(&error.response(), error.status()),
    }
}

fn response(input: &[u8], to_http_10: bool) {
    match parse_response(input, to_http_10) {
        Ok(Parsed::Incomplete) => assert!(input.len() < MAX_RESPONSE_HEAD_BYTES),
        Ok(Parsed::Complete { value, consumed }) => {
            assert!((1..=input.len()).contains(&consumed));
            let mut fields = [httparse::EMPTY_HEADER; 132];
            let mut written = httparse::Response::new(&mut fields);
            let whole = Ok(httparse::Status::Complete(value.head.len()));
            assert_eq!(written.parse(&value.head), whole);
        }
        Err(error) => answer(&error.response(), 502),
    }
}

fn answer(answer: &[u8], status: u16) {
    let mut fields = [httparse::EMPTY_HEADER; 8];
    let mut response = httparse::Response::new(&mut fields);
    assert!(matches!(response.parse(answer), Ok(httparse::Status::Complete(_))));
    assert_eq!(response.code, Some(status));
}
