//! Stateless Retry: clients prove their address, and nothing else passes for that.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;

use crate::peer::Peer;

/// First byte of a packet with a long header: its type (RFC 9000, Section 17.2).
fn packet_type(datagram: &[u8]) -> u8 {
    assert_eq!(datagram[0] & 0xc0, 0xc0, "no long header");
    datagram[0] >> 4 & 3
}

const INITIAL: u8 = 0;
const RETRY: u8 = 3;

fn retries(pair: &Pair) -> f64 {
    Metrics::fetch(pair.addresses.server_admin).sum("millrace_retries_sent_total", &[])
}

fn invalid(pair: &Pair) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    metrics.sum("millrace_drops_total", &[("reason", "invalid_token")])
}

#[test]
fn the_tunnel_comes_up_through_a_retry_and_carries_flows() {
    let origin = Origin::echo();
    let pair = Pair::builder().server("limits.retry_threshold_handshakes", 0).start();
    assert!(retries(&pair) >= 1.0);
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    flow.write_all(b"through").unwrap();
    flow.read_exact(&mut [0; 7]).unwrap();
    assert_eq!(invalid(&pair), 0.0);
}

#[test]
fn below_the_threshold_nobody_is_asked() {
    let pair = Pair::builder().start();
    assert_eq!(retries(&pair), 0.0);
}

#[test]
fn a_token_is_good_for_the_client_that_got_it_only() {
    let pair = Pair::builder().server("limits.retry_threshold_handshakes", 0).start();
    let connecting = || {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_connections", &[("state", "connecting")])
    };
    // The client has a connection for each of its workers; the first one makes the pair ready.
    wait::for_true("the pair's own handshakes are over", wait::DEFAULT_TIMEOUT, || {
        connecting() == 0.0
    });
    let mut peer = Peer::new(&pair, true);
    let first = peer.next_datagram();
    peer.socket.send(&first).unwrap();
    let answer = peer.receive(wait::DEFAULT_TIMEOUT).unwrap();
    assert_eq!(packet_type(&answer), RETRY);
    assert!(answer.len() < first.len(), "a Retry of {} bytes", answer.len());
    assert_eq!(connecting(), 0.0, "a client that has proven nothing costs state");
    peer.take(&answer);
    let second = peer.next_datagram();

    // Another client with the same packet.
    let thief = UdpSocket::bind("127.0.0.1:0").unwrap();
    thief.send_to(&second, pair.addresses.tunnel).unwrap();
    wait::for_true("the stolen token is counted", wait::DEFAULT_TIMEOUT, || invalid(&pair) >= 1.0);
    assert_eq!(connecting(), 0.0);

    // The same client with another token: the token is not protected by the packet's checksum as
    // the server sees it before it decrypts anything.
    let token_at = second.windows(4).position(|at| at[..1] == [0x4d] && at[1..4] == [0; 3]);
    let mut forged = second.clone();
    forged[token_at.expect("the token begins with its mark and the expiry") + 12] ^= 1;
    peer.socket.send(&forged).unwrap();
    wait::for_true("the forged token is counted", wait::DEFAULT_TIMEOUT, || invalid(&pair) >= 2.0);
    assert_eq!(connecting(), 0.0);
    assert_eq!(peer.receive(Duration::from_millis(200)), None);

    // The right one.
    peer.socket.send(&second).unwrap();
    let answer = peer.receive(wait::DEFAULT_TIMEOUT).unwrap();
    assert_eq!(packet_type(&answer), INITIAL);
    peer.take(&answer);
    peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(())).unwrap();
}
