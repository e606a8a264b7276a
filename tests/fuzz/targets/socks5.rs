//! SOCKS5 greetings and requests: the incremental contract, caps, and replies to what is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{
    Parsed,
    socks5::{
        MAX_GREETING_BYTES, MAX_PASSWORD_BYTES, MAX_REQUEST_BYTES, encode_reply, parse_greeting,
        parse_password, parse_request,
    },
};

fuzz_target!(|input: &[u8]| {
    let greeting = parse_greeting(input);
    match &greeting {
        Ok(Parsed::Incomplete) => assert!(input.len() < MAX_GREETING_BYTES),
        Ok(Parsed::Complete { consumed, .. }) => {
            assert!((1..=input.len()).contains(consumed));
            assert_eq!(parse_greeting(&input[..*consumed]), greeting);
            assert_eq!(parse_greeting(&input[..consumed - 1]), Ok(Parsed::Incomplete));
            request(&input[*consumed..]);
        }
        Err(error) => assert_eq!(error.reply(), None),
    }
    request(input);
    password(input);
});

fn password(input: &[u8]) {
    let parsed = parse_password(input);
    match &parsed {
        Ok(Parsed::Incomplete) => assert!(input.len() < MAX_PASSWORD_BYTES),
        Ok(Parsed::Complete { value, consumed }) => {
            assert_eq!(3 + value.name.len() + value.password.len(), *consumed);
            assert_eq!(parse_password(&input[..*consumed]), parsed);
            assert_eq!(parse_password(&input[..consumed - 1]), Ok(Parsed::Incomplete));
        }
        Err(error) => assert_eq!(error.reply(), None),
    }
}

fn request(input: &[u8]) {
    let parsed = parse_request(input);
    match &parsed {
        Ok(Parsed::Incomplete) => assert!(input.len() < MAX_REQUEST_BYTES),
        Ok(Parsed::Complete { value, consumed }) => {
            assert!((1..=input.len()).contains(consumed));
            assert_eq!(parse_request(&input[..*consumed]), parsed);
            for cut in 0..*consumed {
                assert_eq!(parse_request(&input[..cut]), Ok(Parsed::Incomplete));
            }
            assert_eq!(value.to_string().parse().as_ref(), Ok(value));
        }
        Err(error) => {
            if let Some(reply) = error.reply() {
                let bytes = encode_reply(reply, None);
                assert!(bytes.len() == 10 && bytes[1] != 0, "{error}");
            }
        }
    }
}
