//! CONNECT-UDP (RFC 9298) as peers ask for it that are not millrace-client, and as none may.

use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::udp::{self, UdpEcho};
use millrace_e2e::{tcp, wait};
use quiche::h3;

use crate::peer::{Answer, Peer};

/// RFC 9114, Section 8.1, and RFC 9297, Section 5.2.
const H3_MESSAGE_ERROR: u64 = 0x10e;
const H3_CONNECT_ERROR: u64 = 0x10f;
const H3_DATAGRAM_ERROR: u64 = 0x33;
/// How long nothing must come where nothing may come.
const SILENCE: Duration = Duration::from_millis(300);

fn pair() -> PairBuilder {
    Pair::builder().allow_udp("127.0.0.1")
}

fn path(to: std::net::SocketAddr) -> String {
    format!("/.well-known/masque/udp/{}/{}/", to.ip(), to.port())
}

fn fields(path: &str) -> [(&str, &str); 6] {
    [
        (":method", "CONNECT"),
        (":protocol", "connect-udp"),
        (":scheme", "https"),
        (":authority", "millrace-server:4433"),
        (":path", path),
        ("capsule-protocol", "?1"),
    ]
}

/// A flow that the server has accepted.
fn open(peer: &mut Peer, origin: &UdpEcho) -> u64 {
    let (stream, answer) = peer.open(&fields(&path(origin.address())));
    assert_eq!(answer, Answer::Status("200".into(), String::new()));
    stream
}

/// A DATAGRAM frame's content; streams here are below 256.
fn frame(stream: u64, context: u8, payload: &[u8]) -> Vec<u8> {
    let quarter = u8::try_from(stream / 4).unwrap();
    assert!(quarter < 64 && context < 64, "a varint of one byte");
    [&[quarter, context], payload].concat()
}

/// What comes back for a datagram with context ID 0, if something does.
fn exchange(peer: &mut Peer, stream: u64, payload: &[u8], at_most: Duration) -> Option<Vec<u8>> {
    peer.quic.dgram_send(&frame(stream, 0, payload)).unwrap();
    received(peer, stream, at_most)
}

fn received(peer: &mut Peer, stream: u64, at_most: Duration) -> Option<Vec<u8>> {
    let got = peer.drive(at_most, |peer| peer.quic.dgram_recv_buf().ok())?;
    assert_eq!(got[..2], frame(stream, 0, b""));
    Some(got[2..].to_vec())
}

fn send_on_stream(peer: &mut Peer, stream: u64, bytes: &[u8], end: bool) {
    let (h3, quic) = peer.h3();
    assert_eq!(h3.send_body(quic, stream, bytes, end), Ok(bytes.len()));
}

fn of_reason(pair: &Pair, reason: &str) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    metrics.sum("millrace_drops_total", &[("reason", reason)])
}

fn protocol_errors(pair: &Pair) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    metrics.sum("millrace_protocol_errors_total", &[("parser", "http3")])
}

