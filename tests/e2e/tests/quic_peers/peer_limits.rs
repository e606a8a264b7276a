//! What one peer may take, before its certificate is known and after.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;
use socket2::Socket;

use crate::peer::Peer;

/// RFC 9114, Section 8.1.
const H3_EXCESSIVE_LOAD: u64 = 0x107;

fn dropped(pair: &Pair, reason: &str) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    metrics.sum("millrace_drops_total", &[("reason", reason)])
}

fn echoes(flow: &mut Socket) {
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn handshakes_that_stall_are_limited_by_address_and_given_up() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .server("limits.max_handshakes_per_source_ip", 5)
        .server("limits.handshake_timeout_s", 2)
        .client("runtime.workers", 1)
        .start();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let connecting = || {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_connections", &[("state", "connecting")])
    };
    let mut peers: Vec<_> = (0..25).map(|_| Peer::new(&pair, true)).collect();
    for peer in &mut peers {
        let first = peer.next_datagram();
        peer.socket.send(&first).unwrap();
    }
    wait::for_true("all are seen", wait::DEFAULT_TIMEOUT, || {
        dropped(&pair, "peer_handshakes") >= 20.0
    });
    assert!(connecting() <= 5.0, "{} handshakes", connecting());
    echoes(&mut flow);
    wait::for_true("they are given up", wait::DEFAULT_TIMEOUT, || connecting() == 0.0);
    // And others have their turn.
    assert!(Peer::connect(&pair, true).quic.is_established());
}

#[test]
fn handshakes_that_end_at_once_are_limited_by_their_rate() {
    let pair = Pair::builder()
        .server("limits.max_handshakes_per_source_ip", 10)
        .server("limits.handshake_rate_per_source_ip", 1)
        .client("runtime.workers", 1)
        .start();
    let connecting = || {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_connections", &[("state", "connecting")])
    };
    // As many at once as may be under way, and the same again once all have ended.
    for _ in 0..2 {
        let mut peers: Vec<_> = (0..10).map(|_| Peer::new(&pair, true)).collect();
        for peer in &mut peers {
            let first = peer.next_datagram();
            peer.socket.send(&first).unwrap();
        }
        for peer in &mut peers {
            let Some(answer) = peer.receive(Duration::from_millis(300)) else { continue };
            peer.take(&answer);
            peer.quic.close(false, 0, b"").unwrap();
            let close = peer.next_datagram();
            peer.socket.send(&close).unwrap();
        }
        wait::for_true("all have ended", wait::DEFAULT_TIMEOUT, || connecting() == 0.0);
    }
    let dropped = dropped(&pair, "peer_handshake_rate");
    assert!(dropped >= 5.0, "{dropped} dropped");
}

/// The client's three classes have a connection each.
fn three_connections() -> millrace_e2e::pair::PairBuilder {
    Pair::builder().client("runtime.workers", 1)
}

fn is_turned_away(pair: &Pair) {
    let mut peer = Peer::connect(pair, true);
    let code = peer
        .drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.peer_error().map(|error| error.error_code));
    assert_eq!(code, Some(H3_EXCESSIVE_LOAD));
}

fn established(pair: &Pair) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    metrics.sum("millrace_connections", &[("state", "established")])
}

#[test]
fn a_client_has_so_many_connections() {
    let origin = Origin::echo();
    let pair = three_connections().server("limits.max_connections_per_client", 3).start();
    wait::for_true("all connections are up", wait::DEFAULT_TIMEOUT, || established(&pair) == 3.0);
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    is_turned_away(&pair);
    assert_eq!(dropped(&pair, "peer_connections"), 1.0);
    echoes(&mut flow);
}

#[test]
fn a_client_has_so_much_memory() {
    let origin = Origin::echo();
    let pair = three_connections().server("limits.memory_per_client_mb", 1).start();
    wait::for_true("all connections are up", wait::DEFAULT_TIMEOUT, || established(&pair) == 3.0);
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    // Each counts 46 kB, and those of the peer that the test plays are the client's too.
    let _more: Vec<_> = (0..19).map(|_| Peer::connect(&pair, true)).collect();
    wait::for_true("they count", wait::DEFAULT_TIMEOUT, || {
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        metrics.sum("millrace_memory_used_bytes", &[]) > 1e6
    });
    is_turned_away(&pair);
    // The client's own spare connection may have been refused too.
    assert!(dropped(&pair, "peer_memory") >= 1.0);
    echoes(&mut flow);
}

#[test]
fn a_client_has_so_many_flows() {
    let origin = Origin::echo();
    let pair = Pair::builder().server("limits.max_flows_per_client", 2).start();
    let open = || pair.http().open(&origin.address().to_string());
    let [mut first, mut second] = [(); 2].map(|()| open().unwrap());
    match open() {
        Err(Refusal::Http { status: 503, head }) => {
            assert!(head.contains("details=\"client limit\""), "{head}");
        }
        other => panic!("{other:?}"),
    }
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert_eq!(client.sum("millrace_server_overload_total", &[]), 0.0);
    assert_eq!(dropped(&pair, "peer_flows"), 1.0);
    assert_eq!(dropped(&pair, "flow_limit"), 0.0);
    echoes(&mut first);
    echoes(&mut second);
    drop(first);
    wait::for_true("the place is free again", wait::DEFAULT_TIMEOUT, || open().is_ok());
}

/// Slow-loris: connections to the client's listeners that say nothing.
#[test]
fn silent_connections_are_limited_by_address_and_given_up() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .client("limits.max_handshakes_per_source_ip", 10)
        .client("limits.handshake_timeout_s", 3)
        .start();
    let to = origin.address().to_string();
    let mut flow = pair.http().open(&to).unwrap();
    let dropped = || {
        let metrics = Metrics::fetch(pair.addresses.client_admin);
        metrics.sum("millrace_drops_total", &[("reason", "peer_handshakes")])
    };
    let TestListener::Http(listener) = *pair.http() else {
        panic!("the second listener is HTTP CONNECT")
    };
    // Some may be reset before they notice that they are connected.
    let silent: Vec<_> = (0..30).filter_map(|_| tcp::connect(listener).ok()).collect();
    assert!(silent.len() >= 10);
    wait::for_true("those beyond the limit are counted", wait::DEFAULT_TIMEOUT, || {
        dropped() >= 20.0
    });
    let started = Instant::now();
    let ends: Vec<_> = silent.iter().map(|socket| tcp::drain(socket).1).collect();
    assert!(!ends.contains(&End::Never), "{ends:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
    echoes(&mut flow);
    echoes(&mut pair.http().open(&to).unwrap());
}
