//! Origins behind a server edge: balanced, limited, and informed about viewers.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;

use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use millrace_e2e::{data, listeners};
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use millrace_lab::topology::{PLAYER, SERVER_EDGE_INSIDE};
use nix::sys::signal::Signal;
use socket2::Socket;

use crate::edges::{Edges, OTHER_VIEWER, allow, own};
use crate::http;
use crate::origin_files::OriginHost;
use crate::site::Site;

/// The public address of the service, which viewers ask for.
const SERVICE: &str = "198.18.3.1:80";

/// Both edges. The server hands the service's flows to its edge's nginx.
fn start(configure: impl FnOnce(&Site)) -> Edges {
    let hand = allow(&format!("{SERVER_EDGE_INSIDE}/32"), "forward_to = \"127.0.0.1:4480\"");
    let mut edges = Edges::start(&hand, configure);
    let nginx = edges.site.start(&edges.topology.server_edge, "server-edge", &[]);
    edges.nginx.push(nginx);
    edges
}

/// Turns on the address of the viewer in viewer-address.conf.
fn show_viewers(site: &Site) {
    let line = "proxy_bind $remote_addr transparent;";
    site.edit("server-edge/viewer-address.conf", &format!("# {line}"), line);
}

/// The rules and routes that viewer-address.conf asks for.
fn answers_come_back(edge: &Namespace) {
    edge.ip("rule add fwmark 0x4d54 lookup 4454").unwrap();
    edge.ip("route add local default dev lo table 4454").unwrap();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nftables/transparent.nft");
    output_of(edge.command("nft").arg("-f").arg(rules)).unwrap();
}

