//! Properties of the wire formats that hold for any input.

use std::net::SocketAddr;

use millrace_wire::capsule::{self, Capsules};
use millrace_wire::first_bytes::{self, MAX_FIRST_BYTES};
use millrace_wire::{Destination, Parsed, parse_authority, proxy_protocol};
use proptest::prelude::*;

/// `bytes` in pieces that end at `cuts`.
fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter().map(|end| &bytes[std::mem::replace(&mut start, end)..end]).collect()
}

proptest! {
    #[test]
    fn datagrams_survive_capsules_in_any_pieces(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let stream: Vec<u8> = datagrams.iter().flat_map(|it| capsule::datagram(it)).collect();
        let (mut capsules, mut found) = (Capsules::default(), Vec::new());
        for piece in pieces(&stream, &cuts) {
            capsules.read(piece, |datagram| found.push(datagram.to_vec())).unwrap();
        }
        prop_assert_eq!(capsules.end(), Ok(()));
        prop_assert_eq!(found, datagrams);
    }

    #[test]
    fn authority_of_an_address_is_read_back(address: SocketAddr) {
        match Destination::from_address(address) {
            Ok(destination) => prop_assert_eq!(parse_authority(&destination.to_string()), Ok(destination)),
            Err(_) => prop_assert_eq!(address.port(), 0),
        }
    }

    #[test]
    fn accepted_authority_is_what_was_written(text in "[a-z0-9:@\\[\\]._-]{0,40}") {
        if let Ok(destination) = parse_authority(&text) {
            prop_assert_ne!(destination.port(), 0);
            prop_assert_eq!(parse_authority(&destination.to_string()), Ok(destination));
        }
    }

    #[test]
    fn proxy_header_is_read_back_and_each_prefix_is_incomplete(
        source: SocketAddr,
        destination: SocketAddr,
        cut: prop::sample::Index,
    ) {
        let header = proxy_protocol::encode_v2(source, destination);
        match proxy_protocol::parse(&header).unwrap() {
            Parsed::Complete { consumed, .. } => prop_assert_eq!(consumed, header.len()),
            Parsed::Incomplete => prop_assert!(false, "the header is whole"),
        }
        let prefix = &header[..cut.index(header.len())];
        prop_assert_eq!(proxy_protocol::parse(prefix), Ok(Parsed::Incomplete));
    }

    #[test]
    fn the_protocol_of_a_flow_does_not_depend_on_how_its_bytes_were_cut(
        method in "(GET|POST|OPTIONS|SETUP|PLAY|P|FOO|\\PC{0,4})",
        target in "( |/|\\*|rtsp://a/b)[ -~]{0,12}(\\.m4s|\\?CMCD=a)?",
        version in "(RTSP/[0-9]\\.[0-9]|HTTP/[0-2]\\.[0-9]|RTSP|\\PC{0,4})",
        rest in "(\r?\n(CMCD-Object|x-sessioncookie|[A-Z]): [ -~]{0,6}){0,4}(\r\n\r\n|\n\n)?\\PC{0,8}",
        longer in any::<bool>(),
        cut: prop::sample::Index,
    ) {
        let mut bytes = format!("{method} {target} {version}{rest}").into_bytes();
        if longer {
            bytes.resize(MAX_FIRST_BYTES, b'a');
        }
        let whole = first_bytes::recognise(&bytes);
        prop_assert!(whole.is_some() || bytes.len() < MAX_FIRST_BYTES);
        let prefix = &bytes[..cut.index(bytes.len() + 1)];
        if let Some(protocol) = first_bytes::recognise(prefix) {
            prop_assert_eq!(Some(protocol), whole);
        }
    }
}
