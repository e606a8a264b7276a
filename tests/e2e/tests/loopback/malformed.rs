//! Nonsense at each listener: a clear error where the protocol has words, the connection closed, the
//! process alive, others undisturbed.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait::DEFAULT_TIMEOUT;

/// A flow that runs all the time, and a way to see that it still does.
struct Bystander {
    pair: Pair,
    origin: Origin,
    flow: socket2::Socket,
}

impl Bystander {
    fn start() -> Self {
        let origin = Origin::echo();
        let pair = Pair::builder().client("limits.handshake_timeout_s", 1).start();
        let flow = pair.http().open(&origin.address().to_string()).unwrap();
        Self { pair, origin, flow }
    }

    /// Says `bytes` at a listener and answers what came back before the connection was closed.
    fn say(&mut self, listener: &TestListener, bytes: &[u8]) -> Vec<u8> {
        let mut socket = listener.connect();
        // It may be closed before all of it has been said.
        socket.write_all(bytes).ok();
        let (answer, end) = tcp::drain(&socket);
        assert_ne!(end, End::Never, "{listener:?} keeps a client that said {bytes:02x?}");
        self.check();
        answer
    }

    /// Everything still works, the listener that was abused included.
    fn check(&mut self) {
        self.pair.assert_running();
        self.flow.write_all(b"still here").unwrap();
        let mut answer = [0; 10];
        self.flow.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"still here");
    }

    fn opens(&self, listener: &TestListener) {
        let mut flow = listener.open(&self.origin.address().to_string()).unwrap();
        flow.write_all(b"x").unwrap();
        flow.read_exact(&mut [0]).unwrap();
    }

    fn errors(&self, parser: &str) -> f64 {
        let metrics = Metrics::fetch(self.pair.addresses.client_admin);
        metrics.sum("millrace_protocol_errors_total", &[("parser", parser)])
    }
}

#[test]
fn bad_proxy_headers() {
    let mut all = Bystander::start();
    let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 300]].concat();
    let v2 = b"\r\n\r\n\0\r\nQUIT\n";
    let cases: [Vec<u8>; 9] = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"PROXY TCP4 1.2.3.4 127.0.0.1 1 99999\r\n".to_vec(),
        b"PROXY TCP4 1.2.3.4 ::1 1 80\r\n".to_vec(),
        b"PROXY UDP4 1.2.3.4 127.0.0.1 1 80\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        long,
        // Version 3, a family that there is not, an address block that is too short.
        [v2.as_slice(), b"\x31\x11\0\x0c", &[0; 12]].concat(),
        [v2.as_slice(), b"\x21\x51\0\x0c", &[0; 12]].concat(),
        [v2.as_slice(), b"\x21\x11\0\x04", &[0; 12]].concat(),
    ];
    let listeners = [all.pair.listeners[3].clone(), all.pair.listeners[4].clone()];
    for listener in &listeners {
        let before = all.errors("proxy_protocol");
        for case in &cases {
            assert_eq!(all.say(listener, case), b"", "{listener:?} answered {case:02x?}");
        }
        all.opens(listener);
        // PROXY UNKNOWN is no error; it leads nowhere.
        assert!(all.errors("proxy_protocol") >= before + 8.0, "not all were counted");
    }
    all.pair.client.expect_log("a bad header", tcp::IO_TIMEOUT, |line| {
        line.contains("bad PROXY header").then_some(())
    });
}

#[test]
fn bad_socks_requests() {
    let mut all = Bystander::start();
    let listener = all.pair.listeners[2].clone();
    let before = all.errors("socks5");
    let reply = |code: u8| [&[5, 0, 5, code, 0, 1][..], &[0; 6]].concat();
    let cases: [(&[u8], Vec<u8>); 8] = [
        // SOCKS4, and HTTP: not our protocol, no answer in ours.
        (&[4, 1, 0, 80, 127, 0, 0, 1, 0], vec![]),
        (b"GET / HTTP/1.1\r\n\r\n", vec![]),
        // Password only, no method at all.
        (&[5, 1, 2], vec![5, 0xff]),
        (&[5, 0], vec![5, 0xff]),
        // BIND, UDP ASSOCIATE; an address type that there is not; a name that can't be one.
        (&[5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80], reply(7)),
        (&[5, 1, 0, 5, 3, 0, 1, 127, 0, 0, 1, 0, 80], reply(7)),
        (&[5, 1, 0, 5, 1, 0, 9, 127, 0, 0, 1, 0, 80], reply(8)),
        (&[5, 1, 0, 5, 1, 0, 3, 3, b'a', 0, b'b', 0, 80], reply(1)),
    ];
    let count = cases.len();
    for (case, answer) in cases {
        assert_eq!(all.say(&listener, case), answer, "to {case:02x?}");
    }
    all.opens(&listener);
    assert!(all.errors("socks5") >= before + count as f64, "not all were counted");
}

