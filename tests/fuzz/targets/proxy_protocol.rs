//! PROXY headers: the incremental contract, and agreement with another implementation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::{
    Parsed,
    proxy_protocol::{Header, MAX_V2_PAYLOAD_BYTES, parse},
};

fuzz_target!(|input: &[u8]| {
    let parsed = parse(input);
    match &parsed {
        Ok(Parsed::Incomplete) => assert!(input.len() < 16 + MAX_V2_PAYLOAD_BYTES),
        Ok(Parsed::Complete { value, consumed }) => {
            assert!((1..=input.len()).contains(consumed));
            assert_eq!(parse(&input[..*consumed]), parsed);
            for cut in 0..*consumed {
                assert_eq!(parse(&input[..cut]), Ok(Parsed::Incomplete), "{cut} of {consumed}");
            }
            if let Header::Proxied { source, destination } = value {
                let other = other_implementation(&input[..*consumed]);
                assert_eq!(other, Some((*source, *destination)));
            }
        }
        // More bytes don't mend an error.
        Err(error) => {
            assert_eq!(parse(&[input, b"\r\n"].concat()).as_ref(), Err(error));
        }
    }
});

type Pair = (std::net::SocketAddr, std::net::SocketAddr);

fn other_implementation(header: &[u8]) -> Option<Pair> {
    use ppp::{HeaderResult, v1, v2};
    match HeaderResult::parse(header) {
        HeaderResult::V1(Ok(header)) => match header.addresses {
            v1::Addresses::Tcp4(a) => Some((
                (a.source_address, a.source_port).into(),
                (a.destination_address, a.destination_port).into(),
            )),
            v1::Addresses::Tcp6(a) => Some((
                (a.source_address, a.source_port).into(),
                (a.destination_address, a.destination_port).into(),
            )),
            v1::Addresses::Unknown => None,
        },
        HeaderResult::V2(Ok(header)) => match header.addresses {
            v2::Addresses::IPv4(a) => Some((
                (a.source_address, a.source_port).into(),
                (a.destination_address, a.destination_port).into(),
            )),
            v2::Addresses::IPv6(a) => Some((
                (a.source_address, a.source_port).into(),
                (a.destination_address, a.destination_port).into(),
            )),
            _ => None,
        },
        _ => None,
    }
}
