//! The key exchange is post-quantum wherever both ends can, and X25519 with a peer that can't.

use boring::ssl::SslRef;
use millrace_e2e::admin;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;

use crate::peer::Peer;

const HYBRID: &str = "X25519MLKEM768";

#[test]
fn both_ends_agree_on_the_hybrid_group_and_show_it() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let _flow = pair.http().open(&origin.address().to_string()).unwrap();
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        wait::for_true("the flow is shown", wait::DEFAULT_TIMEOUT, || {
            admin::flows(admin)["flows"][0]["key_exchange"] == HYBRID
        });
    }
}

#[test]
fn peer_without_the_hybrid_group_connects_with_x25519() {
    let pair = Pair::builder().start();
    let own = &pair.certificates.client;
    let mut peer = Peer::of(&pair, &pair.certificates.ca, Some(own), |config| {
        config.set_curves_list("X25519").unwrap();
    });
    peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(())).unwrap();
    let tls: &mut SslRef = peer.quic.as_mut();
    assert_eq!(tls.curve_name(), Some("X25519"));
    pair.server.expect_log("the group", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("\"key_exchange\":\"X25519\"").then_some(())
    });
}
