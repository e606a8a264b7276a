//! Settings that change how flows are carried: connections of their own, IPv6, limits.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, ToSocketAddrs};
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::{Origin, echo};
use millrace_e2e::pair::Pair;
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;
use socket2::Socket;

fn echoes(flow: &mut Socket) {
    flow.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    flow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
}

/// The connections that carry the flows of a program.
fn connections(admin: std::net::SocketAddr) -> Vec<String> {
    let flows = admin::flows(admin);
    let flows = flows["flows"].as_array().unwrap();
    flows.iter().map(|flow| flow["connection"].to_string()).collect()
}

#[test]
fn per_flow_gives_each_flow_a_connection_and_shared_does_not() {
    const FLOWS: usize = 8;
    for (kind, distinct) in [("per_flow", FLOWS..=FLOWS), ("shared", 1..=2)] {
        let origin = Origin::echo();
        let pair = Pair::builder()
            .client("tunnel.connections", format!("\"{kind}\""))
            .both("runtime.workers", 2)
            .start();
        let to = origin.address().to_string();
        let mut flows: Vec<_> = (0..FLOWS).map(|_| pair.http().open(&to).unwrap()).collect();
        flows.iter_mut().for_each(echoes);
        for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
            let carried = connections(admin);
            assert_eq!(carried.len(), FLOWS, "{kind}");
            let count = carried.iter().collect::<HashSet<_>>().len();
            assert!(distinct.contains(&count), "{FLOWS} flows on {count} connections with {kind}");
        }
        drop(flows);
        wait::for_true("connections of ended flows are closed", wait::DEFAULT_TIMEOUT, || {
            let metrics = Metrics::fetch(pair.addresses.server_admin);
            // What is kept warm: for each worker one per class, or one.
            metrics.sum("millrace_connections", &[("state", "established")]) <= 8.0
        });
        echoes(&mut pair.http().open(&to).unwrap());
    }
}

/// Also with a connection for each flow a new one costs one round trip: a warm connection is there.
#[test]
fn a_warm_connection_saves_the_handshake() {
    let one_way = Duration::from_millis(100);
    let origin = Origin::echo();
    let pair = Pair::builder()
        .client("tunnel.connections", "\"per_flow\"")
        .client("tunnel.idle_connections_per_server", 1)
        .relay(RelayOptions { one_way, ..Default::default() })
        .alone()
        .start();
    let fastest = (0..4).map(|_| {
        std::thread::sleep(Duration::from_millis(700));
        let started = Instant::now();
        let flow = pair.http().open(&origin.address().to_string()).unwrap();
        (started.elapsed(), flow)
    });
    let (fastest, _) = fastest.min_by_key(|(took, _)| *took).unwrap();
    assert!(fastest >= 2 * one_way && fastest < 3 * one_way, "{fastest:?}");
}

/// A handshake takes longer there than a server usually needs to answer: that is no reason to give it up,
/// least of all one whose early data has a flow's request.
#[test]
fn many_flows_at_once_with_a_connection_each_come_through_over_a_long_path() {
    const FLOWS: usize = 24;
    let one_way = Duration::from_millis(300);
    let origin = Origin::echo();
    let pair = Pair::builder()
        .client("tunnel.connections", "\"per_flow\"")
        .both("runtime.workers", 1)
        .relay(RelayOptions { one_way, ..Default::default() })
        .start();
    let to = origin.address().to_string();
    std::thread::scope(|scope| {
        for _ in 0..FLOWS {
            scope.spawn(|| echoes(&mut pair.http().open(&to).unwrap()));
        }
    });
    let log = pair.client.log_text();
    assert!(!log.contains("connecting took too long"), "{log}");
}

#[test]
fn origins_on_ipv6_are_reached() {
    let origin = Origin::start_on((Ipv6Addr::LOCALHOST, 0).into(), echo);
    let pair = Pair::builder().static_destination(origin.address()).start();
    for listener in &pair.listeners {
        echoes(&mut listener.open(&origin.address().to_string()).unwrap());
    }
    // A name with addresses of both families, one of them without a listener. Not every machine has both.
    let name = format!("localhost:{}", origin.address().port());
    if name.to_socket_addrs().unwrap().any(|address| address.is_ipv6()) {
        for listener in &pair.listeners[1..3] {
            echoes(&mut listener.open(&name).unwrap());
        }
    }
}

#[test]
fn the_tunnel_runs_over_ipv6() {
    let origin = Origin::echo();
    let port = tcp::unused_port();
    let pair = Pair::builder()
        .server("tunnel.listen", format!("[\"[::1]:{port}\"]"))
        .client("tunnel.servers", format!("[\"[::1]:{port}\"]"))
        .tunnel_port(port)
        .start();
    echoes(&mut pair.http().open(&origin.address().to_string()).unwrap());
}

/// The first server that answers is used, and a name is as good as an address.
#[test]
fn a_dead_server_is_passed_over() {
    let origin = Origin::echo();
    let port = tcp::unused_port();
    let dead = tcp::unused_port();
    let servers = format!("[\"127.0.0.1:{dead}\", \"localhost:{port}\"]");
    let pair = Pair::builder()
        .client("tunnel.servers", servers)
        .client("tunnel.connect_timeout_s", 1)
        .client("tunnel.reconnect_max_s", 1)
        .tunnel_port(port)
        .start();
    let opened =
        wait::until(wait::DEFAULT_TIMEOUT, || pair.http().open(&origin.address().to_string()).ok());
    echoes(&mut opened.unwrap());
}

#[test]
fn flows_beyond_the_limit_are_refused_and_places_come_back() {
    for side in ["client", "server"] {
        let origin = Origin::echo();
        let builder = Pair::builder();
        let pair = match side {
            "client" => builder.client("limits.max_flows", 3),
            _ => builder.server("limits.max_flows", 3).server("limits.max_flows_per_connection", 3),
        };
        let pair = pair.start();
        let to = origin.address().to_string();
        let mut flows: Vec<_> = (0..3).map(|_| pair.http().open(&to).unwrap()).collect();
        for listener in &pair.listeners[1..4] {
            match (listener, listener.open(&to)) {
                (TestListener::Http(_), Err(Refusal::Http { status: 503, .. })) => {}
                (TestListener::Socks(_), Err(Refusal::Socks(1))) => {}
                (_, Ok(flow)) => {
                    assert_eq!(tcp::drain(&flow), (vec![], End::Reset), "{listener:?}")
                }
                // Closed before anything is read of it.
                (_, Err(Refusal::Io(error))) => {
                    assert_eq!(End::of(Some(&error)), End::Reset, "{side} {listener:?}");
                }
                (_, other) => panic!("limit of the {side}, {listener:?}: {other:?}"),
            }
        }
        // A flow that echoes has been accepted; before, the origin may not have come round to it.
        flows.iter_mut().for_each(echoes);
        assert_eq!(origin.accepted(), 3, "limit of the {side}");
        flows.clear();
        let again = wait::until(wait::DEFAULT_TIMEOUT, || pair.http().open(&to).ok());
        echoes(&mut again.expect("a place comes back"));
    }
}
