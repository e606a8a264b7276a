//! Flows that are asked for as early data count for their client.

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;

use crate::peer::{Answer, Peer};

/// A session of the client's certificate.
fn session(pair: &Pair) -> Vec<u8> {
    let mut peer = Peer::connect(pair, true);
    let session = peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.session().map(<[u8]>::to_vec));
    peer.quic.close(true, 0x100, b"").unwrap();
    peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_draining().then_some(()));
    session.expect("the server sends a ticket")
}

#[test]
fn flows_in_early_data_are_limited_as_all_of_their_client_are() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .server("limits.max_flows_per_client", 2)
        .server("runtime.workers", 1)
        .start();
    let session = session(&pair);
    let mut peer = Peer::new(&pair, true);
    peer.quic.set_session(&session).unwrap();
    // The ClientHello first, so that what follows is early data.
    let flight = peer.first_flight();
    assert!(peer.quic.is_in_early_data(), "the session allows early data");
    let to = origin.address().to_string();
    let fields = [(":method", "CONNECT"), (":authority", to.as_str())];
    let streams: Vec<_> = (0..10).map(|_| peer.send_request(&fields)).collect();
    for datagram in flight {
        peer.socket.send(&datagram).unwrap();
    }
    let answers = peer.answers(&streams);
    assert!(peer.quic.is_resumed());
    let of = |status: &str| {
        let is = |it: &&Answer| matches!(it, Answer::Status(got, _) if got == status);
        answers.iter().filter(is).count()
    };
    assert_eq!((of("200"), of("503")), (2, 8), "{answers:?}");
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    assert_eq!(metrics.sum("millrace_drops_total", &[("reason", "peer_flows")]), 8.0);
}
