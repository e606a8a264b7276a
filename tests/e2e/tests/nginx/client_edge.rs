//! Which flows take the tunnel and which go direct, and that both are TCP.

use std::io::{Read, Write};
use std::net::Shutdown;

use millrace_e2e::data;
use millrace_e2e::origin::{answer_with_hash, echo, source};
use millrace_e2e::tcp::{self, End};
use socket2::Socket;

use crate::edges::{Edges, everything, list_ipv6};

const BYTES: u64 = 5_000_000;

/// A TLS ClientHello (RFC 8446, Section 4.1.2) with `name` for its server name (RFC 6066).
fn client_hello(name: &str) -> Vec<u8> {
    fn with_length(width: usize, body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes()[4 - width..], body].concat()
    }
    let entry = [&[0], &with_length(2, name.as_bytes())[..]].concat();
    let server_name = [&[0, 0], &with_length(2, &with_length(2, &entry))[..]].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &with_length(1, &[]),
        &with_length(2, &[0x13, 0x01]),
        &with_length(1, &[0]),
        &with_length(2, &server_name),
    ]
    .concat();
    let message = [&[1], &with_length(3, &body)[..]].concat();
    [&[0x16, 3, 1], &with_length(2, &message)[..]].concat()
}

/// Sends the same bytes back that it was sent, then a pattern.
fn hello_back(hello_bytes: usize) -> impl Fn(Socket) + Send + Sync + 'static {
    move |mut stream| {
        let mut hello = vec![0; hello_bytes];
        if stream.read_exact(&mut hello).is_ok() && stream.write_all(&hello).is_ok() {
            data::send(&stream, 9, BYTES).ok();
        }
    }
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn listed_ports_take_the_tunnel_and_others_go_direct() {
    let edges = Edges::start(&everything(), |_| {});
    for (port, taken) in [(80, "tunnel"), (9999, "direct")] {
        let to = format!("198.18.3.2:{port}");
        let origin = edges.origin(&to, answer_with_hash);
        let before = edges.tunnelled();
        let flow = edges.connect(&to).unwrap();
        assert_eq!(flow.peer_addr().unwrap().as_socket().unwrap().to_string(), to);
        // One direction ends before the other says anything.
        let sent = data::send(&flow, 1, BYTES).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        let answer = sent.to_string().into_bytes();
        assert_eq!(tcp::drain(&flow), (answer.clone(), End::Eof));
        assert_eq!(origin.accepted(), 1);
        let through = edges.tunnelled() - before;
        assert_eq!(through, if taken == "tunnel" { 1.0 } else { 0.0 }, "{port}");
        let logged = edges.logged(flow);
        assert_eq!((&logged["destination"], &logged["port"]), (&"198.18.3.2".into(), &port.into()));
        assert_eq!((&logged["taken"], &logged["status"]), (&taken.into(), &200.into()));
        assert_eq!(logged["way"], taken);
        assert_eq!(logged["bytes_up"], BYTES);
        assert_eq!(logged["bytes_down"], answer.len());
        drop(origin);
    }
    // The other direction first, and many bytes of it.
    let _origin = edges.origin("198.18.3.2:8554", source(2, BYTES));
    let mut flow = edges.connect("198.18.3.2:8554").unwrap();
    flow.write_all(b"x").unwrap();
    assert_eq!(data::receive(&flow).unwrap(), data::send(std::io::sink(), 2, BYTES).unwrap());
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn the_tls_name_chooses_the_way_and_never_the_destination() {
    let edges = Edges::start(&everything(), |site| {
        site.edit(
            "client-edge/chosen.conf",
            "hostnames;\n    default    tunnel;",
            "hostnames;\n    default    direct;\n    .video.test tunnel;",
        );
    });
    let pattern = data::send(std::io::sink(), 9, BYTES).unwrap();
    for (name, taken) in [
        ("a.video.test", "tunnel"),
        ("video.test", "tunnel"),
        ("A.Video.Test", "tunnel"),
        ("avideo.test", "direct"),
        ("video.test.example", "direct"),
        // A forged name gets no further: an address is a name like any other.
        ("198.18.4.2", "direct"),
    ] {
        let hello = client_hello(name);
        let origin = edges.origin("198.18.3.2:443", hello_back(hello.len()));
        let mut flow = edges.connect("198.18.3.2:443").unwrap();
        // In two pieces, as it may come.
        flow.write_all(&hello[..20]).unwrap();
        flow.write_all(&hello[20..]).unwrap();
        let mut back = vec![0; hello.len()];
        flow.read_exact(&mut back).unwrap();
        assert_eq!(back, hello, "the ClientHello was changed");
        assert_eq!(data::receive(&flow).unwrap(), pattern);
        drop(origin);
        let logged = edges.logged(flow);
        assert_eq!((&logged["taken"], &logged["tls_name"]), (&taken.into(), &name.into()));
    }
    // Something on the port that is no TLS: a flow without a name.
    let _origin = edges.origin("198.18.3.2:443", echo);
    let mut flow = edges.connect("198.18.3.2:443").unwrap();
    flow.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    flow.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (b"GET / HTTP/1.0\r\n\r\n".to_vec(), End::Eof));
    assert_eq!(edges.logged(flow)["taken"], "direct");
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn ipv6_flows_go_either_way_too() {
    let mut edges = Edges::start(&everything(), list_ipv6);
    let to = "[2001:2:0:3::2]:80";
    let _origin = edges.origin(to, source(5, BYTES));
    let pattern = data::send(std::io::sink(), 5, BYTES).unwrap();
    for taken in ["tunnel", "direct"] {
        let flow = edges.connect(to).unwrap();
        assert_eq!(data::receive(&flow).unwrap(), pattern);
        let logged = edges.logged(flow);
        assert_eq!((&logged["taken"], &logged["way"]), (&taken.into(), &"tunnel".into()));
        assert_eq!(logged["destination"], "2001:2:0:3::2");
        edges.client.kill();
    }
    let flow = edges.connect("[2001:2:0:1::1]:15001").unwrap();
    assert_eq!(tcp::drain(&flow), (vec![], End::Eof));
    assert_eq!(edges.logged(flow)["way"], "refused");
}

/// Without the launcher nginx's sockets are not transparent, and TPROXY finds none: flows pass as if
/// nothing were loaded. So they do while nginx is gone; killed, it leaves nothing in its way.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn flows_pass_without_transparent_sockets_and_without_nginx() {
    let mut edges = Edges::start_with(&everything(), &[], |_| {});
    let origin = edges.origin("198.18.3.2:80", source(6, BYTES));
    let pattern = data::send(std::io::sink(), 6, BYTES).unwrap();
    let download = |edges: &Edges| {
        let flow = edges.connect("198.18.3.2:80").unwrap();
        assert_eq!(data::receive(&flow).unwrap(), pattern);
        flow
    };
    download(&edges);
    assert_eq!((edges.site.log("client-edge").len(), edges.tunnelled()), (0, 0.0));
    for _ in 0..2 {
        // As a crash leaves it: no worker, and the Unix socket's file is there.
        edges.kill_nginx();
        assert!(edges.site.path("nginx/direct.sock").exists());
        download(&edges);
        edges.restart_nginx();
        let flow = download(&edges);
        assert_eq!(edges.logged(flow)["taken"], "tunnel");
    }
    assert_eq!(origin.accepted(), 5);
}

/// A reload keeps the transparent sockets, which nginx could not open again, and running flows.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_reload_keeps_flows_and_sockets_and_takes_the_new_lists() {
    let edges = Edges::start(&everything(), |_| {});
    let _origin = edges.origin("198.18.3.2:80", echo);
    let talk = |flow: &Socket| {
        let mut flow = flow;
        flow.write_all(b"ping").unwrap();
        let mut back = [0; 4];
        flow.read_exact(&mut back).is_ok() && &back == b"ping"
    };
    let running = edges.connect("198.18.3.2:80").unwrap();
    assert!(talk(&running));
    edges.edit_and_reload("client-edge/chosen.conf", "80         tunnel;", "80         direct;");
    millrace_e2e::wait::for_true("the new list", millrace_e2e::wait::DEFAULT_TIMEOUT, || {
        let flow = edges.connect("198.18.3.2:80").unwrap();
        assert!(talk(&flow), "a flow failed during the reload");
        edges.logged(flow)["taken"] == "direct"
    });
    assert!(talk(&running), "the reload ended a running flow");
    running.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&running), (vec![], End::Eof));
    assert_eq!(edges.logged(running)["taken"], "tunnel");
}
