//! Peers without a certificate, and HTTP/3 requests that no client may send.

use std::io::{Read, Write};
use std::net::UdpSocket;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::{tcp, wait};

use crate::peer::{Answer, Peer};

/// The client that an attacker claims to act for.
const FORGED: &str = "192.0.2.66:1066";

/// RFC 9114, Section 8.1.
const H3_MESSAGE_ERROR: u64 = 0x10e;

fn ok_request(to: &str) -> [(&str, &str); 2] {
    [(":method", "CONNECT"), (":authority", to)]
}

#[test]
fn a_client_without_a_certificate_is_refused_logged_and_counted() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let failed = || {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_handshake_failures_total", &[("reason", "no_certificate")])
    };
    assert_eq!(failed(), 0.0);
    let mut peer = Peer::connect(&pair, false);
    // TLS 1.3: the client's end of the handshake comes before the server's verdict. It also claims
    // another client address, which must not appear anywhere.
    let to = origin.address().to_string();
    if peer.quic.is_established() {
        let [method, authority] = ok_request(&to);
        let answer = peer.request(&[method, authority, ("millrace-client-address", FORGED)]);
        assert!(matches!(answer, Answer::Closed | Answer::Nothing), "{answer:?}");
    }
    let flows = admin::flows(pair.addresses.server_admin).to_string();
    assert!(!flows.contains(FORGED), "{flows}");
    wait::for_true("it is counted", wait::DEFAULT_TIMEOUT, || failed() >= 1.0);
    pair.server.expect_log("the failed handshake", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("no_certificate").then_some(())
    });
    assert!(!pair.server.log_text().contains(FORGED));
    assert_eq!(origin.accepted(), 0);
}