#[test]
fn datagrams_and_capsules_are_answered_and_unknown_ones_skipped() {
    let origin = UdpEcho::start();
    let pair = pair().start();
    let mut peer = Peer::connect(&pair, true);
    let stream = open(&mut peer, &origin);
    let (h3, quic) = peer.h3();
    assert!(h3.extended_connect_enabled_by_peer() && h3.dgram_enabled_by_peer(quic));
    for payload in [&b"datagram"[..], b"", &[7; 1000]] {
        assert_eq!(
            exchange(&mut peer, stream, payload, wait::DEFAULT_TIMEOUT).as_deref(),
            Some(payload)
        );
    }
    assert_eq!(origin.seen(), 3);
    // An unregistered context, an unknown flow, and a frame without a payload.
    peer.quic.dgram_send(&frame(stream, 2, b"other context")).unwrap();
    peer.quic.dgram_send(&frame(stream + 40, 0, b"no flow yet")).unwrap();
    peer.quic.dgram_send(&frame(stream, 0, b"")[..1]).unwrap();
    assert_eq!(received(&mut peer, stream, SILENCE), None);
    assert_eq!(of_reason(&pair, "datagram_context"), 1.0);
    assert_eq!(protocol_errors(&pair), 1.0);
    // A DATAGRAM capsule in two parts, one of another type before it, one with another context.
    let capsules = [
        &[0x57, 0x3b, 3, 1, 2, 3][..],
        &[0, 4, 5, b'a', b'b', b'c'],
        &[0, 8, 0, b'c', b'a', b'p', b's', b'u', b'l', b'e'],
    ]
    .concat();
    let (first, second) = capsules.split_at(capsules.len() - 3);
    send_on_stream(&mut peer, stream, first, false);
    assert_eq!(received(&mut peer, stream, SILENCE), None);
    send_on_stream(&mut peer, stream, second, false);
    assert_eq!(
        received(&mut peer, stream, wait::DEFAULT_TIMEOUT).as_deref(),
        Some(&b"capsule"[..])
    );
    assert_eq!(of_reason(&pair, "datagram_context"), 2.0);
    assert_eq!(origin.seen(), 4);
    // The end of the stream is the end of the flow.
    send_on_stream(&mut peer, stream, b"", true);
    let active = || Metrics::fetch(pair.addresses.server_admin).sum("millrace_flows_active", &[]);
    peer.drive(SILENCE, |_| None::<()>);
    assert_eq!(active(), 0.0);
    peer.quic.dgram_send(&frame(stream, 0, b"too late")).unwrap();
    assert_eq!(received(&mut peer, stream, SILENCE), None);
    assert_eq!((origin.seen(), of_reason(&pair, "datagram_flow")), (4, 1.0));
}

/// Without waiting for an answer (RFC 9298, Section 3.1): a datagram may even be ahead of its
/// request.
#[test]
fn datagrams_ahead_of_the_answer_are_kept() {
    let origin = UdpEcho::start();
    let pair = pair().start();
    let mut peer = Peer::connect(&pair, true);
    let first = open(&mut peer, &origin);
    let next = first + 4;
    peer.quic.dgram_send(&frame(next, 0, b"early")).unwrap();
    peer.drive(SILENCE, |_| None::<()>);
    assert_eq!(origin.seen(), 0);
    assert_eq!(open(&mut peer, &origin), next);
    assert_eq!(received(&mut peer, next, wait::DEFAULT_TIMEOUT).as_deref(), Some(&b"early"[..]));
}

