//! What one viewer, listener or forged source takes leaves others their share.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::{TestListener, read_head, status_of};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp;
use millrace_e2e::udp::{self, UdpEcho};
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use socket2::{Domain, Socket, Type};

fn dropped(from: SocketAddr, reason: &str) -> f64 {
    Metrics::fetch(from).sum("millrace_drops_total", &[("reason", reason)])
}

fn gauge(from: SocketAddr, name: &str) -> f64 {
    Metrics::fetch(from).sum(name, &[])
}

/// A connection from `viewer`, an address of this host.
fn connect_from(viewer: [u8; 4], to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((viewer, 0)).into())?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(DEFAULT_TIMEOUT))?;
    Ok(socket)
}

/// Whether bytes come back through a flow.
fn echoes(mut flow: &Socket) -> bool {
    flow.write_all(b"x").and_then(|()| flow.read_exact(&mut [0])).is_ok()
}

/// The flows that `open` makes until the first that carries nothing.
fn open_until_refused(mut open: impl FnMut() -> io::Result<Socket>) -> Vec<Socket> {
    std::iter::from_fn(|| open().ok().filter(echoes)).take(200).collect()
}

#[test]
fn one_viewer_takes_idle_flows_and_another_still_gets_one() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .client("limits.max_flows", 100)
        .start();
    let TestListener::Static(listener) = pair.listeners[0] else {
        panic!("the first listener is static")
    };
    let greedy = open_until_refused(|| connect_from([127, 0, 0, 1], listener));
    // A quarter is kept.
    assert_eq!(greedy.len(), 75);
    assert!(dropped(pair.addresses.client_admin, "viewer_flow_share") >= 1.0);
    for viewer in 2..10 {
        let flow = connect_from([127, 0, 0, viewer], listener).unwrap();
        assert!(echoes(&flow), "viewer 127.0.0.{viewer}");
    }
    // The greedy one has its turn again when it gives some back.
    drop(greedy);
    wait::for_true("places are free again", DEFAULT_TIMEOUT, || {
        connect_from([127, 0, 0, 1], listener).is_ok_and(|flow| echoes(&flow))
    });
}

/// Behind nginx all connections come from one address, and headers name the viewers.
#[test]
fn viewers_that_a_header_names_have_shares_of_their_own() {
    let origin = Origin::echo();
    let pair = Pair::builder().client("limits.max_flows", 100).start();
    let TestListener::Proxy(listener) = pair.listeners[3] else {
        panic!("the fourth listener is proxy_protocol")
    };
    let to = origin.address().port();
    let open = |viewer: &str| {
        let mut flow = connect_from([127, 0, 0, 1], listener)?;
        write!(flow, "PROXY TCP4 {viewer} 127.0.0.1 4000 {to}\r\n")?;
        Ok(flow)
    };
    let greedy = open_until_refused(|| open("198.18.1.1"));
    assert_eq!(greedy.len(), 75);
    let other = open("198.18.1.2").unwrap();
    assert!(echoes(&other));
}

#[test]
fn the_server_shares_flows_among_the_viewers_of_a_client() {
    let origin = Origin::echo();
    let pair = Pair::builder().server("limits.max_flows", 100).start();
    let TestListener::Http(listener) = *pair.http() else {
        panic!("the second listener is HTTP CONNECT")
    };
    let to = origin.address();
    let open = |viewer| {
        let mut flow = connect_from(viewer, listener)?;
        write!(flow, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")?;
        let head = read_head(&mut flow)?;
        if status_of(&head) == 200 { Ok(flow) } else { Err(io::Error::other(head)) }
    };
    let greedy = open_until_refused(|| open([127, 0, 0, 1]));
    assert_eq!(greedy.len(), 75);
    assert!(dropped(pair.addresses.server_admin, "viewer_flow_share") >= 1.0);
    wait::for_true("another viewer gets a flow", DEFAULT_TIMEOUT, || {
        open([127, 0, 0, 2]).is_ok_and(|flow| echoes(&flow))
    });
}

/// A UDP listener that leads to `to`.
fn udp_listener(to: SocketAddr) -> (SocketAddr, String) {
    let listener = tcp::unused(Ipv4Addr::LOCALHOST);
    (listener, format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\""))
}

/// Sends one byte from each of `count` sources.
fn flood(listener: SocketAddr, count: u32) {
    for number in 0..count {
        let source = IpAddr::from((0x7f01_0000 + number).to_be_bytes());
        let socket = UdpSocket::bind((source, 0)).unwrap();
        socket.send_to(b"x", listener).unwrap();
    }
}

#[test]
fn datagrams_of_forged_sources_leave_flows_and_answered_udp_flows_alone() {
    const SOURCES: u32 = 10_500;
    const MOST: f64 = 2000.0;
    let (silent, echo, origin) = (udp::socket(), UdpEcho::start(), Origin::echo());
    let (flooded, to_silent) = udp_listener(silent.local_addr().unwrap());
    let (listener, to_echo) = udp_listener(echo.address());
    let builder = Pair::builder().allow_udp("127.0.0.1").listen(&to_silent).listen(&to_echo);
    let pair = builder.alone().start();
    let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
    let answered = udp::client(listener);
    assert!(udp::exchange(&answered, b"before", DEFAULT_TIMEOUT).is_some());
    flood(flooded, SOURCES);
    // The kernel may drop many of them.
    wait::for_true("the client has no place for more", DEFAULT_TIMEOUT, || {
        dropped(admins[0], "unanswered_udp_flow") >= 500.0
    });
    for admin in admins {
        let unanswered = || gauge(admin, "millrace_udp_flows_unanswered");
        wait::for_true("some are unanswered", DEFAULT_TIMEOUT, || unanswered() >= 1.0);
        // A few more where a division by the workers leaves a rest.
        assert!(unanswered() <= MOST + 16.0, "{} unanswered", unanswered());
        assert_eq!(gauge(admin, "millrace_flows_active"), 1.0);
    }
    for (which, client) in
        [("the answered UDP flow", answered), ("a new one", udp::client(listener))]
    {
        wait::for_true(which, DEFAULT_TIMEOUT, || {
            udp::exchange(&client, b"still there?", Duration::from_millis(500)).is_some()
        });
    }
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    assert!(echoes(&flow));
    assert_eq!(dropped(admins[1], "flow_limit") + dropped(admins[1], "peer_flows"), 0.0);
}

/// The server has a bound of its own: the client may be another program.
#[test]
fn the_server_bounds_unanswered_udp_flows_too() {
    let silent = udp::socket();
    let (flooded, to_silent) = udp_listener(silent.local_addr().unwrap());
    let pair = Pair::builder()
        .allow_udp("127.0.0.1")
        .listen(&to_silent)
        .server("limits.max_unanswered_udp_flows", 100)
        .server("runtime.workers", 1)
        .start();
    flood(flooded, 500);
    let admin = pair.addresses.server_admin;
    wait::for_true("older ones go", DEFAULT_TIMEOUT, || {
        dropped(admin, "unanswered_udp_flow") >= 100.0
    });
    assert!(gauge(admin, "millrace_udp_flows_unanswered") <= 100.0);
}
