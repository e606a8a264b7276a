//! Properties of the wire formats that hold for any input.

use std::net::SocketAddr;

use millrace_wire::capsule::{self, Capsules};
use millrace_wire::first_bytes::{self, MAX_FIRST_BYTES};
use millrace_wire::rtsp::{self, MessageHead, Unit};
use millrace_wire::{
    Destination, Parsed, cmcd, connect_udp, http_connect, parse_authority, proxy_protocol, socks5,
};
use proptest::prelude::*;

/// `bytes` in pieces that end at `cuts`.
fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter().map(|end| &bytes[std::mem::replace(&mut start, end)..end]).collect()
}

fn destination() -> impl Strategy<Value = Destination> {
    let named = ("[a-zA-Z0-9._-]{1,30}", any::<u16>())
        .prop_filter_map("not a destination", |(host, port)| {
            Destination::from_host_port(&host, port).ok()
        });
    let address = any::<SocketAddr>()
        .prop_filter_map("port 0", |address| Destination::from_address(address).ok());
    prop_oneof![named, address]
}

/// A SOCKS5 request for a destination, which names it in text.
fn socks5_request(destination: &Destination) -> Vec<u8> {
    let host = match destination {
        Destination::Address(address) => address.ip().to_string(),
        Destination::Name { host, .. } => host.clone(),
    };
    let length = u8::try_from(host.len()).expect("a name of at most 255 bytes");
    [&[5, 1, 0, 3, length][..], host.as_bytes(), &destination.port().to_be_bytes()].concat()
}

/// The whole of `bytes` as one message.
fn rtsp_message(bytes: &[u8]) -> MessageHead {
    match rtsp::parse(bytes) {
        Ok(Parsed::Complete { value: Unit::Message(head), consumed })
            if consumed == bytes.len() =>
        {
            head
        }
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
    }
}

/// Heads of RTSP messages with fields that are repeated, folded or malformed.
fn rtsp_head() -> impl Strategy<Value = Vec<u8>> {
    let start = "(SETUP rtsp://a/b RTSP/1\\.0|RTSP/1\\.0 200 OK)";
    let field = "( ?(Transport|TRANSPORT|CSeq|Session|Content-Length|Authorization|X)[ \t]{0,2}:|x)[ -~]{0,12}\
        (\r?\n[ \t][ -~]{0,6}){0,2}";
    (start, prop::collection::vec(field, 0..8), "\r?\n").prop_map(|(start, fields, end)| {
        let lines = std::iter::once(start).chain(fields).map(|line| line + &end);
        (lines.collect::<String>() + &end).into_bytes()
    })
}

/// What a request with these members in a field says.
fn player_report(members: &[&str]) -> Option<cmcd::PlayerReport> {
    let head = format!("GET / HTTP/1.1\r\nCMCD-Request: {}\r\n\r\n", members.join(","));
    match cmcd::parse(head.as_bytes()) {
        Ok(Parsed::Complete { value, .. }) => value.report,
        other => panic!("{head:?}: {other:?}"),
    }
}

const CMCD_MEMBERS: [&str; 8] = [
    "bl=21300",
    "br=(3200;v 164;a)",
    "bs",
    "cid=\"a,bl=9\"",
    "mtp=25400",
    "ot=v",
    "sid=\"6e2f\"",
    "tb=6000",
];

proptest! {
    #[test]
    fn rewritten_rtsp_message_has_one_transport_and_its_other_fields(head in rtsp_head()) {
        let before = rtsp_message(&head);
        let written = rtsp::with_transport(&head, &before.transports, "NEW");
        let after = rtsp_message(&written);
        let values: Vec<_> = after.transports.iter().map(|it| &written[it.clone()]).collect();
        prop_assert_eq!(values, [b"NEW"]);
        prop_assert_eq!(after.start, before.start);
        prop_assert_eq!((after.cseq, after.session), (before.cseq, before.session));
        prop_assert_eq!(after.content_bytes, before.content_bytes);
        prop_assert_eq!(after.authorization.is_some(), before.authorization.is_some());
    }

    #[test]
    fn prefix_of_an_rtsp_message_is_incomplete_and_bytes_after_it_are_left(
        head in rtsp_head(),
        cut: prop::sample::Index,
        after: Vec<u8>,
    ) {
        let message = rtsp_message(&head);
        prop_assert_eq!(rtsp::parse(&head[..cut.index(head.len())]), Ok(Parsed::Incomplete));
        let consumed = head.len();
        let expected = Parsed::Complete { value: Unit::Message(message), consumed };
        prop_assert_eq!(rtsp::parse(&[head, after].concat()), Ok(expected));
    }

    #[test]
    fn order_of_cmcd_members_and_malformed_ones_among_them_do_not_matter(
        members in Just(CMCD_MEMBERS.to_vec()).prop_shuffle(),
        malformed in prop::sample::select(&["", "=1", "b l=6", "@", "cid=\"12\" vinyl\"", "cid=\"a\"b\"", "\"x\""]),
        place: prop::sample::Index,
    ) {
        let expected = player_report(&CMCD_MEMBERS);
        let mut members = members;
        members.insert(place.index(members.len() + 1), malformed);
        prop_assert_eq!(player_report(&members), expected);
    }

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

    /// So that no protocol gets around the rules for destinations.
    #[test]
    fn destination_is_the_same_in_each_protocol(destination in destination()) {
        let path = connect_udp::path(&destination);
        prop_assert_eq!(connect_udp::parse_path(path.as_bytes()), Ok(destination.clone()));
        let request = socks5_request(&destination);
        let consumed = request.len();
        let parsed = Parsed::Complete { value: destination.clone(), consumed };
        prop_assert_eq!(socks5::parse_request(&request), Ok(parsed));
        let request = format!("CONNECT {destination} HTTP/1.1\r\nHost: a\r\n\r\n");
        let consumed = request.len();
        let parsed = Parsed::Complete { value: destination, consumed };
        prop_assert_eq!(http_connect::parse(request.as_bytes()), Ok(parsed));
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
