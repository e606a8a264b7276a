//! A tunnel that is down or full costs a viewer nothing but the acceleration.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use millrace_e2e::data;
use millrace_e2e::origin::{echo, source};
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;
use socket2::Socket;

use crate::edges::{Edges, everything};

const BYTES: u64 = 2_000_000;

/// Downloads everything through a new flow; how long that took, and which way it went.
fn download(edges: &Edges) -> (Duration, String) {
    let started = Instant::now();
    let mut flow = edges.connect("198.18.3.2:80").unwrap();
    flow.write_all(b"x").unwrap();
    let sum = data::receive(&flow).unwrap();
    let took = started.elapsed();
    assert_eq!(sum, data::send(std::io::sink(), 3, BYTES).unwrap());
    let logged = edges.logged(flow);
    assert_eq!((&logged["status"], &logged["way"]), (&200.into(), &"tunnel".into()));
    (took, logged["taken"].as_str().unwrap().to_owned())
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn flows_go_direct_while_the_client_is_gone_and_come_back_with_it() {
    let mut edges = Edges::start(&everything(), |_| {});
    let _origin = edges.origin("198.18.3.2:80", source(3, BYTES));
    let _echo = edges.origin("198.18.3.2:554", echo);
    assert_eq!(download(&edges).1, "tunnel");
    let running: Vec<Socket> = (0..50)
        .map(|_| {
            let mut flow = edges.connect("198.18.3.2:554").unwrap();
            flow.write_all(b"x").unwrap();
            flow.read_exact(&mut [0]).unwrap();
            flow
        })
        .collect();

    edges.client.kill();
    for _ in 0..5 {
        let (took, taken) = download(&edges);
        assert_eq!(taken, "direct");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    // Those that ran end, and soon. nginx has no way to pass a reset on: docs/operate/nginx.md.
    for flow in running {
        assert_eq!(tcp::drain(&flow), (vec![], End::Eof));
    }

    edges.restart_client();
    let back = Instant::now();
    assert_eq!(download(&edges).1, "tunnel", "the first flow after the tunnel's return");
    assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn what_is_more_than_the_tunnel_takes_goes_direct() {
    let edges = Edges::start(&everything(), |site| {
        site.edit("client-edge/nginx.conf", "max_conns=9000", "max_conns=1");
    });
    let _origin = edges.origin("198.18.3.2:80", source(3, BYTES));
    let _echo = edges.origin("198.18.3.2:554", echo);
    let mut first = edges.connect("198.18.3.2:554").unwrap();
    first.write_all(b"x").unwrap();
    first.read_exact(&mut [0]).unwrap();
    assert_eq!(download(&edges).1, "direct");
    assert_eq!(download(&edges).1, "direct");
    assert_eq!(edges.logged(first)["taken"], "tunnel");
    assert_eq!(download(&edges).1, "tunnel");
}

/// Neither way leads anywhere: the viewer hears of it at once.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_destination_that_refuses_is_reported_either_way() {
    let mut edges = Edges::start(&everything(), |_| {});
    for tunnel in [true, false] {
        if !tunnel {
            edges.client.kill();
        }
        let mut flow = edges.connect("198.18.3.2:80").unwrap();
        flow.write_all(b"x").unwrap();
        let (bytes, end) = tcp::drain(&flow);
        assert!(bytes.is_empty() && end != End::Never, "{bytes:?} {end:?}");
    }
}

/// The server is gone: the client takes its socket away, and with the server it comes back.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn flows_go_direct_while_the_server_is_gone_and_come_back_with_it() {
    let mut edges = Edges::start(&everything(), |_| {});
    let _origin = edges.origin("198.18.3.2:80", source(3, BYTES));
    let socket = edges.site.path("run/client.sock");
    assert_eq!(download(&edges).1, "tunnel");
    edges.server.kill();
    wait::for_true("the client withdraws", Duration::from_secs(2), || !socket.exists());
    for _ in 0..5 {
        let (took, taken) = download(&edges);
        assert_eq!(taken, "direct");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    edges.restart_server(&everything());
    wait::for_true("the client is back", Duration::from_secs(2), || socket.exists());
    assert_eq!(download(&edges).1, "tunnel");
}
