//! The class of a flow follows what it carries, on listeners of any class.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::data;
use millrace_e2e::listeners::{TestListener, read_head};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::rtsp::{Player, RtspOrigin, Sockets, assert_media, field, receive, request};
use millrace_e2e::tcp::{self, End};
use millrace_e2e::test_lock::Kind;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use serde_json::Value;
use socket2::Socket;

use crate::rtsp::set_up;

/// How long a flow is held for its first bytes.
const HOLD: Duration = Duration::from_millis(50);
const CMCD: &str = "GET /1.m4s?CMCD=bl%3D1000 HTTP/1.1\r\nHost: a\r\n\r\n";

/// TCP flows, as the program at `admin` shows them.
fn tcp_flows(admin: SocketAddr) -> Vec<Value> {
    let flows = admin::flows(admin);
    let flows = flows["flows"].as_array().unwrap();
    flows.iter().filter(|flow| flow["protocol"] == "tcp").cloned().collect()
}

/// Waits for the only TCP flow to be shown with this class at both ends.
#[track_caller]
fn wait_for_class(pair: &Pair, class: &str) {
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let shown = wait::until(DEFAULT_TIMEOUT, || {
            let flows = tcp_flows(admin);
            (flows.len() == 1 && flows[0]["class"] == class).then_some(())
        });
        assert!(shown.is_some(), "not class {class}: {:?}", tcp_flows(admin));
    }
}

fn wait_for_no_flow(pair: &Pair) {
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        wait::for_true("no flow is left", DEFAULT_TIMEOUT, || {
            Metrics::fetch(admin).sum("millrace_flows_active", &[]) == 0.0
        });
    }
}

fn recognised(pair: &Pair, protocol: &str) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.client_admin);
    metrics.sum("millrace_flows_recognised_total", &[("protocol", protocol)])
}

fn classified(pair: &Pair, class: &str) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.client_admin);
    metrics.sum("millrace_flows_classified_total", &[("class", class)])
}

/// A flow of a player on this host, whatever the listener is.
fn open(listener: &TestListener, to: SocketAddr) -> Socket {
    match listener {
        TestListener::Proxy(_) | TestListener::ProxyUnix(_) => {
            let mut socket = listener.connect();
            let header = format!("PROXY TCP4 127.0.0.1 {} 40000 {}\r\n", to.ip(), to.port());
            socket.write_all(header.as_bytes()).unwrap();
            socket
        }
        _ => listener.open(&to.to_string()).unwrap(),
    }
}

/// `static`, `http_connect`, `proxy_protocol` on TCP and on a Unix socket: no one of class `rtsp`.
#[test]
fn rtsp_is_followed_on_listeners_of_every_class() {
    let origin = RtspOrigin::start();
    let pair = Pair::builder().static_destination(origin.address()).start();
    for (listener, class) in [(0, "rtsp"), (1, "bulk"), (3, "rtsp"), (4, "rtsp")] {
        let stream = open(&pair.listeners[listener], origin.address());
        let mut player = Player::over(stream, Sockets::open());
        assert_eq!(field(&origin.asked().head, "CSeq"), Some("1"));
        // An explicit proxy has answered before the first bytes came.
        wait_for_class(&pair, class);
        let media = set_up(&mut player, &origin);
        assert_media(&player, &origin, media, listener as u64);
        player.tear_down();
        origin.asked();
        player.hang_up();
        wait_for_no_flow(&pair);
    }
    assert_eq!((recognised(&pair, "rtsp"), recognised(&pair, "late_rtsp")), (3.0, 1.0));
    assert_eq!((classified(&pair, "rtsp"), classified(&pair, "bulk")), (3.0, 1.0));
}

