//! An edge forwards to what its lists name, for whom they name, and believes no forged header.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use millrace_e2e::origin::echo;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::{listeners, wait};
use millrace_lab::topology::CLIENT_EDGE_INSIDE;

use crate::edges::{Edges, OTHER_VIEWER, UNLISTED, everything, own};

/// What a refused flow looks like: closed without a byte.
fn assert_refused(flow: &socket2::Socket) {
    let mut sending = flow;
    // It may be closed before it says anything.
    sending.write_all(b"hello").ok();
    let (bytes, end) = tcp::drain(flow);
    assert!(bytes.is_empty() && end != End::Never, "{bytes:?} {end:?}");
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn destinations_that_are_not_listed_are_refused() {
    let edges = Edges::start(&everything(), |_| {});
    let to = format!("{UNLISTED}:80");
    let origin = edges.origin(&to, echo);
    let flow = edges.connect(&to).unwrap();
    assert_refused(&flow);
    let logged = edges.logged(flow);
    assert_eq!((&logged["way"], &logged["taken"]), (&"refused".into(), &"none".into()));
    assert_eq!((&logged["destination"], &logged["status"]), (&UNLISTED.into(), &502.into()));
    assert_eq!((origin.accepted(), edges.tunnelled()), (0, 0.0));

    // The listener itself, which would call itself without end; listed or not.
    for list in ["", "198.18.1.0/24 tunnel;"] {
        if !list.is_empty() {
            let listed = "198.18.3.0/24    tunnel;";
            edges.edit_and_reload("client-edge/destinations.conf", listed, list);
            wait::for_true("the new list", wait::DEFAULT_TIMEOUT, || {
                let flow = edges.connect("198.18.3.2:80").unwrap();
                assert_refused(&flow);
                edges.logged(flow)["way"] == "refused"
            });
        }
        let before = edges.site.log("client-edge").len();
        let flow = edges.connect(&format!("{CLIENT_EDGE_INSIDE}:15001")).unwrap();
        assert_refused(&flow);
        assert_eq!(edges.logged(flow)["way"], "refused");
        assert_eq!(edges.site.log("client-edge").len(), before + 1, "it called itself");
    }
    assert_eq!(origin.accepted(), 0);
}

/// A program that may write to nginx's own socket can send any header.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn bypassed_flows_are_checked_against_the_access_list() {
    let edges = Edges::start(&everything(), |_| {});
    let edge = &edges.topology.client_edge;
    let inside = edge.inside(|| Ok(millrace_e2e::origin::listen("127.0.0.1:8080".parse()?, 16)));
    let own_service = millrace_e2e::origin::Origin::serve(inside.unwrap(), echo);
    let unlisted = edges.origin(&format!("{UNLISTED}:80"), echo);
    let listed = edges.origin("198.18.3.2:80", echo);
    // The origins' way to the viewer of these headers, from whose address nginx dials.
    edges.topology.origin.ip("route add 192.0.2.9/32 via 198.18.3.1").unwrap();
    edges.topology.server_edge.ip("route add 192.0.2.9/32 via 198.18.2.1").unwrap();
    let send = |header: &[u8]| {
        let mut socket = UnixStream::connect(edges.site.path("nginx/direct.sock")).unwrap();
        socket.set_read_timeout(Some(tcp::IO_TIMEOUT)).unwrap();
        socket.write_all(header).unwrap();
        socket.write_all(b"hello").ok();
        let mut back = Vec::new();
        // An answer, or the end.
        let mut buffer = [0; 5];
        if socket.read_exact(&mut buffer).is_ok() {
            back.extend(buffer);
        }
        back
    };
    for to in [
        &format!("{UNLISTED}:80"),
        "127.0.0.1:8080",
        "[::1]:8080",
        "198.18.1.1:15001",
        "198.18.3.2:15001",
    ] {
        assert_eq!(send(listeners::proxy_v1(to).as_bytes()), b"", "{to}");
    }
    assert_eq!(send(&listeners::proxy_v2(&format!("{UNLISTED}:80"))), b"");
    assert_eq!(send(b"PROXY UNKNOWN\r\n"), b"");
    assert_eq!(send(b"GET / HTTP/1.1\r\n\r\n"), b"");
    assert_eq!((unlisted.accepted(), own_service.accepted()), (0, 0));
    assert_eq!(send(listeners::proxy_v1("198.18.3.2:80").as_bytes()), b"hello");
    assert_eq!(send(&listeners::proxy_v2("198.18.3.2:80")), b"hello");
    assert_eq!(listed.accepted(), 2);
}

/// A viewer's header is data: it changes neither the flow's viewer nor its destination.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_viewers_own_proxy_header_is_data() {
    let edges = Edges::start(&everything(), |_| {});
    let unlisted = edges.origin(&format!("{UNLISTED}:80"), echo);
    let _origin = edges.origin("198.18.3.2:80", echo);
    let forged = listeners::proxy_v1(&format!("{UNLISTED}:80"));
    let mut flow = edges.connect("198.18.3.2:80").unwrap();
    flow.write_all(forged.as_bytes()).unwrap();
    let mut back = vec![0; forged.len()];
    flow.read_exact(&mut back).unwrap();
    assert_eq!(back, forged.as_bytes());
    let flows = edges.client_flows();
    let running = &flows["flows"][0];
    assert_eq!(running["client"], own(&flow).to_string(), "{flows}");
    assert_eq!(running["destination"], "198.18.3.2:80");
    assert_eq!(unlisted.accepted(), 0);
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn viewers_that_are_not_listed_are_refused_and_each_has_a_limit() {
    let edges = Edges::start(&everything(), |site| {
        site.edit("client-edge/viewers.conf", "limit_conn viewers 200;", "limit_conn viewers 3;");
    });
    let _origin = edges.origin("198.18.3.2:80", echo);
    let talks = |flow: &socket2::Socket| {
        let mut flow = flow;
        let mut back = [0; 2];
        flow.write_all(b"hi").is_ok() && flow.read_exact(&mut back).is_ok()
    };
    let mut flows: Vec<_> = (0..3).map(|_| edges.connect("198.18.3.2:80").unwrap()).collect();
    assert!(flows.iter().all(talks));
    let fourth = edges.connect("198.18.3.2:80").unwrap();
    assert_refused(&fourth);
    assert_eq!(edges.logged(fourth)["status"], 503);
    // Not another viewer's limit.
    let other = edges.connect_from(OTHER_VIEWER, "198.18.3.2:80").unwrap();
    assert!(talks(&other));
    drop(flows.pop());
    wait::for_true("a place", wait::DEFAULT_TIMEOUT, || {
        talks(&edges.connect("198.18.3.2:80").unwrap())
    });

    edges.edit_and_reload("client-edge/viewers.conf", "allow 198.18.1.0/24;", "allow 198.18.1.2;");
    wait::for_true("the new list", wait::DEFAULT_TIMEOUT, || {
        let other = edges.connect_from(OTHER_VIEWER, "198.18.3.2:80").unwrap();
        let refused = !talks(&other);
        refused && edges.logged(other)["status"] == 403
    });
}
