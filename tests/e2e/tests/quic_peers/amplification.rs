//! A forged source address gets little traffic: at most three times what the
//! server got, until the address is proven (RFC 9000, Section 8.1).

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::certificates::{Authority, Certificates, Identity, SERVER_NAME};
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;

use crate::peer::Peer;

/// RFC 9000, Section 8.1.
const MOST: usize = 3;

/// All that comes within a time, in bytes: time for several repetitions of what is not answered.
fn received(socket: &UdpSocket, within: Duration) -> usize {
    let (end, mut buffer, mut bytes) = (Instant::now() + within, [0; 65_536], 0);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return bytes;
        }
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
        bytes += socket.recv(&mut buffer).unwrap_or(0);
    }
}

/// A server whose certificates alone are longer than it may answer at once.
fn with_a_long_chain() -> (tempfile::TempDir, Pair) {
    let dir = tempfile::tempdir().unwrap();
    let made = Certificates::make(dir.path());
    let mut chain = fs::read_to_string(&made.server.certificate).unwrap();
    let authority = Authority::make(dir.path());
    for number in 0..24 {
        let more = authority.sign(&format!("{number}.{SERVER_NAME}"), -1..30);
        chain.push_str(&fs::read_to_string(more.certificate).unwrap());
    }
    let certificate = dir.path().join("chain.pem");
    fs::write(&certificate, chain).unwrap();
    let identity = Identity { certificate, private_key: made.server.private_key };
    let pair = Pair::builder()
        .server_identity(&made.ca, identity)
        .server("limits.handshake_timeout_s", 3)
        .client("tunnel.ca", format!("\"{}\"", made.ca.display()))
        .client_identity(made.client)
        .start();
    (dir, pair)
}

#[test]
fn a_stranger_is_answered_with_three_times_its_bytes_at_most() {
    let (_dir, pair) = with_a_long_chain();
    let given_up = || {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_handshake_failures_total", &[("reason", "timeout")])
    };
    assert_eq!(given_up(), 0.0);
    let mut peer = Peer::new(&pair, true);
    let flight = peer.first_flight();
    let sent: usize = flight.iter().map(Vec::len).sum();
    for datagram in flight {
        peer.socket.send(&datagram).unwrap();
    }
    let answer = received(&peer.socket, Duration::from_secs(5));
    // Its certificates alone are more than that: it stopped, and not for want of more to say.
    assert!(answer > (MOST - 1) * sent, "{answer} bytes for {sent}");
    assert!(answer <= MOST * sent, "{answer} bytes for {sent}");
    wait::for_true("it is counted", wait::DEFAULT_TIMEOUT, || given_up() == 1.0);
}

#[test]
fn packets_too_short_to_begin_a_connection_are_not_answered() {
    for retry_from in [0, 64] {
        let pair = Pair::builder().server("limits.retry_threshold_handshakes", retry_from).start();
        let mut peer = Peer::new(&pair, true);
        let first = peer.next_datagram();
        // Whole, in a datagram that is too short: its length field still counts 1,200 bytes.
        peer.socket.send(&first[..1199]).unwrap();
        // A version that there is not, which is answered when it is long enough.
        let mut unknown = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a];
        unknown.extend([8; 9]);
        unknown.extend([8; 9]);
        unknown.resize(1199, 0);
        peer.socket.send(&unknown).unwrap();
        assert_eq!(received(&peer.socket, Duration::from_millis(500)), 0);
        unknown.push(0);
        peer.socket.send(&unknown).unwrap();
        let answer = received(&peer.socket, Duration::from_millis(500));
        assert!((1..=100).contains(&answer), "{answer} bytes of version negotiation");
    }
}
