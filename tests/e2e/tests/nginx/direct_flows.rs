//! Flows that nginx passes directly keep the viewer's address, so that RTP over UDP of RTSP players arrives.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use millrace_e2e::data;
use millrace_e2e::origin::{listen, source};
use millrace_e2e::rtsp::{Player, RtspOrigin, Sockets, assert_media};
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;
use millrace_lab::topology::{CLIENT_EDGE, ORIGIN, ORIGIN_6, PLAYER};
use socket2::Socket;

use crate::edges::{Edges, everything, list_ipv6};
use crate::site::Site;

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
            edges.masquerade();
        }
        let mut flow = edges.connect("198.18.3.2:80").unwrap();
        flow.write_all(b"x").unwrap();
        assert_eq!(data::receive(&flow).unwrap(), pattern, "{seen}");
        assert_eq!(peers.recv_timeout(wait::DEFAULT_TIMEOUT).unwrap().to_string(), seen);
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

fn is_warning(line: &str) -> bool {
    line.contains("warning: while the tunnel is down")
}

/// Starts nginx again, whose launcher writes nothing about RTP over UDP.
fn restart_nginx_without_warning(edges: &mut Edges) {
    edges.kill_nginx();
    edges.restart_nginx();
    let log = edges.nginx[0].log_text();
    assert!(!log.lines().any(is_warning), "{log}");
}

/// The finding of `doctor` about RTP over UDP on direct flows.
fn doctor_finding(edges: &Edges) -> (String, String) {
    let report = edges.doctor();
    let mut findings = report["findings"].as_array().unwrap().iter();
    let is_it = |it: &&serde_json::Value| it["check"] == "RTP over UDP without the tunnel";
    let finding = findings.find(is_it).unwrap_or_else(|| panic!("no such row: {report:#}"));
    let text = |key: &str| finding[key].as_str().unwrap().to_owned();
    (text("verdict"), text("found"))
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_gateway_that_translates_addresses_is_reported() {
    let mut edges = Edges::start(&everything(), |_| {});
    restart_nginx_without_warning(&mut edges);
    assert_eq!(doctor_finding(&edges).0, "ok");
    edges.masquerade();
    edges.kill_nginx();
    edges.restart_nginx();
    let warning = edges.nginx[0].expect_log("a warning", wait::DEFAULT_TIMEOUT, |line| {
        is_warning(line).then(|| line.to_owned())
    });
    assert!(warning.contains("ip nat out") && warning.contains("554 and 8554"), "{warning}");
    let (verdict, found) = doctor_finding(&edges);
    assert_eq!(verdict, "warning");
    assert!(found.contains("ip nat out"), "{found}");
    tunnel_only(&edges.site);
    restart_nginx_without_warning(&mut edges);
}

/// RTSP ports as the documentation has them for a gateway that translates addresses.
fn tunnel_only(site: &Site) {
    for shipped in ["554        tunnel;", "8554       tunnel;"] {
        site.edit("client-edge/chosen.conf", shipped, &shipped.replace("tunnel", "tunnel_only"));
    }
}

/// The settings of docs/operate/nginx.md for a gateway that translates addresses.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn players_behind_a_gateway_that_translates_addresses_change_to_the_rtsp_connection() {
    let mut edges = Edges::start(&everything(), tunnel_only);
    edges.masquerade();
    edges.client.kill();
    edges.restart_client_with(
        "fail_mode = \"open\"\n[[direct.allow]]\nnetwork = \"198.18.3.0/24\"\nports = [554]\n",
    );
    let to: SocketAddr = format!("{ORIGIN}:554").parse().unwrap();
    let serve = || Ok(RtspOrigin::serve(listen(to, 128), Sockets::at(to.ip())));
    let origin = edges.topology.origin.inside(serve).unwrap();
    edges.server.kill();
    let admin = "127.0.0.1:9464".parse().unwrap();
    wait::for_true("the client has no server", wait::DEFAULT_TIMEOUT, || {
        let health = || Ok(millrace_e2e::admin::get(admin, "/healthz"));
        matches!(edges.topology.client_edge.inside(health).unwrap(), Ok((503, _)))
    });
    let stream = edges.connect(&to.to_string()).unwrap();
    let media = edges.topology.player.inside(|| Ok(Sockets::at(PLAYER.parse().unwrap()))).unwrap();
    let mut player = Player::over(stream, media);
    assert_eq!(player.set_up("live").status, 461);
    let interleaved = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";
    assert_eq!(player.ask("SETUP", "live", interleaved).status, 200);
    assert_eq!(edges.logged(player.into_stream())["taken"], "tunnel");
    drop(origin);
    // Without the client: an error, too.
    edges.client.kill();
    let mut flow = edges.connect(&to.to_string()).unwrap();
    flow.write_all(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n").ok();
    let (bytes, end) = tcp::drain(&flow);
    assert!(bytes.is_empty() && end != End::Never, "{bytes:?} {end:?}");
}
