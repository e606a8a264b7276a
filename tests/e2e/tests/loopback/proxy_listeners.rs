//! PROXY listeners: health checks are quiet, headers come from trusted proxies only.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::{TestListener, proxy_v1};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;
use socket2::{Domain, Socket, Type};

const LOCAL_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";

fn failed(pair: &Pair) -> f64 {
    Metrics::fetch(pair.addresses.client_admin).failed_flows()
}

fn active(pair: &Pair) -> f64 {
    Metrics::fetch(pair.addresses.client_admin).sum("millrace_flows_active", &[])
}

fn warnings(pair: &Pair) -> Vec<String> {
    let log = pair.client.log_text();
    log.lines().filter(|line| line.contains("\"WARN\"")).map(str::to_owned).collect()
}

#[test]
fn health_checks_are_answered_quietly() {
    let pair = Pair::builder().start();
    // The last line of the start; the log may come later than the first answer.
    let started = || pair.client.log_text().contains("\"what\":\"admin\"");
    wait::for_true("the log of the start", wait::DEFAULT_TIMEOUT, started);
    let warned_at_start = warnings(&pair);
    let proxies = [&pair.listeners[3], &pair.listeners[4]];
    for listener in proxies {
        // The last one asks something behind its header, as HTTP checks do.
        for check in [
            b"PROXY UNKNOWN\r\n".to_vec(),
            LOCAL_V2.to_vec(),
            [LOCAL_V2, b"GET / HTTP/1.0\r\n\r\n"].concat(),
        ] {
            let mut socket = listener.connect();
            socket.write_all(&check).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(tcp::drain(&socket), (vec![], End::Eof), "{listener:?} {check:?}");
        }
    }
    // At every listener that waits for a header: closed, or reset, without a byte.
    for listener in &pair.listeners[1..] {
        drop(listener.connect());
        if !matches!(listener, TestListener::ProxyUnix(_)) {
            tcp::reset(listener.connect());
        }
    }
    wait::for_true("the checks are over", wait::DEFAULT_TIMEOUT, || active(&pair) == 0.0);
    assert_eq!(failed(&pair), 0.0);
    let warned = warnings(&pair);
    assert!(warned == warned_at_start, "{warned:?}");
    // A truncated header is an error.
    let mut socket = pair.listeners[3].connect();
    socket.write_all(b"PROXY TCP4 ").unwrap();
    drop(socket);
    wait::for_true("a broken header counts", wait::DEFAULT_TIMEOUT, || failed(&pair) == 1.0);
}

/// Connects from another address of loopback.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    tcp::prepare(&socket).unwrap();
    socket
}

#[test]
fn proxy_headers_are_accepted_from_trusted_proxies_only() {
    let trusted = "trusted_proxies = [\"127.0.0.2\", \"198.18.0.0/15\"]";
    let pair = Pair::builder().listener(3, trusted).start();
    let TestListener::Proxy(at) = pair.listeners[3] else {
        panic!("listener 3 is a PROXY listener on TCP")
    };
    let origin = Origin::echo();
    let header = proxy_v1(&origin.address().to_string());
    for _ in 0..20 {
        let mut stranger = connect_from(Ipv4Addr::LOCALHOST, at);
        // The reset may come first: then the write tells, and a read after it sees the end only.
        match stranger.write_all(header.as_bytes()) {
            Ok(()) => assert_eq!(tcp::drain(&stranger), (vec![], End::Reset)),
            Err(error) => assert_eq!(End::of(Some(&error)), End::Reset),
        }
    }
    let mut proxy = connect_from(Ipv4Addr::new(127, 0, 0, 2), at);
    write!(proxy, "{header}ping").unwrap();
    proxy.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(origin.accepted(), 1);
    let metrics = Metrics::fetch(pair.addresses.client_admin);
    let dropped = metrics.sum("millrace_drops_total", &[("reason", "untrusted_proxy")]);
    assert_eq!(dropped, 20.0);
    assert_eq!(failed(&pair), 0.0);
    let logged = || pair.client.log_text().matches("PROXY header not accepted").count();
    wait::for_true("it is logged", wait::DEFAULT_TIMEOUT, || logged() > 0);
    let lines = logged();
    assert!((1..=10).contains(&lines), "{lines} log lines");
}
