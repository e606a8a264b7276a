//! Addresses that a tunnel must not lead to unless its operator says so.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::{Origin, echo};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::tcp::{self, End};

/// Every address and port is allowed: what is still refused is refused for what it is.
fn everything() -> PairBuilder {
    Pair::builder().allow_only(&["0.0.0.0/0", "::/0"])
}

/// The destination is refused at each listener that can name it.
fn assert_denied(pair: &Pair, destination: &str) {
    match pair.http().open(destination) {
        Err(Refusal::Http { status: 403, head }) => {
            assert!(head.contains("error=http_request_denied"), "{head}");
        }
        other => panic!("CONNECT {destination}: {other:?}"),
    }
    match pair.listeners[2].open(destination) {
        Err(Refusal::Socks(2)) => {}
        other => panic!("SOCKS {destination}: {other:?}"),
    }
    if destination.parse::<std::net::SocketAddr>().is_ok() {
        assert_eq!(
            pair.listeners[3].drain(destination).unwrap(),
            (vec![], End::Reset),
            "PROXY {destination}"
        );
    }
}

fn denied(pair: &Pair) -> f64 {
    Metrics::fetch(pair.addresses.server_admin).sum("millrace_destinations_denied_total", &[])
}

#[test]
fn loopback_in_every_spelling_is_refused_and_counted() {
    let v4 = Origin::echo();
    let port = v4.address().port();
    let v6 = Origin::start_on((Ipv6Addr::LOCALHOST, port).into(), echo);
    let pair = everything().start();
    let mut expected = 0.0;
    for host in ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "localhost", "0.0.0.0"] {
        assert_denied(&pair, &format!("{host}:{port}"));
        let counted = denied(&pair);
        assert!(counted >= expected + 2.0, "{host}: {counted} denied, {expected} before");
        expected = counted;
    }
    pair.server.expect_log("denied destinations", millrace_e2e::wait::DEFAULT_TIMEOUT, |line| {
        line.contains("127.0.0.1").then_some(())
    });
    assert_eq!((v4.accepted(), v6.accepted()), (0, 0), "connections were made all the same");
}

/// inet_aton spellings, which resolvers take for addresses: refused as destinations that are not
/// allowed, or as no destination at all, but never dialled.
#[test]
fn numeric_spellings_of_loopback_are_refused() {
    let origin = Origin::echo();
    let port = origin.address().port();
    let pair = everything().start();
    for host in ["0x7f.1", "127.1", "2130706433", "0177.0.0.1", "0x7f000001"] {
        match pair.http().open(&format!("{host}:{port}")) {
            Err(Refusal::Http { status: 400 | 403, .. }) => {}
            other => panic!("CONNECT {host}: {other:?}"),
        }
        match pair.listeners[2].open(&format!("{host}:{port}")) {
            Err(Refusal::Socks(1 | 2)) => {}
            other => panic!("SOCKS {host}: {other:?}"),
        }
    }
    assert_eq!(origin.accepted(), 0, "a connection was made all the same");
}

#[test]
fn link_local_and_metadata_addresses_are_refused() {
    let pair = everything().start();
    for destination in [
        "169.254.169.254:80",
        "169.254.1.1:80",
        "168.63.129.16:80",
        "[fd00:ec2::23]:80",
        "[fd20:ce::254]:80",
        "[fe80::1]:80",
        "[::ffff:169.254.169.254]:80",
        "[64:ff9b::a9fe:a9fe]:80",
        "224.0.0.1:80",
    ] {
        assert_denied(&pair, destination);
    }
    assert!(denied(&pair) >= 18.0);
}

#[test]
fn the_tunnels_own_address_is_refused() {
    // The address of this machine that a packet to a test network would leave from.
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let own = probe.connect("198.18.0.1:9").and_then(|()| probe.local_addr());
    let Ok(own) = own.map(|address| address.ip()) else {
        // Without any network there is loopback only, which is refused anyway; the namespace tests
        // have an address of their own.
        println!("this machine has no address beside loopback");
        return;
    };
    let origin = Origin::start_on((own, 0).into(), echo);
    // Whatever the address that it listens on: all addresses of its host are its own.
    for listen in ["0.0.0.0", "127.0.0.1"] {
        let port = tcp::unused_port();
        let pair = everything().server("tunnel.listen", format!("[\"{listen}:{port}\"]"));
        let pair = pair.tunnel_port(port).start();
        assert_denied(&pair, &format!("{own}:{}", pair.addresses.tunnel.port()));
        assert_denied(&pair, &origin.address().to_string());
    }
    assert_eq!(origin.accepted(), 0);
}

#[test]
fn what_is_listed_and_only_that_is_reached() {
    let (listed, other) = (Origin::echo(), Origin::echo());
    let pair =
        Pair::builder().allow_only(&[]).allow("127.0.0.1", &listed.address().port().to_string());
    let pair = pair.start();
    for destination in
        [listed.address().to_string(), format!("localhost:{}", listed.address().port())]
    {
        for listener in &pair.listeners[1..3] {
            let flow = listener.open(&destination);
            flow.unwrap_or_else(|error| panic!("{destination} by {listener:?}: {error:?}"));
        }
    }
    assert_denied(&pair, &other.address().to_string());
    assert_eq!(other.accepted(), 0);
}

#[test]
fn without_a_list_nothing_is_reached() {
    let origin = Origin::echo();
    let pair = Pair::builder().allow_only(&[]).static_destination(origin.address()).start();
    assert_denied(&pair, &origin.address().to_string());
    let TestListener::Static(_) = pair.listeners[0] else { panic!("the first listener is static") };
    assert_eq!(pair.listeners[0].drain("").unwrap(), (vec![], End::Reset));
    assert_eq!(origin.accepted(), 0);
}
