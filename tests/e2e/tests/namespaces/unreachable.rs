//! Destinations without a way to them, and addresses of the server itself.

use std::time::{Duration, Instant};

use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::echo;
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_lab::netns::Namespace;
use millrace_lab::topology::{ORIGIN, SERVER_EDGE, SERVER_EDGE_INSIDE};

use crate::world::{Options, World, listen_section};

/// What CONNECT and SOCKS5 say about a destination.
fn said(from: &Namespace, destination: &str) -> (u16, String, u8) {
    let http = TestListener::Http("198.18.2.1:3128".parse().unwrap());
    let socks = TestListener::Socks("198.18.2.1:1080".parse().unwrap());
    from.inside(|| {
        let (status, head) = match http.open(destination) {
            Err(Refusal::Http { status, head }) => (status, head),
            other => panic!("CONNECT {destination}: {other:?}"),
        };
        match socks.open(destination) {
            Err(Refusal::Socks(code)) => Ok((status, head, code)),
            other => panic!("SOCKS {destination}: {other:?}"),
        }
    })
    .unwrap()
}

fn start(allow: &[&str], prepare: impl FnOnce(&millrace_lab::topology::Topology)) -> World {
    let listen =
        format!("{}{}", listen_section("http_connect", 3128), listen_section("socks5", 1080));
    let server = "[dial]\ntimeout_s = 2\nper_address_timeout_s = 2\n";
    World::start(&Options { listen: &listen, allow, server }, prepare)
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn unreachable_destinations_are_reported_as_such() {
    let world = start(&["198.18.0.0/15"], |topology| {
        let edge = &topology.server_edge;
        edge.ip("route add unreachable 198.18.100.0/24").unwrap();
        // Then nothing at all leads to 198.19.0.0/16.
        edge.ip("route del 198.18.0.0/15").unwrap();
        // SYNs to one port of the origin vanish.
        let table = "add table inet t; add chain inet t in { type filter hook input priority 0; }; \
                     add rule inet t in tcp dport 81 drop";
        let mut nft = topology.origin.command("nft");
        millrace_lab::process::output_of(nft.arg(table)).unwrap();
    });
    let from = &world.topology.player;
    let (status, head, code) = said(from, "198.18.100.1:80");
    assert!(
        (status, code) == (502, 4) && head.contains("destination_ip_unroutable"),
        "{code} {head}"
    );
    let (status, head, code) = said(from, "198.19.0.1:80");
    assert!(
        (status, code) == (502, 3) && head.contains("destination_ip_unroutable"),
        "{code} {head}"
    );
    let started = Instant::now();
    let (status, head, code) = said(from, &format!("{ORIGIN}:81"));
    assert!((status, code) == (504, 6) && head.contains("connection_timeout"), "{code} {head}");
    // Two attempts of two seconds each.
    assert!(started.elapsed() >= Duration::from_millis(3900), "{:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    // A host that is not there: the kernel finds out by address resolution, or it takes too long.
    let (status, _, _) = said(from, "198.18.3.77:80");
    assert!(status == 502 || status == 504, "{status}");
}

/// The whole test network is allowed, but not the server's own address in it.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn the_servers_own_address_is_refused_unless_listed() {
    let world = start(&["198.18.0.0/15"], |_| {});
    let from = &world.topology.player;
    let inside = world.topology.server_edge.inside(|| {
        let address = format!("{SERVER_EDGE}:8080").parse()?;
        Ok(millrace_e2e::origin::listen(address, 16))
    });
    let own = millrace_e2e::origin::Origin::serve(inside.unwrap(), echo);
    for destination in [format!("{SERVER_EDGE}:4433"), format!("{SERVER_EDGE}:8080")] {
        let (status, head, code) = said(from, &destination);
        assert!((status, code) == (403, 2) && head.contains("http_request_denied"), "{head}");
    }
    assert_eq!(own.accepted(), 0);
    // Its other side is its own too, and so is what it gets later.
    let (status, _, code) = said(from, &format!("{SERVER_EDGE_INSIDE}:4433"));
    assert_eq!((status, code), (403, 2));
    world.topology.server_edge.ip("address add 198.18.200.1/32 dev lo").unwrap();
    millrace_e2e::wait::for_true("the added address is refused", DEFAULT_TIMEOUT, || {
        let http = TestListener::Http("198.18.2.1:3128".parse().unwrap());
        let refused = |opened| matches!(opened, Err(Refusal::Http { status: 403, .. }));
        from.inside(|| Ok(refused(http.open("198.18.200.1:4433")))).unwrap()
    });
    drop(world);

    let listed = format!("{SERVER_EDGE}/32");
    let world = start(&[listed.as_str()], |_| {});
    let (status, _, code) = said(&world.topology.player, &format!("{SERVER_EDGE}:4433"));
    assert_eq!(
        (status, code),
        (502, 5),
        "listed, so that it is dialled; no process listens on TCP"
    );
}
