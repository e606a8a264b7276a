//! RTP over UDP where the client is not to be noticed.

use std::net::IpAddr;

use millrace_e2e::origin::listen;
use millrace_e2e::rtsp::{Player, RtspOrigin, Sockets, assert_media};
use millrace_e2e::wait;
use millrace_lab::topology::{CLIENT_EDGE_INSIDE, ORIGIN, PLAYER, Topology};

use crate::interception::tproxy_rules;
use crate::world::{Options, World, load_rules};

const TPROXY: Options<'_> = Options {
    listen: "[[listen]]\nmode = \"tproxy\"\naddress = \"127.0.0.1:15001\"\nclass = \"rtsp\"\n",
    allow: &["198.18.3.0/24"],
    server: "",
};

const REDIRECT: Options<'_> = Options {
    listen: "[[listen]]\nmode = \"redirect\"\naddress = \"0.0.0.0:15002\"\nclass = \"rtsp\"\n",
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

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_redirected_player_is_told_the_clients_own_address() {
    media_of(&REDIRECT, CLIENT_EDGE_INSIDE.parse().unwrap(), |topology| {
        let added = ["millrace_redirect client_interfaces { \"lan\" }"];
        load_rules(&topology.client_edge, "redirect.nft", &added);
    });
}