/// Says its name and whom it sees, reads a line, and sends it back.
fn named(name: &'static str) -> impl Fn(Socket) + Send + Sync + 'static {
    move |mut stream| {
        let viewer = stream.peer_addr().unwrap().as_socket().unwrap().ip();
        let mut line = Vec::new();
        let mut byte = [0];
        while byte != *b"\n" && stream.read_exact(&mut byte).is_ok() {
            line.push(byte[0]);
        }
        stream.write_all(format!("{name} {viewer} ").as_bytes()).ok();
        stream.write_all(&line).ok();
    }
}

/// Sends a line and reads the answer: origin, viewer as it saw it, and the line.
fn ask(flow: &Socket, line: &str) -> Vec<String> {
    let mut sending = flow;
    sending.write_all(format!("{line}\n").as_bytes()).ok();
    let (answer, _) = tcp::drain(flow);
    // Its other direction too, or the flow would not be over.
    flow.shutdown(Shutdown::Both).ok();
    String::from_utf8(answer).unwrap().trim_end().splitn(3, ' ').map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn flows_are_balanced_and_go_on_when_an_origin_fails() {
    let edges = start(|_| {});
    let first = edges.origin("198.18.3.2:80", named("first"));
    let second = edges.origin("198.18.3.3:80", named("second"));
    let before = edges.tunnelled();
    for _ in 0..10 {
        let flow = edges.connect(SERVICE).unwrap();
        let answer = ask(&flow, "hello");
        assert_eq!(answer[1..], [SERVER_EDGE_INSIDE, "hello"]);
        // The log has the viewer, and whom it came from.
        let logged = edges.site.flow("server-edge", own(&flow));
        assert_eq!((&logged["from"], &logged["port"]), (&"127.0.0.1".into(), &"80".into()));
        assert_eq!(logged["status"], 200);
    }
    assert_eq!(edges.tunnelled() - before, 10.0);
    let shares = (first.accepted(), second.accepted());
    assert_eq!(shares, (5, 5));
    drop(first);
    for _ in 0..10 {
        assert_eq!(ask(&edges.connect(SERVICE).unwrap(), "hello")[0], "second");
    }
    drop(second);
    assert_eq!(ask(&edges.connect(SERVICE).unwrap(), "hello"), [""]);
}

/// With viewer-address.conf turned on origins see the viewer, through the tunnel and directly.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn the_origin_sees_the_viewer() {
    let edges = start(show_viewers);
    answers_come_back(&edges.topology.server_edge);
    let _first = edges.origin("198.18.3.2:80", named("first"));
    let _second = edges.origin("198.18.3.3:80", named("second"));
    for viewer in [PLAYER, OTHER_VIEWER] {
        let flow = edges.connect_from(viewer, SERVICE).unwrap();
        assert_eq!(ask(&flow, "through the tunnel")[1..], [viewer, "through the tunnel"]);
    }
    assert_eq!(edges.tunnelled(), 2.0);
    // The edge's own flow is not intercepted: it comes to the public address.
    let direct = edges.topology.client_edge.inside(|| Ok(tcp::connect(SERVICE.parse()?)?)).unwrap();
    let own = own(&direct).ip().to_string();
    assert_eq!(ask(&direct, "direct")[1..], [own.as_str(), "direct"]);
}

/// Viewer, client edge, tunnel, server edge and origin, all as shipped: a segment arrives byte for
/// byte, and the origin knows the viewer and what the player said.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_segment_comes_through_all_of_it() {
    let segment = data::pattern(8, 3_000_000);
    let mut edges = start(|site| {
        show_viewers(site);
        OriginHost::file(site, "vod/film/1.m4s", &segment);
    });
    answers_come_back(&edges.topology.server_edge);
    let origin = &edges.topology.origin;
    let nginx = edges.site.start(origin, "origin", &[]);
    edges.nginx.push(nginx);
    let target = "/vod/film/1.m4s?CMCD=bl%3D4000%2Cbr%3D620%2Cd%3D2000%2Cot%3Dv%2Csid%3D%22a%22";
    let whole = http::get(&edges.topology.player, SERVICE, target, &[]);
    assert!(whole.status == 200 && whole.body == segment);
    let part =
        http::get(&edges.topology.player, SERVICE, target, &["Range: bytes=1000000-1999999"]);
    assert!(part.status == 206 && part.body == segment[1_000_000..2_000_000]);
    assert_eq!(edges.tunnelled(), 2.0);
    let path = ("path", "/vod/film/1.m4s");
    edges.site.logged("origin", &[path, ("range", "bytes=1000000-1999999"), ("viewer", PLAYER)]);
    let sessions = http::get(&edges.topology.origin, "127.0.0.1:9466", "/sessions", &[]);
    assert!(sessions.text().contains("\"requests\":2"), "{}", sessions.text());
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn headers_are_believed_from_the_server_only() {
    let edges = start(|_| {});
    let _first = edges.origin("198.18.3.2:80", named("first"));
    let _second = edges.origin("198.18.3.3:80", named("second"));
    // At the public address a header is data.
    let forged = listeners::proxy_v1("198.18.3.3:80");
    let edge = &edges.topology.client_edge;
    let direct = edge.inside(|| Ok(tcp::connect(SERVICE.parse()?)?)).unwrap();
    assert_eq!(ask(&direct, forged.trim_end())[2], forged.trim_end());
    let logged = edges.site.flow("server-edge", own(&direct));
    assert_eq!(logged["port"], "80");
    // Through the tunnel too: the server's own header is ahead of it.
    let flow = edges.connect(SERVICE).unwrap();
    assert_eq!(ask(&flow, forged.trim_end())[2], forged.trim_end());
    edges.site.flow("server-edge", own(&flow));
    assert!(
        edges
            .site
            .log("server-edge")
            .iter()
            .all(|line| { !line["viewer"].as_str().unwrap().starts_with("192.0.2.") })
    );
    // The listener that believes headers is out of reach from outside.
    let error = edge.inside(|| Ok(tcp::connect(format!("{SERVER_EDGE_INSIDE}:4480").parse()?)));
    assert_eq!(error.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

/// The header's destination chooses among the configured groups and is never dialled.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn the_server_edge_is_no_open_proxy() {
    let edges = start(|_| {});
    let unlisted = edges.origin("198.18.4.2:80", named("unlisted"));
    let other = edges.origin("198.18.3.2:9999", named("other"));
    let listed = edges.origin("198.18.3.2:80", named("listed"));
    let send = |header: String| {
        let edge = &edges.topology.server_edge;
        let flow = edge.inside(|| Ok(tcp::connect("127.0.0.1:4480".parse()?)?)).unwrap();
        let mut sending = &flow;
        sending.write_all(header.as_bytes()).unwrap();
        ask(&flow, "hello")
    };
    assert_eq!(send(listeners::proxy_v1("198.18.4.2:80"))[0], "listed", "the group of port 80");
    assert_eq!(send(listeners::proxy_v1("198.18.3.2:9999")), [""]);
    assert_eq!(send("PROXY UNKNOWN\r\n".into()), [""]);
    assert_eq!(send("GET / HTTP/1.0\r\n\r\n".into()), [""]);
    // And by way of the tunnel, on a port of the service that no group is for.
    let flow = edges.connect("198.18.3.1:8554").unwrap();
    let mut sending = &flow;
    sending.write_all(b"hello\n").unwrap();
    let (bytes, end) = tcp::drain(&flow);
    assert!(bytes.is_empty() && end != End::Never, "{bytes:?} {end:?}");
    let viewer = own(&flow);
    drop(flow);
    assert_eq!(edges.site.flow("server-edge", viewer)["port"], "8554");
    assert_eq!((unlisted.accepted(), other.accepted(), listed.accepted()), (0, 0, 1));
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_viewer_has_a_limit_of_its_own_behind_the_tunnel() {
    let edges = start(|site| {
        site.edit("server-edge/limits.conf", "limit_conn viewers 200;", "limit_conn viewers 2;");
    });
    let _first = edges.origin("198.18.3.2:80", named("first"));
    let _second = edges.origin("198.18.3.3:80", named("second"));
    let held: Vec<Socket> = (0..2)
        .map(|_| {
            let flow = edges.connect(SERVICE).unwrap();
            (&flow).write_all(b"no end of the line").unwrap();
            flow
        })
        .collect();
    let connected = || {
        let edge = &edges.topology.server_edge;
        let listed = output_of(edge.command("ss").args([
            "-Htn",
            "state",
            "established",
            "dport",
            "=",
            ":80",
        ]));
        listed.unwrap().lines().count()
    };
    wait::for_true("both at an origin", DEFAULT_TIMEOUT, || connected() >= 2);
    let third = edges.connect(SERVICE).unwrap();
    assert_eq!(ask(&third, "hello"), [""]);
    assert_eq!(edges.site.flow("server-edge", own(&third))["status"], 503);
    let other = edges.connect_from(OTHER_VIEWER, SERVICE).unwrap();
    assert_eq!(ask(&other, "hello")[2], "hello");
    drop(held);
    edges.nginx[1].signal(Signal::SIGHUP);
    wait::for_true("a place", DEFAULT_TIMEOUT, || {
        ask(&edges.connect(SERVICE).unwrap(), "hello").len() == 3
    });
}