/// That the test above can tell, and that other HTTP/3 clients can use the server.
#[test]
fn another_http3_client_with_a_certificate_is_served() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let mut peer = Peer::connect(&pair, true);
    let to = origin.address().to_string();
    assert_eq!(peer.request(&ok_request(&to)), Answer::Status("200".into(), String::new()));
    let unused = tcp::unused_port();
    match peer.request(&ok_request(&format!("127.0.0.1:{unused}"))) {
        Answer::Status(status, why) => {
            assert_eq!(status, "502");
            assert!(why.contains("connection_refused"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

/// As when a health probe and the first flow leave a client in the same packet.
#[test]
fn the_first_flow_chooses_though_another_request_came_in_the_same_packet() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .server("tunnel.congestion_control", "\"cubic\"")
        .server("tunnel.class.rtsp.congestion_control", "{ name = \"constant\", rate_mbps = 50 }")
        .start();
    let mut peer = Peer::connect(&pair, true);
    let to = origin.address().to_string();
    let [method, authority] = ok_request(&to);
    let streams = [
        peer.send_request(&[method, authority, ("millrace-class", "rtsp")]),
        peer.send_request(&[method, authority]),
    ];
    let ok = || Answer::Status("200".into(), String::new());
    assert_eq!(peer.answers(&streams), [ok(), ok()]);
    let flows = admin::flows(pair.addresses.server_admin);
    let algorithms: Vec<_> =
        flows["flows"].as_array().unwrap().iter().map(|flow| &flow["algorithm"]).collect();
    assert_eq!(algorithms, ["constant", "constant"]);
}

#[test]
fn malformed_requests_are_refused_and_others_undisturbed() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().start();
    let to = origin.address().to_string();
    let mut bystander = pair.http().open(&to).unwrap();
    let errors = |pair: &Pair| {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_protocol_errors_total", &[("parser", "http3")])
    };
    let connect = (":method", "CONNECT");
    let authority = (":authority", to.as_str());
    let long = "x".repeat(300);
    let malformed: [&[(&str, &str)]; 12] = [
        &[connect],
        &[authority],
        &[connect, connect, authority],
        &[connect, authority, authority],
        &[connect, authority, (":scheme", "https"), (":path", "/")],
        &[connect, authority, (":unknown", "x")],
        &[connect, ("a", "b"), authority],
        &[connect, authority, ("connection", "close")],
        &[connect, authority, ("content-length", "1")],
        &[connect, authority, ("host", "elsewhere:80")],
        &[connect, (":authority", "no-port")],
        &[connect, (":authority", &long)],
    ];
    let mut peer = Peer::connect(&pair, true);
    for fields in malformed {
        let before = errors(&pair);
        let answer = peer.request(fields);
        // RFC 9114, Section 4.1.2: a stream error; an answer of 400 may come before it.
        let refused = match &answer {
            Answer::Reset(code) => *code == H3_MESSAGE_ERROR,
            Answer::Status(status, _) => status == "400",
            Answer::Closed | Answer::Nothing => false,
        };
        assert!(refused, "{fields:?}: {answer:?}");
        assert!(errors(&pair) > before, "{fields:?} is not counted");
    }
    // Well formed, but nothing that is served.
    for (fields, status) in [
        (&[(":method", "GET"), (":scheme", "https"), authority, (":path", "/")][..], "405"),
        (
            &[connect, (":protocol", "websocket"), (":scheme", "https"), authority, (":path", "/")],
            "501",
        ),
    ] {
        match peer.request(fields) {
            Answer::Status(got, _) => assert_eq!(got, status, "{fields:?}"),
            other => panic!("{fields:?}: {other:?}"),
        }
    }
    // The same connection still serves, and so do others.
    assert_eq!(peer.request(&ok_request(&to)), Answer::Status("200".into(), String::new()));
    bystander.write_all(b"still here").unwrap();
    bystander.read_exact(&mut [0; 10]).unwrap();
    pair.assert_running();
}

/// An authenticated peer is believed, as long as what it says is an address.
#[test]
fn the_clients_address_is_shown_when_it_is_one() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let to = origin.address().to_string();
    let [method, authority] = ok_request(&to);
    let mut peer = Peer::connect(&pair, true);
    for wrong in ["192.0.2.66", "nobody:80", "192.0.2.66:99999", ""] {
        match peer.request(&[method, authority, ("millrace-client-address", wrong)]) {
            Answer::Status(status, _) => assert_eq!(status, "400", "{wrong}"),
            other => panic!("{wrong}: {other:?}"),
        }
    }
    let answer = peer.request(&[method, authority, ("millrace-client-address", FORGED)]);
    assert_eq!(answer, Answer::Status("200".into(), String::new()));
    let flows = admin::flows(pair.addresses.server_admin).to_string();
    assert!(flows.contains(FORGED), "{flows}");
}

/// More header than the settings allow: refused and counted, without effect on others.
#[test]
fn headers_that_are_too_large_are_refused() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().start();
    let to = origin.address().to_string();
    let mut bystander = pair.http().open(&to).unwrap();
    let errors = || {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_protocol_errors_total", &[("parser", "http3")])
    };
    let [method, authority] = ok_request(&to);
    let long = "x".repeat(20_000);
    let mut many = vec![method, authority];
    many.resize(100, ("x", "y"));
    let cases: [&[(&str, &str)]; 2] = [&[method, authority, ("x", &long)], &many];
    for fields in cases {
        let before = errors();
        let answer = Peer::connect(&pair, true).request(fields);
        let refused = match &answer {
            Answer::Status(status, _) => status == "431",
            Answer::Closed => true,
            Answer::Reset(_) | Answer::Nothing => false,
        };
        assert!(refused, "{} fields: {answer:?}", fields.len());
        wait::for_true("it is counted", wait::DEFAULT_TIMEOUT, || errors() > before);
    }
    bystander.write_all(b"still here").unwrap();
    bystander.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(origin.accepted(), 1);
    pair.assert_running();
}

/// Datagrams that are no QUIC, and a QUIC client that stops in the middle of its handshake.
#[test]
fn noise_on_the_tunnels_port_disturbs_nobody() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().start();
    let to = origin.address().to_string();
    let mut bystander = pair.http().open(&to).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for seed in 0..2000_u64 {
        let noise = millrace_e2e::data::pattern(seed, 1 + seed as usize % 1400);
        socket.send_to(&noise, pair.addresses.tunnel).unwrap();
    }
    // Long headers with a version that there is not, and beginnings of Initial packets.
    for first in [0xc0_u8, 0xc3, 0xff] {
        for version in [0_u32, 1, 0x1a2a_3a4a] {
            let mut packet = vec![first];
            packet.extend(version.to_be_bytes());
            packet.extend([8; 9]);
            packet.resize(1200, 7);
            socket.send_to(&packet, pair.addresses.tunnel).unwrap();
        }
    }
    bystander.write_all(b"still here").unwrap();
    bystander.read_exact(&mut [0; 10]).unwrap();
    pair.assert_running();
    pair.http().open(&to).unwrap();
}