/// The hold is over before the request line is: the class is the listener's, and RTSP is followed all the same.
#[test]
fn rtsp_that_comes_byte_by_byte_is_followed() {
    let origin = RtspOrigin::start();
    let pair = Pair::builder().static_destination(origin.address()).start();
    let first = request("OPTIONS", "live", 1, "");
    for (listener, pause) in [(0, Duration::from_millis(3)), (1, Duration::ZERO)] {
        let mut stream = open(&pair.listeners[listener], origin.address());
        for byte in first.bytes() {
            stream.write_all(&[byte]).unwrap();
            std::thread::sleep(pause);
        }
        assert!(read_head(&mut stream).unwrap().starts_with("RTSP/1.0 200 "));
        assert_eq!(origin.asked().head, first);
        let mut player = Player::over(stream, Sockets::open());
        origin.asked();
        wait_for_class(&pair, "bulk");
        let media = set_up(&mut player, &origin);
        assert_media(&player, &origin, media, listener as u64);
        player.tear_down();
        origin.asked();
        player.hang_up();
        wait_for_no_flow(&pair);
    }
    assert_eq!((recognised(&pair, "late_rtsp"), recognised(&pair, "rtsp")), (2.0, 0.0));
}

/// As SAT>IP clients begin, on a listener of another class.
#[test]
fn setup_as_the_first_request_is_followed_in_every_class() {
    let origin = RtspOrigin::start();
    let pair = Pair::builder().start();
    let mut stream = open(pair.http(), origin.address());
    let media = Sockets::open();
    let fields = format!("Transport: RTP/AVP;unicast;client_port={}\r\n", media.ports());
    let first = request("SETUP", "live", 1, &fields);
    stream.write_all(first.as_bytes()).unwrap();
    let answer = read_head(&mut stream).unwrap();
    let to_player = origin.asked().ends.unwrap();
    assert!(!answer.contains("millrace"), "{answer}");
    origin.media.rtp.send_to(b"media", to_player.rtp).unwrap();
    assert_eq!(receive(&media.rtp, DEFAULT_TIMEOUT).0, b"media");
}

#[test]
fn http_with_cmcd_and_of_media_is_dash() {
    let origin = Origin::echo();
    let pair = Pair::builder().static_destination(origin.address()).start();
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let tunnelled = "GET / HTTP/1.0\r\nx-sessioncookie: a\r\n\r\n";
    let cases = [
        (CMCD, "dash", "http_cmcd"),
        ("GET /live/manifest.mpd HTTP/1.1\r\nHost: a\r\n\r\n", "dash", "http_media"),
        (plain, "bulk", "http"),
        (tunnelled, "rtsp", "rtsp_over_http"),
        ("\u{16}\u{3}\u{1}hello", "bulk", "tls"),
        ("hello", "bulk", "other"),
    ];
    for (bytes, class, protocol) in cases {
        let mut flow = open(&pair.listeners[0], origin.address());
        flow.write_all(bytes.as_bytes()).unwrap();
        let mut answer = vec![0; bytes.len()];
        flow.read_exact(&mut answer).unwrap();
        assert_eq!(answer, bytes.as_bytes());
        wait_for_class(&pair, class);
        assert_eq!(recognised(&pair, protocol), 1.0, "{protocol}");
        drop(flow);
        wait_for_no_flow(&pair);
    }
    assert_eq!(recognised(&pair, "undecided"), 0.0);
}

#[test]
fn classes_of_one_listener_have_connections_of_their_own() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .both("runtime.workers", 1)
        // Nothing else has it, so that there is no connection of class dash yet.
        .listener(0, "congestion_control = \"reno\"")
        .start();
    let flows: Vec<_> = ["hello", CMCD, CMCD]
        .into_iter()
        .map(|bytes| {
            let mut flow = open(&pair.listeners[0], origin.address());
            flow.write_all(bytes.as_bytes()).unwrap();
            flow.read_exact(&mut vec![0; bytes.len()]).unwrap();
            flow
        })
        .collect();
    let shown = tcp_flows(pair.addresses.client_admin);
    let connections = |class: &str| -> Vec<String> {
        let of_class = shown.iter().filter(|flow| flow["class"] == class);
        of_class.map(|flow| flow["connection"].to_string()).collect()
    };
    let (bulk, dash) = (connections("bulk"), connections("dash"));
    assert_eq!((bulk.len(), dash.len()), (1, 2), "{shown:?}");
    assert!(dash[0] == dash[1] && dash[0] != bulk[0], "{shown:?}");
    assert!(shown.iter().all(|flow| flow["algorithm"] == "reno"), "{shown:?}");
    drop(flows);
}