#[test]
fn bad_connect_requests() {
    let mut all = Bystander::start();
    let listener = all.pair.http().clone();
    let before = all.errors("http_connect");
    let huge = format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    let many = format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n{}\r\n", "X: y\r\n".repeat(1000));
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (
            "POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (
            "POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("CONNECT a:80 HTTP/1.1\r\n\r\n", 400),
        ("CONNECT nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:99999 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nbad field\r\n\r\n", 400),
        ("\u{0}\u{1}\u{2}\r\n\r\n", 400),
        (huge.as_str(), 431),
        (many.as_str(), 431),
    ];
    for (case, status) in &cases {
        let answer = String::from_utf8(all.say(&listener, case.as_bytes())).unwrap();
        let shown = &case[..case.len().min(60)];
        // The head that is too large may be reset before it has been said to the end.
        let cut_off = answer.is_empty() && case.len() > 1000;
        assert!(
            cut_off || answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "to {shown:?}: {answer:?}"
        );
    }
    all.opens(&listener);
    assert!(all.errors("http_connect") >= before + cases.len() as f64, "not all were counted");
}

#[test]
fn a_client_that_says_too_little_is_closed_in_time() {
    let mut all = Bystander::start();
    for (index, start) in [(1, "CONNECT"), (2, "\u{5}"), (3, "PROXY TCP4"), (4, "PROXY"), (1, "")] {
        let listener = all.pair.listeners[index].clone();
        let started = Instant::now();
        all.say(&listener, start.as_bytes());
        let took = started.elapsed();
        assert!(took > Duration::from_millis(900), "{listener:?} closed after {took:?} already");
        assert!(took < Duration::from_secs(5), "{listener:?} took {took:?}");
    }
    let failed = Metrics::fetch(all.pair.addresses.client_admin);
    assert!(
        failed.sum("millrace_flows_finished_total", &[("outcome", "handshake_timeout")]) >= 5.0
    );
}

/// Data that follows the handshake at once, in one segment, belongs to the flow.
#[test]
fn data_right_behind_the_handshake_is_not_lost() {
    let all = Bystander::start();
    let to = all.origin.address().to_string();
    let connect = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nearly");
    let mut http = all.pair.http().connect();
    http.write_all(connect.as_bytes()).unwrap();
    let head = millrace_e2e::listeners::read_head(&mut http).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut socks = all.pair.listeners[2].connect();
    let request = millrace_e2e::listeners::socks_request(&to);
    socks.write_all(&[&[5, 1, 0][..], &request, b"early"].concat()).unwrap();
    socks.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(millrace_e2e::listeners::read_socks_reply(&mut socks).unwrap(), 0);
    let mut v1 = all.pair.listeners[3].connect();
    v1.write_all(format!("{}early", millrace_e2e::listeners::proxy_v1(&to)).as_bytes()).unwrap();
    let mut v2 = all.pair.listeners[4].connect();
    v2.write_all(&[&millrace_e2e::listeners::proxy_v2(&to)[..], b"early"].concat()).unwrap();
    for mut flow in [http, socks, v1, v2] {
        let mut answer = [0; 5];
        flow.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"early");
    }
}

#[test]
fn the_log_names_the_client_of_a_bad_handshake() {
    let pair = Pair::builder().start();
    let mut socket = pair.listeners[1].connect();
    let client = socket.local_addr().unwrap().as_socket().unwrap();
    socket.write_all(b"\0\0\r\n\r\n").unwrap();
    tcp::drain(&socket);
    let field = format!("\"client\":\"{client}\"");
    pair.client.expect_log("the address of the client", DEFAULT_TIMEOUT, |line| {
        (line.contains("bad handshake") && line.contains(&field)).then_some(())
    });
}
