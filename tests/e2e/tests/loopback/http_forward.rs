//! Requests in absolute form (`GET http://host/path`) at the explicit HTTP listener, with curl and by hand.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::{TestListener, read_head, status_of};
use millrace_e2e::origin::{Blackhole, Origin};
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use socket2::Socket;

/// Longest time of one run of curl, in seconds.
const CURL_SECONDS: &str = "30";

/// An HTTP origin that keeps what it was sent, one entry a connection.
struct HttpOrigin {
    origin: Origin,
    requests: Arc<Mutex<Vec<String>>>,
}

impl HttpOrigin {
    /// Answers each request with `response`, once its head and `content` have come.
    fn start(content: &'static str, response: impl Into<Vec<u8>>) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, response) = (requests.clone(), response.into());
        let origin = Origin::start(move |mut stream| {
            let mut request = read_until(&mut stream, content);
            stream.write_all(&response).ok();
            stream.shutdown(Shutdown::Write).ok();
            let (rest, _) = tcp::drain(&stream);
            request.push_str(&String::from_utf8_lossy(&rest));
            kept.lock().unwrap().push(request);
        });
        Self { origin, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.origin.address())
    }

    /// What the first `count` connections have brought, once they have ended.
    fn requests(&self, count: usize) -> Vec<String> {
        let requests = || self.requests.lock().unwrap().clone();
        wait::for_true("the connections end", DEFAULT_TIMEOUT, || requests().len() >= count);
        requests()
    }
}

/// Reads a head and what follows it, until that ends with `content`.
fn read_until(stream: &mut Socket, content: &str) -> String {
    let mut request = read_head(stream).unwrap_or_default();
    let head_bytes = request.len();
    let mut byte = [0];
    while !request[head_bytes..].ends_with(content) && stream.read_exact(&mut byte).is_ok() {
        request.push(char::from(byte[0]));
    }
    request
}

fn ok(content: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len())
}

fn proxy_address(pair: &Pair) -> SocketAddr {
    match pair.http() {
        TestListener::Http(address) => *address,
        other => panic!("{other:?}"),
    }
}