/// An origin that speaks first, as SMTP, FTP and SSH servers do.
fn greeter() -> Origin {
    Origin::start(|mut stream| {
        if stream.write_all(b"220 hello\r\n").is_ok() {
            millrace_e2e::origin::echo(stream);
        }
    })
}

/// How long the origin's greeting takes, and the flow.
fn greeting(listener: &TestListener, origin: &Origin) -> (Duration, Socket) {
    let began = Instant::now();
    let mut flow = open(listener, origin.address());
    let mut greeting = [0; 11];
    flow.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 hello\r\n");
    (began.elapsed(), flow)
}

/// Greetings of which the fastest counts: the machine may be busy for a moment.
const GREETINGS: u32 = 5;

fn fastest_greeting(pair: &Pair, listener: &TestListener, origin: &Origin) -> Duration {
    let times = (0..GREETINGS).map(|_| {
        let (time, flow) = greeting(listener, origin);
        drop(flow);
        wait_for_no_flow(pair);
        time
    });
    times.min().unwrap()
}

#[test]
fn a_server_that_speaks_first_is_held_up_for_a_moment_only() {
    let origin = greeter();
    let port = origin.address().port();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .listener(3, &format!("class_of_ports = [{{ ports = [{port}], class = \"bulk\" }}]"))
        .listener(4, "recognise_class = false")
        .measured()
        .start();
    let held = fastest_greeting(&pair, &pair.listeners[0], &origin);
    assert!(held >= HOLD && held < 2 * HOLD, "held for {held:?}");
    let of_listeners = |listeners: u32| f64::from(listeners * GREETINGS);
    assert_eq!(recognised(&pair, "undecided"), of_listeners(1));
    // An explicit proxy answers, and a configured port needs no bytes.
    for listener in [1, 3, 4] {
        let time = fastest_greeting(&pair, &pair.listeners[listener], &origin);
        assert!(time < HOLD, "listener {listener}: {time:?}");
    }
    assert_eq!(recognised(&pair, "configured"), of_listeners(2));
    assert_eq!(classified(&pair, "bulk"), of_listeners(4));
}

#[test]
fn a_port_has_its_class_whatever_a_flow_carries() {
    let origin = Origin::echo();
    let port = origin.address().port();
    let entry = |class: &str| {
        format!("class_of_ports = [{{ ports = [\"{port}-{port}\"], class = \"{class}\" }}]")
    };
    let pair = Pair::builder().listener(1, &entry("dash")).listener(3, &entry("rtsp")).start();
    for (listener, class) in [(1, "dash"), (3, "rtsp")] {
        for bytes in ["hello", CMCD, "OPTIONS * RTSP/1.0\r\n\r\n"] {
            let mut flow = open(&pair.listeners[listener], origin.address());
            flow.write_all(bytes.as_bytes()).unwrap();
            flow.read_exact(&mut vec![0; bytes.len()]).unwrap();
            wait_for_class(&pair, class);
            drop(flow);
            wait_for_no_flow(&pair);
        }
    }
    assert_eq!(recognised(&pair, "configured"), 6.0);
}

/// Nothing is lost or moved, wherever the first bytes are cut.
#[test]
fn bytes_arrive_as_they_were_sent_however_they_come() {
    let origin = Origin::echo();
    let pair = Pair::builder().static_destination(origin.address()).start();
    let rest = data::pattern(3, 300_000);
    let request = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n";
    let sent = [request.as_bytes(), &rest].concat();
    for (cut, pause_ms) in [(0, 100), (1, 5), (1, 100), (20, 5), (60, 100), (100, 0)] {
        let mut flow = open(&pair.listeners[0], origin.address());
        let mut reader = flow.try_clone().unwrap();
        let mut received = vec![0; sent.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| reader.read_exact(&mut received).unwrap());
            flow.write_all(&sent[..cut]).unwrap();
            std::thread::sleep(Duration::from_millis(pause_ms));
            flow.write_all(&sent[cut..]).unwrap();
        });
        assert!(received == sent, "cut after {cut} bytes, {pause_ms} ms");
    }
    // The end comes during the hold, with and without a byte before it.
    for bytes in ["", "G", "GET / HTT"] {
        let mut flow = open(&pair.listeners[0], origin.address());
        flow.write_all(bytes.as_bytes()).unwrap();
        flow.shutdown(Shutdown::Write).unwrap();
        assert_eq!(tcp::drain(&flow), (bytes.as_bytes().to_vec(), End::Eof));
    }
}

