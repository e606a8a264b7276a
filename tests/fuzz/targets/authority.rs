//! Authorities: what is accepted reads back the same from its own text, and is canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{Destination, destination::MAX_HOST_BYTES, parse_authority};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(destination) = parse_authority(text) {
        check(&destination);
        assert!(text.eq_ignore_ascii_case(&destination.to_string()) || text.starts_with('['));
    }
    if let Ok(destination) = Destination::from_host_port(text, 443) {
        check(&destination);
    }
});

fn check(destination: &Destination) {
    assert_ne!(destination.port(), 0);
    let text = destination.to_string();
    assert_eq!(parse_authority(&text).as_ref(), Ok(destination), "{text:?}");
    if let Destination::Name { host, .. } = destination {
        assert!(!host.is_empty() && host.len() <= MAX_HOST_BYTES + 1);
        assert!(host.parse::<std::net::IpAddr>().is_err(), "{host:?} is an address");
        assert!(host.bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase()));
    }
}
