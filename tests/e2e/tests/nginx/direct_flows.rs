//! Flows that nginx passes directly keep the viewer's address, so that RTP over UDP of RTSP players arrives.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use millrace_e2e::data;
use millrace_e2e::origin::{listen, source};
use millrace_e2e::rtsp::{Player, RtspOrigin, Sockets, assert_media};
use millrace_e2e::tcp::{self, End};
use millrace_lab::process::output_of;
use millrace_lab::topology::{CLIENT_EDGE, ORIGIN, ORIGIN_6, PLAYER};
use socket2::Socket;

use crate::edges::{Edges, everything, list_ipv6};

const PLAYER_6: &str = "2001:2:0:1::2";
const BYTES: u64 = 2_000_000;

/// A player at `viewer` that asks an origin at `to` for RTP over UDP gets it from there; the client edge's log line.
fn assert_media_arrive(edges: &Edges, viewer: &str, to: &str, seed: u64) -> serde_json::Value {
    let (viewer, to): (IpAddr, SocketAddr) = (viewer.parse().unwrap(), to.parse().unwrap());
    let serve = || Ok(RtspOrigin::serve(listen(to, 128), Sockets::at(to.ip())));
    let origin = edges.topology.origin.inside(serve).unwrap();
    let stream = edges.connect(&to.to_string()).unwrap();
    let media = edges.topology.player.inside(|| Ok(Sockets::at(viewer))).unwrap();
    let mut player = Player::over(stream, media);
    origin.asked();
    let answer = player.set_up("live");
    let (found, to_player) = (answer.ends(), origin.asked().ends.unwrap());
    assert_eq!(found.rtp.ip(), to.ip(), "{}", answer.head);
    assert_eq!(to_player.rtp.ip(), viewer, "the origin sends media to the viewer");
    assert_media(&player, &origin, (found, to_player), seed);
    player.tear_down();
    edges.logged(player.into_stream())
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn rtsp_players_get_rtp_over_udp_on_direct_flows() {
    let mut edges = Edges::start(&everything(), list_ipv6);
    // By the list of ports, while the client runs.
    let logged = assert_media_arrive(&edges, PLAYER, &format!("{ORIGIN}:9999"), 1);
    assert_eq!((&logged["way"], &logged["taken"]), (&"direct".into(), &"direct".into()));
    // Because it does not run.
    edges.client.kill();
    for (seed, port) in [(2, 554), (3, 8554)] {
        let logged = assert_media_arrive(&edges, PLAYER, &format!("{ORIGIN}:{port}"), seed);
        assert_eq!((&logged["way"], &logged["taken"]), (&"tunnel".into(), &"direct".into()));
    }
    let logged = assert_media_arrive(&edges, PLAYER_6, &format!("[{ORIGIN_6}]:554"), 4);
    assert_eq!((&logged["way"], &logged["taken"]), (&"tunnel".into(), &"direct".into()));
}

/// A source of bytes that reports the address of each peer.
fn peer_and_source(
    tell: std::sync::mpsc::Sender<IpAddr>,
) -> impl Fn(Socket) + Send + Sync + 'static {
    let serve = source(7, BYTES);
    move |stream| {
        let peer = stream.peer_addr().unwrap().as_socket().unwrap();
        tell.send(peer.ip()).unwrap();
        serve(stream);
    }
}

/// The answers come to the translated address, and are nginx's all the same.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn direct_flows_pass_where_the_gateway_translates_addresses() {
    let mut edges = Edges::start(&everything(), |_| {});
    let (tell, peers) = std::sync::mpsc::channel();
    let _origin = edges.origin("198.18.3.2:80", peer_and_source(tell));
    let pattern = data::send(std::io::sink(), 7, BYTES).unwrap();
    edges.client.kill();
    for seen in [PLAYER, CLIENT_EDGE] {
        if seen == CLIENT_EDGE {
            for rule in [
                "add table ip nat",
                "add chain ip nat out { type nat hook postrouting priority srcnat; }",
                "add rule ip nat out oifname wan masquerade",
            ] {
                output_of(edges.topology.client_edge.command("nft").arg(rule)).unwrap();
            }
        }
        let mut flow = edges.connect("198.18.3.2:80").unwrap();
        flow.write_all(b"x").unwrap();
        assert_eq!(data::receive(&flow).unwrap(), pattern, "{seen}");
        assert_eq!(peers.recv().unwrap().to_string(), seen);
        assert_eq!(edges.logged(flow)["taken"], "direct");
    }
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn flows_for_the_tunnel_only_are_closed_while_it_is_down() {
    let mut edges = Edges::start(&everything(), |site| {
        let (shipped, edited) = ("554        tunnel;", "554        tunnel_only;");
        site.edit("client-edge/chosen.conf", shipped, edited);
    });
    let origin = edges.origin("198.18.3.2:554", source(8, BYTES));
    let pattern = data::send(std::io::sink(), 8, BYTES).unwrap();
    let ask = |edges: &Edges| {
        let mut flow = edges.connect("198.18.3.2:554").unwrap();
        flow.write_all(b"x").ok();
        flow
    };
    let flow = ask(&edges);
    assert_eq!(data::receive(&flow).unwrap(), pattern);
    assert_eq!(edges.logged(flow)["taken"], "tunnel");
    edges.client.kill();
    let flow = ask(&edges);
    let (bytes, end) = tcp::drain(&flow);
    assert!(bytes.is_empty() && end != End::Never, "{bytes:?} {end:?}");
    assert_eq!(edges.logged(flow)["status"], 502);
    assert_eq!(origin.accepted(), 1);
    edges.restart_client();
    assert_eq!(data::receive(&ask(&edges)).unwrap(), pattern);
}
