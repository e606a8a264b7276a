//! Paths of CONNECT-UDP requests: what is accepted is built again to a path of the same target, and
//! every destination has a path that reads back.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use millrace_wire::{
    Destination,
    connect_udp::{parse_path, path},
};

const PREFIX: &str = "/.well-known/masque/udp/";

fuzz_target!(|input: &[u8]| {
    check(input);
    // Most inputs have no such beginning.
    check(&[PREFIX.as_bytes(), input].concat());
    if let Some(Ok(destination)) = std::str::from_utf8(input).ok().map(str::parse) {
        build(&destination);
    }
});

fn check(input: &[u8]) {
    let Ok(destination) = parse_path(input) else {
        return;
    };
    let (given_host, given_port) = target(input);
    let (host, port) = target(build(&destination).as_bytes());
    assert_eq!(
        (given_port.parse(), port.parse()),
        (Ok(destination.port()), Ok(destination.port()))
    );
    // An IPv6 address has several spellings.
    let address = |text: &str| text.parse::<IpAddr>().ok();
    assert_eq!(address(&given_host), address(&host));
    assert!(address(&host).is_some() || given_host.eq_ignore_ascii_case(&host));
}

/// The path for a destination, which needs no other encoding and reads back.
fn build(destination: &Destination) -> String {
    let path = path(destination);
    assert!(path.bytes().all(|it| it.is_ascii_alphanumeric() || b"/%-._".contains(&it)), "{path}");
    assert_eq!(parse_path(path.as_bytes()).as_ref(), Ok(destination), "{path}");
    path
}

/// The host and the port in a path that was accepted, decoded.
fn target(path: &[u8]) -> (String, String) {
    let path = std::str::from_utf8(path).expect("a target is ASCII");
    let parts: Vec<_> = path.strip_prefix(PREFIX).expect("no other path").split('/').collect();
    let [host, port, ""] = parts[..] else { panic!("{parts:?} is no host and port") };
    (decode(host), decode(port))
}

fn decode(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = u8::from_str_radix(&part[..2], 16).expect("two hexadecimal digits");
        decoded.push(byte.into());
        decoded.push_str(&part[2..]);
    }
    decoded
}