#[test]
fn a_client_that_resets_during_the_hold_is_gone() {
    let origin = Origin::echo();
    let pair = Pair::builder().static_destination(origin.address()).start();
    let mut flow = open(&pair.listeners[0], origin.address());
    flow.write_all(b"GET /").unwrap();
    tcp::reset(flow);
    wait_for_no_flow(&pair);
    let metrics = Metrics::fetch(pair.addresses.client_admin);
    assert_eq!(metrics.sum("millrace_flows_finished_total", &[("outcome", "tcp_reset")]), 1.0);
    pair_serves(&pair, &origin);
}

fn pair_serves(pair: &Pair, origin: &Origin) {
    let mut flow = open(&pair.listeners[0], origin.address());
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
}

/// The path dies before there is a connection of the class: what was read goes along on the bypass.
#[test]
fn first_bytes_go_along_when_a_flow_bypasses_the_tunnel() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .listener(0, "fail_mode = \"open\"\ncongestion_control = \"reno\"")
        .direct("127.0.0.0/8")
        .relay(RelayOptions::default())
        .in_turn_of(Kind::Few)
        .start();
    pair.relay.as_ref().unwrap().swallow(true);
    let mut flow = open(&pair.listeners[0], origin.address());
    flow.write_all(CMCD.as_bytes()).unwrap();
    let mut answer = vec![0; CMCD.len()];
    flow.read_exact(&mut answer).unwrap();
    assert_eq!(answer, CMCD.as_bytes());
    let bypassed =
        Metrics::fetch(pair.addresses.client_admin).sum("millrace_flows_direct_total", &[]);
    assert_eq!(bypassed, 1.0);
    let shown = &tcp_flows(pair.addresses.client_admin)[0];
    assert_eq!((&shown["class"], &shown["bypassed"]), (&"dash".into(), &true.into()), "{shown}");
}

#[test]
fn the_class_of_a_listener_and_its_ports_is_reloaded() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let class_now = || {
        let mut flow = open(&pair.listeners[1], origin.address());
        flow.write_all(b"hello").unwrap();
        flow.read_exact(&mut [0; 5]).unwrap();
        let class = tcp_flows(pair.addresses.client_admin)[0]["class"].clone();
        drop(flow);
        wait_for_no_flow(&pair);
        class
    };
    assert_eq!(class_now(), "bulk");
    let file = pair.dir().join("client.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let port = origin.address().port();
    for (keys, class) in [
        ("class = \"dash\"".to_owned(), "dash"),
        (format!("class_of_ports = [{{ ports = [{port}], class = \"rtsp\" }}]"), "rtsp"),
    ] {
        let mode = "mode = \"http_connect\"";
        std::fs::write(&file, text.replace(mode, &format!("{mode}\n{keys}"))).unwrap();
        pair.client.signal(nix::sys::signal::Signal::SIGHUP);
        wait::for_true("the class is another one", DEFAULT_TIMEOUT, || class_now() == class);
    }
}

/// A client of another protocol that waits for an answer once it has sent what RTSP requests begin with.
#[test]
fn the_beginning_of_a_method_alone_reaches_the_origin() {
    let origin = Origin::echo();
    let pair = Pair::builder().static_destination(origin.address()).start();
    for beginning in ["S", "SETUP", "PLAY"] {
        for listener in &pair.listeners {
            let mut flow = listener.open(&origin.address().to_string()).unwrap();
            flow.write_all(beginning.as_bytes()).unwrap();
            let mut answer = vec![0; beginning.len()];
            flow.set_read_timeout(Some(DEFAULT_TIMEOUT)).unwrap();
            let read = flow.read_exact(&mut answer);
            read.unwrap_or_else(|error| panic!("{beginning} by {listener:?}: {error}"));
            assert_eq!(answer, beginning.as_bytes());
        }
    }
}