#[test]
fn requests_that_can_not_be_served_are_answered_and_others_undisturbed() {
    let origin = UdpEcho::start();
    let pair = pair().start();
    let mut peer = Peer::connect(&pair, true);
    let bystander = open(&mut peer, &origin);
    let good = path(origin.address());
    for (path, status, why) in [
        ("/", "404", ""),
        ("/.well-known/masque/udp/127.0.0.1/53", "404", ""),
        ("/.well-known/masque/udp/127.0.0.1/0/", "400", ""),
        ("/.well-known/masque/udp/127.0.0.1/65536/", "400", ""),
        ("/.well-known/masque/udp//53/", "400", ""),
        ("/.well-known/masque/udp/a%zz/53/", "400", ""),
        ("/.well-known/masque/udp/192.0.2.1/53/", "403", "http_request_denied"),
        ("/.well-known/masque/udp/%3A%3Affff%3A192.0.2.1/53/", "403", "http_request_denied"),
        ("/.well-known/masque/udp/nowhere.invalid/53/", "502", "dns_error"),
    ] {
        match peer.request(&fields(path)) {
            Answer::Status(got, proxy_status) => {
                assert_eq!(got, status, "{path}");
                assert!(proxy_status.contains(why), "{path}: {proxy_status}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    for missing in [":scheme", ":authority", ":path"] {
        let mut fields = fields(&good).to_vec();
        fields.retain(|(name, _)| *name != missing);
        let before = protocol_errors(&pair);
        match peer.request(&fields) {
            Answer::Reset(code) => assert_eq!(code, H3_MESSAGE_ERROR, "{missing}"),
            Answer::Status(status, _) => assert_eq!(status, "400", "{missing}"),
            other => panic!("{missing}: {other:?}"),
        }
        assert!(protocol_errors(&pair) > before, "{missing}");
    }
    let echo = exchange(&mut peer, bystander, b"still here", wait::DEFAULT_TIMEOUT);
    assert_eq!(echo.as_deref(), Some(&b"still here"[..]));
    assert_eq!(origin.seen(), 1);
}

#[test]
fn a_port_where_nobody_listens_ends_the_flow() {
    let pair = pair().start();
    let mut peer = Peer::connect(&pair, true);
    let unused = udp::socket().local_addr().unwrap();
    let (stream, answer) = peer.open(&fields(&path(unused)));
    assert_eq!(answer, Answer::Status("200".into(), String::new()));
    peer.quic.dgram_send(&frame(stream, 0, b"anybody?")).unwrap();
    assert_eq!(peer.reset_of(stream, wait::DEFAULT_TIMEOUT), Some(H3_CONNECT_ERROR));
}

#[test]
fn bad_capsules_end_their_flow_and_no_other() {
    let origin = UdpEcho::start();
    let pair = pair().start();
    let mut peer = Peer::connect(&pair, true);
    let bystander = open(&mut peer, &origin);
    // Longer than any UDP payload; ended in the middle of a capsule's head and value.
    let cases: [(&[u8], bool, u64); 3] = [
        (&[0, 0x80, 1, 0, 8, 0], false, H3_DATAGRAM_ERROR),
        (&[0], true, H3_MESSAGE_ERROR),
        (&[0, 5, 0, 1], true, H3_MESSAGE_ERROR),
    ];
    for (bytes, end, code) in cases {
        let before = protocol_errors(&pair);
        let stream = open(&mut peer, &origin);
        send_on_stream(&mut peer, stream, bytes, end);
        assert_eq!(peer.reset_of(stream, wait::DEFAULT_TIMEOUT), Some(code), "{bytes:?}");
        assert_eq!(protocol_errors(&pair), before + 1.0);
    }
    let echo = exchange(&mut peer, bystander, b"still here", wait::DEFAULT_TIMEOUT);
    assert_eq!(echo.as_deref(), Some(&b"still here"[..]));
    assert_eq!(origin.seen(), 1);
}

/// RFC 9297, Section 2.1: the connection ends; others go on.
#[test]
fn a_datagram_without_a_stream_ends_its_connection() {
    let origin = UdpEcho::start();
    let pair = pair().start();
    let mut bystander = Peer::connect(&pair, true);
    let stream = open(&mut bystander, &origin);
    for bad in [&[][..], &[0x40], &[0xff, 255, 255, 255, 255, 255, 255, 255, 0]] {
        let mut peer = Peer::connect(&pair, true);
        open(&mut peer, &origin);
        peer.quic.dgram_send(bad).unwrap();
        peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.peer_error().cloned());
        let error = peer.quic.peer_error().expect("the connection is closed");
        assert_eq!((error.is_app, error.error_code), (true, H3_DATAGRAM_ERROR), "{bad:?}");
    }
    let echo = exchange(&mut bystander, stream, b"still here", wait::DEFAULT_TIMEOUT);
    assert_eq!(echo.as_deref(), Some(&b"still here"[..]));
}

/// RFC 9297, Section 2: a request that has no datagrams must not get one.
#[test]
fn a_datagram_on_a_tcp_flow_ends_that_flow() {
    let (origin, echo) = (Origin::echo(), UdpEcho::start());
    let pair = pair().start();
    let mut peer = Peer::connect(&pair, true);
    let bystander = open(&mut peer, &echo);
    let to = origin.address().to_string();
    let (stream, answer) = peer.open(&[(":method", "CONNECT"), (":authority", &to)]);
    assert_eq!(answer, Answer::Status("200".into(), String::new()));
    peer.quic.dgram_send(&frame(stream, 0, b"?")).unwrap();
    assert_eq!(peer.reset_of(stream, wait::DEFAULT_TIMEOUT), Some(H3_DATAGRAM_ERROR));
    assert!(exchange(&mut peer, bystander, b"still here", wait::DEFAULT_TIMEOUT).is_some());
}

/// A peer without DATAGRAM frames has its datagrams in capsules, both ways.
#[test]
fn a_peer_without_datagrams_gets_capsules() {
    let origin = UdpEcho::start();
    let pair = pair().start();
    let mut peer = Peer::with_datagrams(&pair, true, false);
    peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(()));
    let stream = open(&mut peer, &origin);
    let capsule = [0, 6, 0, b'h', b'e', b'l', b'l', b'o'];
    send_on_stream(&mut peer, stream, &capsule, false);
    let mut got = Vec::new();
    peer.drive(wait::DEFAULT_TIMEOUT, |peer| {
        let (h3, quic) = peer.h3();
        let mut buffer = [0; 100];
        match h3.poll(quic) {
            Ok((of, h3::Event::Data)) if of == stream => {
                while let Ok(read) = h3.recv_body(quic, stream, &mut buffer) {
                    got.extend_from_slice(&buffer[..read]);
                }
            }
            _ => {}
        }
        (got.len() >= capsule.len()).then_some(())
    });
    assert_eq!(got, capsule);
}

/// UDP flows go to listed destinations only: the server is no open proxy.
#[test]
fn nothing_is_allowed_that_is_not_listed() {
    let origin = UdpEcho::start();
    let pair = Pair::builder().start();
    let mut peer = Peer::connect(&pair, true);
    let answer = peer.request(&fields(&path(origin.address())));
    assert!(matches!(&answer, Answer::Status(status, _) if status == "403"), "{answer:?}");
    // TCP to the same address is another matter, in this pair.
    let unused = tcp::unused_port();
    let to = format!("127.0.0.1:{unused}");
    let answer = peer.request(&[(":method", "CONNECT"), (":authority", &to)]);
    assert!(matches!(&answer, Answer::Status(status, _) if status == "502"), "{answer:?}");
}

/// A port of media is asked for by the stream of the RTSP flow that has it. There is none here, and
/// nothing else is opened in its place, be the destination permitted or not.
#[test]
fn a_port_that_no_rtsp_flow_of_the_connection_has_is_refused() {
    let origin = UdpEcho::start();
    let pair = pair().start();
    let mut peer = Peer::connect(&pair, true);
    let (to, allowed) = (path(origin.address()), open(&mut peer, &origin));
    let tcp = Origin::echo();
    let authority = tcp.address().to_string();
    let connect = [(":method", "CONNECT"), (":authority", &*authority), ("millrace-class", "rtsp")];
    let (rtsp, answer) = peer.open(&connect);
    assert!(matches!(&answer, Answer::Status(status, _) if status == "200"), "{answer:?}");
    for stream in [rtsp, allowed, 0, 4000].map(|stream| stream.to_string()) {
        let asked = [&fields(&to)[..], &[("millrace-rtsp", &stream)]].concat();
        let (_, answer) = peer.open(&asked);
        assert!(matches!(&answer, Answer::Status(status, _) if status == "403"), "{answer:?}");
    }
    let asked = [&fields(&to)[..], &[("millrace-rtsp", "?1")]].concat();
    let (_, answer) = peer.open(&asked);
    assert!(matches!(&answer, Answer::Status(status, _) if status == "400"), "{answer:?}");
    assert_eq!(
        exchange(&mut peer, allowed, b"as before", wait::DEFAULT_TIMEOUT).as_deref(),
        Some(&b"as before"[..])
    );
    assert_eq!(origin.seen(), 1);
}
