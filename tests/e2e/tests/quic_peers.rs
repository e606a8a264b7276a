//! Peers of the server that are not millrace-client: without a certificate, and with HTTP/3 requests
//! that no client may send. A QUIC client of the test itself, one thread, blocking.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::certificates::SERVER_NAME;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::{tcp, wait};
use quiche::h3::{self, NameValue};

/// RFC 9114, Section 8.1.
const H3_MESSAGE_ERROR: u64 = 0x10e;

/// A connection to the server.
struct Peer {
    socket: UdpSocket,
    quic: quiche::Connection,
    h3: Option<h3::Connection>,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// A response with this status and the `proxy-status` field, if any.
    Status(String, String),
    /// The stream was reset with this code.
    Reset(u64),
    /// The whole connection was closed.
    Closed,
    /// Nothing, within the time.
    Nothing,
}

impl Peer {
    fn connect(pair: &Pair, with_certificate: bool) -> Self {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(h3::APPLICATION_PROTOCOL).unwrap();
        let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        config.load_verify_locations_from_file(&path(&pair.certificates.ca)).unwrap();
        config.verify_peer(true);
        if with_certificate {
            let own = &pair.certificates.client;
            config.load_cert_chain_from_pem_file(&path(&own.certificate)).unwrap();
            config.load_priv_key_from_pem_file(&path(&own.private_key)).unwrap();
        }
        config.set_max_idle_timeout(5000);
        config.set_initial_max_data(1 << 20);
        config.set_initial_max_stream_data_bidi_local(1 << 18);
        config.set_initial_max_stream_data_uni(1 << 16);
        config.set_initial_max_streams_uni(8);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(pair.addresses.tunnel).unwrap();
        let id: [u8; 16] =
            std::array::from_fn(|i| i as u8 ^ socket.local_addr().unwrap().port() as u8);
        let id = quiche::ConnectionId::from_ref(&id);
        let (local, peer) = (socket.local_addr().unwrap(), pair.addresses.tunnel);
        let quic = quiche::connect(Some(SERVER_NAME), &id, local, peer, &mut config).unwrap();
        let mut connection = Self { socket, quic, h3: None };
        connection.drive(wait::SOON, |peer| peer.quic.is_established().then_some(()));
        connection
    }

    /// Sends and receives until there is an answer, the connection is closed, or the time is up.
    fn drive<T>(
        &mut self,
        at_most: Duration,
        mut answer: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + at_most;
        let mut buffer = [0; 65_536];
        loop {
            while let Ok((length, _)) = self.quic.send(&mut buffer) {
                self.socket.send(&buffer[..length]).ok();
            }
            if let Some(answer) = answer(self) {
                return Some(answer);
            }
            if self.quic.is_closed() || Instant::now() >= end {
                return None;
            }
            let timeout = self.quic.timeout().unwrap_or(wait::SOON).min(Duration::from_millis(50));
            self.socket.set_read_timeout(Some(timeout.max(Duration::from_millis(1)))).unwrap();
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let from: SocketAddr = self.socket.peer_addr().unwrap();
                    let info = quiche::RecvInfo { from, to: self.socket.local_addr().unwrap() };
                    self.quic.recv(&mut buffer[..length], info).ok();
                }
                Err(_) => self.quic.on_timeout(),
            }
        }
    }

    /// Sends a request of these fields and waits for what comes of it.
    fn request(&mut self, fields: &[(&str, &str)]) -> Answer {
        let fields: Vec<_> =
            fields.iter().map(|(n, v)| h3::Header::new(n.as_bytes(), v.as_bytes())).collect();
        if self.h3.is_none() {
            let config = h3::Config::new().unwrap();
            self.h3 = Some(h3::Connection::with_transport(&mut self.quic, &config).unwrap());
        }
        let h3 = self.h3.as_mut().unwrap();
        let stream = h3.send_request(&mut self.quic, &fields, false).unwrap();
        let answer = self.drive(Duration::from_secs(5), |peer| {
            match peer.h3.as_mut().unwrap().poll(&mut peer.quic) {
                Ok((of, h3::Event::Headers { list, .. })) if of == stream => {
                    let value = |name: &[u8]| {
                        let field = list.iter().find(|field| field.name() == name);
                        field.map_or(String::new(), |field| {
                            String::from_utf8_lossy(field.value()).into_owned()
                        })
                    };
                    Some(Answer::Status(value(b":status"), value(b"proxy-status")))
                }
                Ok((of, h3::Event::Reset(code))) if of == stream => Some(Answer::Reset(code)),
                _ => None,
            }
        });
        answer.unwrap_or(if self.quic.is_closed() { Answer::Closed } else { Answer::Nothing })
    }
}

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
    // TLS 1.3: the client's end of the handshake comes before the server's verdict.
    let to = origin.address().to_string();
    if peer.quic.is_established() {
        let answer = peer.request(&ok_request(&to));
        assert!(matches!(answer, Answer::Closed | Answer::Nothing), "{answer:?}");
    }
    wait::for_true("it is counted", wait::SOON, || failed() >= 1.0);
    pair.server.expect_log("the failed handshake", wait::SOON, |line| {
        line.contains("no_certificate").then_some(())
    });
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
    let nobody = tcp::unused_port();
    match peer.request(&ok_request(&format!("127.0.0.1:{nobody}"))) {
        Answer::Status(status, why) => {
            assert_eq!(status, "502");
            assert!(why.contains("connection_refused"), "{why}");
        }
        other => panic!("{other:?}"),
    }
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