/// What curl printed; it must succeed.
fn curl(pair: &Pair, arguments: &[&str]) -> String {
    let proxy = format!("http://{}", proxy_address(pair));
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            CURL_SECONDS,
            "--noproxy",
            "",
            "-x",
            &proxy,
        ])
        .args(arguments)
        .output()
        .expect("curl is installed");
    assert!(output.status.success(), "curl {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends `request` by hand, and answers the whole response and its end.
fn say(pair: &Pair, request: &str) -> (String, End) {
    let mut socket = pair.http().connect();
    socket.write_all(request.as_bytes()).unwrap();
    let (bytes, end) = tcp::drain(&socket);
    (String::from_utf8_lossy(&bytes).into_owned(), end)
}

#[test]
fn curl_gets_an_http_url_through_the_proxy() {
    let origin = HttpOrigin::start("", ok("hello"));
    let pair = Pair::builder().start();
    let got = curl(&pair, &["-i", &origin.url("/a?b=c")]);
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
    assert!(got.contains("\r\nVia: 1.1 millrace\r\n"), "{got}");
    assert!(got.ends_with("\r\n\r\nhello"), "{got}");
    let requests = origin.requests(1);
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let host = origin.origin.address();
    let start = format!("GET /a?b=c HTTP/1.1\r\nHost: {host}\r\n");
    assert!(request.starts_with(&start), "{request}");
    assert!(request.contains("\r\nVia: 1.1 millrace\r\nConnection: close\r\n\r\n"), "{request}");
    assert!(!request.to_ascii_lowercase().contains("proxy-connection"), "{request}");
}

#[test]
fn one_run_of_curl_reaches_two_origins_and_the_first_again() {
    let (one, other) = (HttpOrigin::start("", ok("one;")), HttpOrigin::start("", ok("other;")));
    let pair = Pair::builder().start();
    let got = curl(&pair, &[&one.url("/1"), &other.url("/2"), &one.url("/3")]);
    assert_eq!(got, "one;other;one;");
    let first_line = |request: &String| request.lines().next().unwrap_or_default().to_owned();
    // Connections end in any order.
    let lines = |origin: &HttpOrigin, count| {
        origin.requests(count).iter().map(first_line).collect::<BTreeSet<_>>()
    };
    let expected =
        |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(lines(&one, 2), expected(&["GET /1 HTTP/1.1", "GET /3 HTTP/1.1"]));
    assert_eq!(lines(&other, 1), expected(&["GET /2 HTTP/1.1"]));
}

#[test]
fn curl_posts_chunks_and_a_length() {
    let chunked = HttpOrigin::start("0\r\n\r\n", ok("taken"));
    let pair = Pair::builder().start();
    let url = chunked.url("/");
    let got =
        curl(&pair, &["-H", "Transfer-Encoding: chunked", "-H", "Expect:", "-d", "hello", &url]);
    assert_eq!(got, "taken");
    let requests = chunked.requests(1);
    assert!(requests[0].contains("\r\nTransfer-Encoding: chunked\r\n"), "{requests:?}");
    assert!(requests[0].ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{requests:?}");
    let length = HttpOrigin::start("hello", ok("taken"));
    assert_eq!(curl(&pair, &["-d", "hello", &length.url("/")]), "taken");
    let requests = length.requests(1);
    assert!(requests[0].contains("\r\nContent-Length: 5\r\n"), "{requests:?}");
}

#[test]
fn content_waits_for_100_continue_of_the_origin() {
    let origin = Origin::start(|mut stream| {
        let head = read_head(&mut stream).unwrap();
        assert!(head.contains("\r\nExpect: 100-continue\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut content = [0; 5];
        stream.read_exact(&mut content).unwrap();
        stream.write_all(ok(std::str::from_utf8(&content).unwrap()).as_bytes()).unwrap();
    });
    let pair = Pair::builder().start();
    let mut socket = pair.http().connect();
    let to = origin.address();
    write!(
        socket,
        "PUT http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    )
    .unwrap();
    assert_eq!(read_head(&mut socket).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"hello").unwrap();
    let (rest, end) = tcp::drain(&socket);
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("\r\n\r\nhello"), "{rest}");
    assert_eq!(end, End::Eof);
}

#[test]
fn responses_without_content_end_at_once() {
    let pair = Pair::builder().start();
    let head_only = HttpOrigin::start("", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    let got = curl(&pair, &["--head", &head_only.url("/")]);
    assert!(got.contains("\r\nContent-Length: 5\r\n"), "{got}");
    for status in ["204 No Content", "304 Not Modified"] {
        let origin = HttpOrigin::start("", format!("HTTP/1.1 {status}\r\n\r\n"));
        let got = curl(&pair, &["-i", &origin.url("/")]);
        assert!(got.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{got}");
    }
}

#[test]
fn large_content_arrives_whole_in_both_directions() {
    const BYTES: usize = 3_000_000;
    let origin = Origin::start(|mut stream| {
        read_head(&mut stream).unwrap();
        let mut content = vec![0; BYTES];
        stream.read_exact(&mut content).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").unwrap();
        stream.write_all(&content).unwrap();
    });
    let pair = Pair::builder().start();
    let sent: Vec<u8> = (0..BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut socket = pair.http().connect();
    let to = origin.address();
    write!(socket, "POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: {BYTES}\r\n\r\n")
        .unwrap();
    socket.write_all(&sent).unwrap();
    read_head(&mut socket).unwrap();
    let mut got = vec![0; BYTES];
    socket.read_exact(&mut got).unwrap();
    assert!(got == sent, "what came back is not what was sent");
    assert_eq!(tcp::drain(&socket), (vec![], End::Eof));
}

/// A second request on the connection must not reach the origin of the first, whatever its target.
#[test]
fn second_request_on_a_connection_reaches_no_origin() {
    let origin = HttpOrigin::start("hello", ok("first"));
    let pair = Pair::builder().start();
    let to = origin.origin.address();
    let (answer, end) = say(
        &pair,
        &format!(
            "POST http://{to}/1 HTTP/1.1\r\nHost: {to}\r\nContent-Length: 5\r\n\r\nhello\
             GET http://{to}/2 HTTP/1.1\r\nHost: {to}\r\n\r\n"
        ),
    );
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nfirst") && end == End::Eof, "{answer}");
    let requests = origin.requests(1);
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(!requests[0].contains("GET"), "{requests:?}");
}

#[test]
fn failures_are_answered_with_a_status_and_a_reason() {
    let closed = tcp::unused(Ipv4Addr::LOCALHOST);
    let dead = Blackhole::open();
    let silent = Origin::start(|mut stream| {
        read_head(&mut stream).ok();
    });
    let other = Origin::start(|mut stream| {
        read_head(&mut stream).ok();
        stream.write_all(b"220 mail.example ESMTP\r\n").ok();
        tcp::drain(&stream);
    });
    let pair =
        Pair::builder().server("dial.timeout_s", 1).server("dial.per_address_timeout_s", 1).start();
    for (target, status, error) in [
        (format!("http://{closed}/"), 502, "connection_refused"),
        (format!("http://{}/", dead.address()), 504, "connection_timeout"),
        ("http://198.18.0.1/".into(), 403, "http_request_denied"),
        ("http://no-such-host.invalid/".into(), 502, "dns_error"),
        (format!("http://{}/", silent.address()), 502, "connection_terminated"),
        (format!("http://{}/", other.address()), 502, "http_protocol_error"),
        ("https://origin.example/".into(), 400, "http_request_error"),
        ("ftp://origin.example/".into(), 400, "http_request_error"),
        ("/".into(), 400, "http_request_error"),
    ] {
        let (answer, end) = say(&pair, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!((status_of(&answer), end), (status, End::Eof), "{target}: {answer}");
        assert!(answer.contains(&format!("error={error}")), "{target}: {answer}");
        let (_, reason) = answer.split_once("\r\n\r\n").unwrap();
        assert!(reason.len() > 8 && reason.ends_with('\n'), "{target}: {reason:?}");
    }
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert_eq!(client.sum("millrace_flows_finished_total", &[("outcome", "refused")]), 1.0);
    assert_eq!(client.sum("millrace_flows_finished_total", &[("outcome", "denied")]), 1.0);
    wait::for_true("no flow is left", DEFAULT_TIMEOUT, || {
        Metrics::fetch(pair.addresses.client_admin).sum("millrace_flows_active", &[]) == 0.0
    });
}

#[test]
fn malformed_chunks_are_answered_with_400() {
    let origin = HttpOrigin::start("never", ok("x"));
    let pair = Pair::builder().start();
    let to = origin.origin.address();
    let head =
        format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\n\r\n");
    for content in ["x\r\n", "5\r\nhelloGET http://b/ HTTP/1.1\r\n\r\n", "5\nhello\r\n"] {
        let (answer, end) = say(&pair, &format!("{head}{content}"));
        assert_eq!((status_of(&answer), end), (400, End::Eof), "{content:?}: {answer}");
    }
    // A flow that fails at once may not reach the origin.
    let requests = origin.requests(0);
    assert!(requests.iter().all(|it| !it.contains("http://b/")), "{requests:?}");
}

/// What the origin has got must not look like a whole request.
#[test]
fn request_whose_client_goes_is_reset_at_the_origin() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let kept = ends.clone();
    let origin = Origin::start(move |stream| kept.lock().unwrap().push(tcp::drain(&stream).1));
    let pair = Pair::builder().start();
    let to = origin.address();
    let mut socket = pair.http().connect();
    write!(socket, "POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 9\r\n\r\nhalf")
        .unwrap();
    wait::for_true("the origin is connected", DEFAULT_TIMEOUT, || origin.accepted() == 1);
    socket.shutdown(Shutdown::Write).unwrap();
    wait::for_true("its end", DEFAULT_TIMEOUT, || !ends.lock().unwrap().is_empty());
    assert_eq!(*ends.lock().unwrap(), [End::Reset]);
}

#[test]
fn class_is_recognised_by_the_path() {
    let origin = HttpOrigin::start("", ok("x"));
    let pair = Pair::builder().start();
    curl(&pair, &[&origin.url("/video.mpd")]);
    let metrics = Metrics::fetch(pair.addresses.client_admin);
    assert_eq!(metrics.sum("millrace_flows_classified_total", &[("class", "dash")]), 1.0);
}

#[test]
fn requests_bypass_the_tunnel_by_the_same_list_as_connect() {
    let origin = HttpOrigin::start("hello", ok("direct"));
    let silent = Origin::start(|mut stream| {
        read_head(&mut stream).ok();
    });
    let mut pair = Pair::builder()
        .listener(1, "fail_mode = \"open\"")
        .direct_port("127.0.0.1/32", origin.origin.address().port())
        .direct_port("127.0.0.1/32", silent.address().port())
        .start();
    pair.server.kill();
    let to = origin.origin.address();
    let url = format!("http://{to}/");
    wait::for_true("flows bypass the tunnel", DEFAULT_TIMEOUT, || {
        let request =
            format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET {url}");
        say(&pair, &request).0.ends_with("\r\n\r\ndirect")
    });
    assert!(origin.requests(1).iter().all(|request| !request.contains("GET")));
    let (answer, _) =
        say(&pair, &format!("GET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n", silent.address()));
    assert!(answer.contains("error=connection_terminated"), "{answer}");
    let bad = format!("POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n");
    assert_eq!(status_of(&say(&pair, &bad).0), 400);
    let unlisted = tcp::unused(Ipv4Addr::LOCALHOST);
    let (answer, _) = say(&pair, &format!("GET http://{unlisted}/ HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_eq!(status_of(&answer), 403, "{answer}");
}
