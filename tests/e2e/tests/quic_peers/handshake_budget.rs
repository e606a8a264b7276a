//! Handshakes of clients that are not authenticated have a small number of places, shared fairly.

use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;

use crate::peer::Peer;

fn sum(pair: &Pair, name: &str, labels: &[(&str, &str)]) -> f64 {
    Metrics::fetch(pair.addresses.server_admin).sum(name, labels)
}

/// A handshake that stops after the address has been proven by a Retry. Whether the server took it.
pub fn stall(pair: &Pair, ip: [u8; 4]) -> Option<Peer> {
    let mut peer = Peer::at(pair, true, ip.into());
    let first = peer.next_datagram();
    peer.socket.send(&first).unwrap();
    let retry = peer.receive(wait::DEFAULT_TIMEOUT).expect("a Retry");
    peer.take(&retry);
    for datagram in peer.first_flight() {
        peer.socket.send(&datagram).unwrap();
    }
    peer.receive(Duration::from_millis(100)).map(|_| peer)
}

#[test]
fn addresses_that_answer_retries_leave_handshakes_to_others_and_no_mark_on_the_memory_cap() {
    const PLACES: usize = 64;
    let pair = Pair::builder()
        .server("limits.retry_threshold_handshakes", 0)
        .server("limits.max_unauthenticated_handshakes", PLACES)
        .server("limits.handshake_timeout_s", 60)
        .server("runtime.workers", 1)
        .start();
    wait::for_true("the pair's own handshakes are over", wait::DEFAULT_TIMEOUT, || {
        sum(&pair, "millrace_connections", &[("state", "connecting")]) == 0.0
    });
    let memory = sum(&pair, "millrace_memory_used_bytes", &[]);
    let mut stalled = Vec::new();
    for attempt in 0..8 * 12 {
        stalled.extend(stall(&pair, [127, 0, 0, 10 + attempt % 8]));
        if sum(&pair, "millrace_drops_total", &[("reason", "handshake_share")]) >= 8.0 {
            break;
        }
    }
    // The last quarter is for known clients, the one before for those with less than their share.
    let range = PLACES / 2..PLACES * 3 / 4;
    assert!(range.contains(&stalled.len()), "{} handshakes under way", stalled.len());
    // Far less than a receive window each.
    let taken = sum(&pair, "millrace_memory_used_bytes", &[]) - memory;
    assert!(taken < 64.0 * 1024.0 * PLACES as f64, "{taken} bytes of the memory cap");
    // A client from elsewhere.
    let mut other = Peer::at(&pair, true, [127, 0, 0, 99].into());
    other.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(())).unwrap();
}
