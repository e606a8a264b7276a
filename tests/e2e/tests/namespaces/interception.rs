//! TPROXY on a gateway, REDIRECT on a gateway and on a host: with the shipped rules.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};

use millrace_e2e::origin::{answer_with_hash, echo, source};
use millrace_e2e::tcp::{self, End};
use millrace_e2e::{data, wait};
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use millrace_lab::topology::{CLIENT_EDGE_INSIDE, ORIGIN, Topology};

use crate::world::{Options, World, load_rules};

/// What `connect` says about a reset, before the connection is made and right after.
const REFUSED: [ErrorKind; 2] = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];

const CLIENT_ADMIN: &str = "127.0.0.1:9464";

pub const TPROXY: Options<'_> = Options {
    listen: "[[listen]]\nmode = \"tproxy\"\naddress = \"127.0.0.1:15001\"\nclass = \"dash\"\n",
    allow: &["198.18.3.0/24"],
    server: "",
};

const REDIRECT: Options<'_> = Options {
    listen: "[[listen]]\nmode = \"redirect\"\naddress = \"0.0.0.0:15002\"\n",
    allow: &["198.18.3.0/24"],
    server: "",
};

pub fn tproxy_rules(topology: &Topology, addition: &str) {
    let edge = &topology.client_edge;
    edge.ip("rule add fwmark 0x4d54 lookup 4454").unwrap();
    edge.ip("route add local default dev lo table 4454").unwrap();
    load_rules(edge, "tproxy.nft", &[addition]);
}

/// Flows from `from` are carried by the tunnel and have TCP's semantics.
fn flows_are_carried(world: &World, from: &Namespace) {
    let opened = || World::flows_opened(&world.topology.client_edge, CLIENT_ADMIN);
    let to = |port: u16| format!("{ORIGIN}:{port}");

    let origin = world.origin(80, answer_with_hash);
    let before = opened();
    let flow = World::connect(from, &to(80)).unwrap();
    assert_eq!(flow.peer_addr().unwrap().as_socket().unwrap().to_string(), to(80));
    let sent = data::send(&flow, 1, 5_000_000).unwrap();
    flow.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (sent.to_string().into_bytes(), End::Eof));
    assert_eq!(origin.accepted(), 1);
    assert_eq!(opened() - before, 1.0, "the flow bypassed the tunnel, or went through it twice");
    drop(origin);

    let origin = world.origin(443, source(2, 5_000_000));
    let flow = World::connect(from, &to(443)).unwrap();
    assert_eq!(data::receive(&flow).unwrap(), data::send(std::io::sink(), 2, 5_000_000).unwrap());
    drop(origin);

    // No process listens on 554: a reset, at connecting or right after it.
    match World::connect(from, &to(554)) {
        Ok(flow) => assert_eq!(tcp::drain(&flow), (vec![], End::Reset)),
        Err(error) => assert!(REFUSED.contains(&error.kind()), "{error}"),
    }

    // A reset in the middle, from the origin.
    let origin = world.origin(8554, |mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        tcp::reset(stream);
    });
    let mut flow = World::connect(from, &to(8554)).unwrap();
    flow.write_all(b"x").unwrap();
    assert_eq!(tcp::drain(&flow), (vec![], End::Reset));
    drop(origin);

    // Ports that are not listed go straight on.
    let origin = world.origin(9999, echo);
    let before = opened();
    let mut flow = World::connect(from, &to(9999)).unwrap();
    flow.write_all(b"x").unwrap();
    flow.read_exact(&mut [0]).unwrap();
    assert_eq!(opened(), before, "a port that is not listed was intercepted");
    drop(origin);
}

