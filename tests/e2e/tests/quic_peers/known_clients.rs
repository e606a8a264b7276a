//! Clients that the server has accepted before go first when handshakes are scarce.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::wait;

use crate::handshake_budget::stall;
use crate::peer::Peer;

/// Handshakes under way that the server takes.
const PLACES: usize = 128;
/// How long a handshake is tried that the server is to drop.
const REFUSED_FOR: Duration = Duration::from_secs(1);

fn sum(pair: &Pair, name: &str, labels: &[(&str, &str)]) -> f64 {
    Metrics::fetch(pair.addresses.server_admin).sum(name, labels)
}

fn tokens(pair: &Pair, result: &str) -> f64 {
    sum(pair, "millrace_known_client_tokens_total", &[("result", result)])
}

/// A server that sends each client without a token a Retry.
fn with_few_places() -> PairBuilder {
    Pair::builder()
        .server("limits.retry_threshold_handshakes", 0)
        .server("limits.max_unauthenticated_handshakes", PLACES)
        .server("limits.handshake_timeout_s", 60)
        .server("runtime.workers", 1)
        .client("runtime.workers", 1)
}

fn wait_for_no_handshakes(pair: &Pair) {
    wait::for_true("no handshake is under way", wait::DEFAULT_TIMEOUT, || {
        sum(pair, "millrace_connections", &[("state", "connecting")]) == 0.0
    });
}

/// A client at this address, with the token of an earlier connection.
fn with_token(pair: &Pair, ip: [u8; 4], token: &[u8]) -> Peer {
    let mut peer = Peer::at(pair, true, ip.into());
    peer.quic.set_token(token).unwrap();
    peer
}

fn connects(mut peer: Peer, at_most: Duration) -> bool {
    peer.drive(at_most, |peer| peer.quic.is_established().then_some(())).is_some()
}

/// The token that a client at this address gets.
fn token_of(pair: &Pair, ip: [u8; 4]) -> Vec<u8> {
    let mut peer = Peer::at(pair, true, ip.into());
    peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.take_new_token()).expect("a token")
}

/// Handshakes that stall, each from another address that has answered a Retry, until the server takes no more.
fn flood(pair: &Pair) -> Vec<Peer> {
    wait_for_no_handshakes(pair);
    let mut stalled = Vec::new();
    for number in 0..PLACES {
        stalled.extend(stall(pair, [127, 0, 1, u8::try_from(number).unwrap()]));
        if sum(pair, "millrace_drops_total", &[("reason", "handshakes")]) >= 4.0 {
            break;
        }
    }
    assert_eq!(stalled.len(), PLACES * 3 / 4, "handshakes of proven addresses");
    stalled
}

#[test]
fn client_that_connected_before_gets_in_while_proven_addresses_fill_the_rest() {
    let pair = with_few_places().start();
    let (home, elsewhere) = ([127, 0, 0, 99], [127, 0, 0, 98]);
    let token = token_of(&pair, home);
    let _stalled = flood(&pair);
    for ip in [home, elsewhere] {
        let stranger = Peer::at(&pair, true, ip.into());
        assert!(!connects(stranger, REFUSED_FOR), "without a token");
    }

    let retries = sum(&pair, "millrace_retries_sent_total", &[]);
    assert!(connects(with_token(&pair, home, &token), wait::DEFAULT_TIMEOUT));
    assert!(tokens(&pair, "same_address") >= 1.0);
    let after = sum(&pair, "millrace_retries_sent_total", &[]);
    assert_eq!(after, retries, "the token proves the address");

    assert!(connects(with_token(&pair, elsewhere, &token), wait::DEFAULT_TIMEOUT));
    assert!(tokens(&pair, "other_address") >= 1.0);
    let after = sum(&pair, "millrace_retries_sent_total", &[]);
    assert!(after > retries, "the token does not prove another address");
}

#[test]
fn millrace_client_begins_connections_with_its_token() {
    let origin = Origin::echo();
    let pair = with_few_places().client("tunnel.connections", "\"per_flow\"").start();
    let _stalled = flood(&pair);
    // All but the first need connections that begin in the flood.
    let mut flows: Vec<_> =
        (0..4).map(|_| pair.http().open(&origin.address().to_string()).unwrap()).collect();
    for flow in &mut flows {
        flow.write_all(b"through").unwrap();
        flow.read_exact(&mut [0; 7]).unwrap();
    }
    assert!(tokens(&pair, "same_address") >= 3.0);
    assert_eq!(tokens(&pair, "invalid"), 0.0);
}

#[test]
fn token_that_shows_nothing_counts_as_none() {
    let pair = with_few_places().start();
    let mut forged = token_of(&pair, [127, 0, 0, 99]);
    *forged.last_mut().unwrap() ^= 1;
    for token in [&forged[..], b"of another server"] {
        let retries = sum(&pair, "millrace_retries_sent_total", &[]);
        assert!(connects(with_token(&pair, [127, 0, 0, 99], token), wait::DEFAULT_TIMEOUT));
        assert!(sum(&pair, "millrace_retries_sent_total", &[]) > retries);
    }
    assert!(tokens(&pair, "invalid") >= 1.0);
    assert_eq!(tokens(&pair, "same_address"), 0.0);
    assert_eq!(sum(&pair, "millrace_drops_total", &[("reason", "invalid_token")]), 0.0);
}

#[test]
fn connected_client_gets_another_token_before_the_first_expires() {
    let pair = with_few_places()
        .server("tunnel.session_ticket_lifetime_s", 4)
        .server("tunnel.session_ticket_rotation_s", 1)
        .start();
    let ip = [127, 0, 0, 99];
    let mut peer = Peer::at(&pair, true, ip.into());
    let first = peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.take_new_token()).unwrap();
    let issued = Instant::now();
    let second = peer.drive(wait::DEFAULT_TIMEOUT, |peer| {
        peer.quic.send_ack_eliciting().ok();
        peer.quic.take_new_token()
    });
    assert!(issued.elapsed() < Duration::from_secs(4), "{:?}", issued.elapsed());
    let second = second.expect("another token");
    assert_ne!(first, second);
    wait::for_true("the first is expired", wait::DEFAULT_TIMEOUT, || {
        issued.elapsed() > Duration::from_millis(4100)
    });
    assert!(connects(with_token(&pair, ip, &second), wait::DEFAULT_TIMEOUT));
    assert!(tokens(&pair, "same_address") >= 1.0);
    assert_eq!(tokens(&pair, "invalid"), 0.0);
    assert!(connects(with_token(&pair, ip, &first), wait::DEFAULT_TIMEOUT));
    assert!(tokens(&pair, "invalid") >= 1.0);
}
