//! RTP over UDP where the client is not to be noticed, through a listener for all ports.

use std::io::{Read, Write};
use std::net::IpAddr;

use millrace_e2e::origin::{Origin, echo, listen};
use millrace_e2e::rtsp::{Player, RtspOrigin, Sockets, assert_media};
use millrace_e2e::wait;
use millrace_lab::topology::{CLIENT_EDGE_INSIDE, ORIGIN, PLAYER, Topology};

use crate::interception::tproxy_rules;
use crate::world::{Options, World, load_rules};

const TPROXY: Options<'_> = Options {
    listen: "[[listen]]\nmode = \"tproxy\"\naddress = \"127.0.0.1:15001\"\nclass = \"dash\"\n",
    allow: &["198.18.3.0/24"],
    server: "",
};

const REDIRECT: Options<'_> = Options {
    listen: "[[listen]]\nmode = \"redirect\"\naddress = \"0.0.0.0:15002\"\n",
    allow: &["198.18.3.0/24"],
    server: "",
};

/// A player's media come from `source`, and go there.
fn media_of(options: &Options<'_>, source: IpAddr, prepare: impl FnOnce(&Topology)) {
    let world = World::start(options, prepare);
    let (at, player): (_, IpAddr) = (ORIGIN.parse().unwrap(), PLAYER.parse().unwrap());
    let origin = world
        .topology
        .origin
        .inside(|| Ok(RtspOrigin::serve(listen((at, 554).into(), 128), Sockets::at(at))));
    let origin = origin.unwrap();
    let stream = World::connect(&world.topology.player, &format!("{ORIGIN}:554")).unwrap();
    let media = world.topology.player.inside(|| Ok(Sockets::at(player))).unwrap();
    let mut player = Player::over(stream, media);
    origin.asked();
    let answer = player.set_up("live");
    let to_player = origin.asked().ends.unwrap();
    let found = answer.ends();
    assert_eq!(found.rtp.ip(), source, "{}", answer.head);
    assert_media(&player, &origin, (found, to_player), 1);
    // As cameras send a NAL unit: in IP fragments, because no link takes it whole.
    let large = [7; 7000];
    origin.media.rtp.send_to(&large, to_player.rtp).unwrap();
    let mut buffer = [0; 9000];
    player.media.rtp.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
    let length = player.media.rtp.recv(&mut buffer).unwrap();
    assert!(buffer[..length] == large, "{length} bytes");
    player.tear_down();
    player.hang_up();
    wait::for_true("the ports are given back", wait::DEFAULT_TIMEOUT, || {
        let free = world.topology.server_edge.inside(|| Ok(to_player.are_free()));
        free.unwrap()
    });
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn an_intercepted_player_gets_its_media_from_the_origins_address() {
    media_of(&TPROXY, ORIGIN.parse().unwrap(), |topology| {
        tproxy_rules(topology, "millrace_tproxy client_interfaces { \"lan\" }");
    });
}

/// One listener for all ports: each flow has its class, and RTSP is found on a port of HTTP too.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn one_listener_serves_http_and_rtsp_on_every_port() {
    let world = World::start(&TPROXY, |topology| {
        tproxy_rules(topology, "millrace_tproxy client_interfaces { \"lan\" }");
    });
    let (at, player): (IpAddr, IpAddr) = (ORIGIN.parse().unwrap(), PLAYER.parse().unwrap());
    for port in [80, 443, 554, 8554] {
        let listener = |port| {
            let opened = world.topology.origin.inside(|| Ok(listen((at, port).into(), 128)));
            opened.unwrap()
        };
        let media = world.topology.origin.inside(|| Ok(Sockets::at(at))).unwrap();
        let origin = RtspOrigin::serve(listener(port), media);
        let stream = World::connect(&world.topology.player, &format!("{ORIGIN}:{port}")).unwrap();
        let media = world.topology.player.inside(|| Ok(Sockets::at(player))).unwrap();
        let mut player = Player::over(stream, media);
        origin.asked();
        let answer = player.set_up("live");
        let ends = (answer.ends(), origin.asked().ends.unwrap());
        assert_media(&player, &origin, ends, u64::from(port));
        assert_eq!(class_of_tcp_flow(&world), "rtsp", "port {port}");
        player.tear_down();
        player.hang_up();
        wait::for_true("the flow is over", wait::DEFAULT_TIMEOUT, || flows(&world).is_empty());
        drop(origin);

        let origin = Origin::serve(listener(port), echo);
        for (bytes, class) in [("GET /a.mpd HTTP/1.1\r\n\r\n", "dash"), ("\x16\x03\x01", "dash")] {
            let to = format!("{ORIGIN}:{port}");
            let mut flow = World::connect(&world.topology.player, &to).unwrap();
            flow.write_all(bytes.as_bytes()).unwrap();
            flow.read_exact(&mut vec![0; bytes.len()]).unwrap();
            assert_eq!(class_of_tcp_flow(&world), class, "port {port}");
            drop(flow);
            wait::for_true("the flow is over", wait::DEFAULT_TIMEOUT, || flows(&world).is_empty());
        }
        drop(origin);
    }
}

fn flows(world: &World) -> Vec<serde_json::Value> {
    world.server_flows()["flows"].as_array().unwrap().clone()
}

fn class_of_tcp_flow(world: &World) -> String {
    let flows = flows(world);
    let flow = flows.iter().find(|flow| flow["protocol"] == "tcp").unwrap();
    flow["class"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_redirected_player_is_told_the_clients_own_address() {
    media_of(&REDIRECT, CLIENT_EDGE_INSIDE.parse().unwrap(), |topology| {
        let added = ["millrace_redirect client_interfaces { \"lan\" }"];
        load_rules(&topology.client_edge, "redirect.nft", &added);
    });
}