/// Of the flows from `from` only those to `destinations` are carried, where that is said.
fn only_some_destinations(world: &World, from: &Namespace, table: &str) {
    let edge = &world.topology.client_edge;
    let rule = |rule: &str| output_of(edge.command("nft").arg(rule)).unwrap();
    let origin = world.origin(80, echo);
    let carried = || {
        let before = World::flows_opened(edge, CLIENT_ADMIN);
        let mut flow = World::connect(from, &format!("{ORIGIN}:80")).unwrap();
        flow.write_all(b"x").unwrap();
        flow.read_exact(&mut [0]).unwrap();
        World::flows_opened(edge, CLIENT_ADMIN) - before
    };
    rule(&format!("flush set inet {table} destinations"));
    rule(&format!("add element inet {table} destinations {{ 198.18.99.0/24 }}"));
    assert_eq!(carried(), 0.0, "another destination was intercepted");
    rule(&format!("add element inet {table} destinations {{ {ORIGIN} }}"));
    assert_eq!(carried(), 1.0, "the destination was not intercepted");
    drop(origin);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn tproxy_on_a_gateway() {
    let world = World::start(&TPROXY, |topology| {
        tproxy_rules(topology, "millrace_tproxy client_interfaces { \"lan\" }");
    });
    flows_are_carried(&world, &world.topology.player);
    only_some_destinations(&world, &world.topology.player, "millrace_tproxy");
}

/// Flows that began without a listener went straight to the origin, and continue to after the client's return:
/// its listener would reset them without telling the origin.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn what_passed_while_the_client_was_away_goes_on_after_its_return() {
    let mut world = World::start(&TPROXY, |topology| {
        tproxy_rules(topology, "millrace_tproxy client_interfaces { \"lan\" }");
    });
    let origin = world.origin(80, echo);
    world.client.kill();
    let mut passed = World::connect(&world.topology.player, &format!("{ORIGIN}:80")).unwrap();
    let port = passed.local_addr().unwrap().as_socket().unwrap().port();
    let turn = |flow: &mut socket2::Socket| {
        flow.write_all(b"x").unwrap();
        flow.read_exact(&mut [0]).unwrap();
    };
    turn(&mut passed);
    world.restart(&TPROXY);
    let opened = |world: &World| World::flows_opened(&world.topology.client_edge, CLIENT_ADMIN);
    turn(&mut passed);
    assert_eq!(opened(&world), 0.0, "the flow was intercepted");
    tcp::reset(passed);

    // New ones are intercepted again, from the same port too.
    let again = world.topology.player.inside(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        tcp::prepare(&socket)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
        socket.connect(&format!("{ORIGIN}:80").parse::<SocketAddr>()?.into())?;
        Ok(socket)
    });
    turn(&mut again.unwrap());
    turn(&mut World::connect(&world.topology.player, &format!("{ORIGIN}:80")).unwrap());
    assert_eq!((opened(&world), origin.accepted()), (2.0, 3));
}

/// A client that connects to the listener itself is turned away; nothing dials itself.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn the_transparent_listener_itself_is_no_destination() {
    let mut world = World::start(&REDIRECT, |_| {});
    let edge = &world.topology.client_edge;
    for from in [edge, &world.topology.player] {
        match World::connect(from, &format!("{CLIENT_EDGE_INSIDE}:15002")) {
            Ok(flow) => assert_eq!(tcp::drain(&flow), (vec![], End::Reset)),
            Err(error) => assert!(REFUSED.contains(&error.kind()), "{error}"),
        }
    }
    wait::for_true("no flow is left", wait::DEFAULT_TIMEOUT, || {
        let metrics =
            edge.inside(|| Ok(millrace_e2e::admin::Metrics::fetch(CLIENT_ADMIN.parse()?)));
        metrics.unwrap().sum("millrace_flows_active", &[]) == 0.0
    });
    assert!(world.client.is_running());
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn redirect_on_a_gateway() {
    let world = World::start(&REDIRECT, |topology| {
        let added = ["millrace_redirect client_interfaces { \"lan\" }"];
        load_rules(&topology.client_edge, "redirect.nft", &added);
    });
    flows_are_carried(&world, &world.topology.player);
    only_some_destinations(&world, &world.topology.player, "millrace_redirect");
}

/// Flows of the edge's own processes, root's included: the tunnel's own packets must not come back.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn redirect_on_a_host() {
    let world = World::start(&REDIRECT, |topology| {
        let added = ["millrace_redirect client_uids { 0-4294967294 }"];
        load_rules(&topology.client_edge, "redirect.nft", &added);
    });
    flows_are_carried(&world, &world.topology.client_edge);
    only_some_destinations(&world, &world.topology.client_edge, "millrace_redirect");
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn tproxy_on_a_host() {
    let world = World::start(&TPROXY, |topology| {
        tproxy_rules(topology, "millrace_tproxy client_uids { 0-4294967294 }");
    });
    flows_are_carried(&world, &world.topology.client_edge);
    only_some_destinations(&world, &world.topology.client_edge, "millrace_tproxy");
}
