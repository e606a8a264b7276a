use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use millrace_cc::Tuning;
use millrace_config::Class;
use millrace_mcc::RuleInput;
use millrace_mcc::rules::Choice;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use millrace_config::Admin;
use millrace_mcc::Explained;
use millrace_tunnel::cc_override::{CcOverride, CcOverrideError, CcOverrideResult};
use millrace_tunnel::ended_flows::{EndedFlow, EndedFlows};
use millrace_tunnel::flow_info::{ControllerInfo, FlowInfo, FlowState, PlayerInfo, QueueInfo};
use millrace_tunnel::metrics::{FlowFailure, FlowOutcome, Metrics};

use super::http::{HEAD_TIMEOUT, MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
use super::*;

fn flow() -> FlowInfo {
    FlowInfo {
        id: 7,
        connection: Some("0a0b".to_owned()),
        key_exchange: Some("X25519MLKEM768".to_owned()),
        client: "198.18.1.2:50000".to_owned(),
        destination: "198.18.3.2:80".to_owned(),
        class: Class::Dash,
        algorithm: Some("cubic".to_owned()),
        managed: true,
        switches: Some(2),
        since_switch_s: Some(1.5),
        bytes_up: 100,
        bytes_down: u64::MAX,
        age_s: 1.5,
        rate_mbps: 12.0,
        cwnd_bytes: Some(14_520),
        path_mtu_bytes: Some(1452),
        pacing_mbps: Some(10.0),
        controller: Some(ControllerInfo {
            state: "slow start".to_owned(),
            figures: [("window_packets".to_owned(), 10.0)].into(),
            delivery_mbps: 9.5,
            peak_delivery_mbps: 11.0,
            min_rtt_ms: Some(50.0),
            recent_loss: 0.0,
        }),
        loss: Some(0.01),
        player: Some(PlayerInfo {
            buffer_s: Some(12.5),
            bitrate_kbps: Some(3600),
            top_bitrate_kbps: Some(3600),
            session: Some("6e2f".to_owned()),
            age_s: 0.25,
            ..PlayerInfo::default()
        }),
        queue: Some(QueueInfo { held_s: 0.5, held_bytes: 90_000, dropped_frames: 25 }),
        state: FlowState::Open,
        ..FlowInfo::default()
    }
}

const PROGRAM: ProgramInfo = ProgramInfo { role: "server", version: "0.1.0 (0123456789ab)" };

pub(super) struct OneFlow;

impl FlowSource for OneFlow {
    fn flows(&self) -> Vec<FlowInfo> {
        vec![flow()]
    }

    fn ended_flows(&self) -> Vec<EndedFlow> {
        let ended = EndedFlows::default();
        ended.add(flow(), FlowFailure::IdleTimeout.into(), Instant::now());
        ended.list(Instant::now())
    }

    fn override_cc(
        &self,
        connection: &str,
        change: &CcOverride,
    ) -> Result<CcOverrideResult, CcOverrideError> {
        match (connection, change) {
            ("0a0b", CcOverride::Set(to)) if to.name() == "bbr2" => {
                Err(CcOverrideError::Irreplaceable { from: "cubic", to: "bbr2" })
            }
            ("0a0b", CcOverride::Set(to)) => {
                Ok(CcOverrideResult { algorithm: to.name(), pinned: true })
            }
            ("0a0b", CcOverride::Clear) => {
                Ok(CcOverrideResult { algorithm: "cubic", pinned: false })
            }
            ("0a0b", CcOverride::Tune(Tuning::Share(share))) if *share <= 1.0 => {
                Ok(CcOverrideResult { algorithm: "vivace-weighted", pinned: false })
            }
            ("0a0b", CcOverride::Tune(tuning)) => Err(CcOverride::untunable(*tuning, "cubic")),
            _ => Err(CcOverrideError::NoConnection),
        }
    }

    fn explain(&self, connection: &str) -> Option<Explained> {
        let choice = Choice { algorithm: "bbr".to_owned(), reason: Some("lossy".to_owned()) };
        let explained =
            || Explained { input: RuleInput::default(), choice: Some(choice), problem: None };
        (connection == "0a0b").then(explained)
    }
}

#[test]
fn the_algorithm_of_a_connection_can_be_set_by_hand() {
    let fixture = start(Box::new(OneFlow));
    let ask = |method: &str, rest: &str| {
        let path = format!("/congestion_control/{rest}");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (status, _, body) = send(&fixture.server, &request);
        (status, body)
    };
    let json = |algorithm: &str, pinned: bool| {
        (200, format!("{{\"algorithm\":\"{algorithm}\",\"pinned\":{pinned}}}"))
    };
    assert_eq!(ask("PUT", "0a0b?algorithm=vivace"), json("vivace-latency", true));
    assert_eq!(ask("DELETE", "0a0b"), json("cubic", false));
    assert_eq!(ask("PUT", "0a0b?share=0.25"), json("vivace-weighted", false));
    let (status, explained) = ask("GET", "0a0b");
    assert!(status == 200 && explained.contains("\"reason\":\"lossy\""), "{explained}");
    for (method, rest, status, said) in [
        ("PUT", "0a0b?algorithm=fast", 400, "vivace-latency"),
        ("PUT", "0a0b?algorithm=constant", 400, "rate_mbps"),
        ("PUT", "0A0B?algorithm=bbr", 400, "hexadecimal"),
        ("PUT", "0c?algorithm=bbr", 404, "no such connection"),
        ("PUT", "0a0b?algorithm=bbr2", 409, "cubic can't be replaced by bbr2"),
        ("PUT", "0a0b", 405, "?algorithm=NAME"),
        ("DELETE", "0a0b?algorithm=bbr", 405, "DELETE without"),
        ("POST", "0a0b?algorithm=bbr", 405, "PUT"),
        ("GET", "0c", 404, "no rules"),
        ("GET", "0a0b?x=1", 405, "PUT"),
        ("PUT", "0a0b?share=2", 409, "cubic does not take share"),
        ("PUT", "0a0b?share=much", 400, "\"much\" is no number"),
        ("PUT", "0a0b?yield_above_mbps=4", 409, "proteus-h"),
        ("PUT", "0a0b?window=4", 400, "?yield_above_mbps=R"),
    ] {
        let answer = ask(method, rest);
        assert_eq!(answer.0, status, "{method} {rest}");
        assert!(answer.1.contains(said), "{method} {rest}: {}", answer.1);
    }
}

pub(super) struct Fixture {
    pub(super) server: AdminServer,
    metrics: Arc<Metrics>,
    healthy: Arc<AtomicBool>,
}

fn start(flows: Box<dyn FlowSource>) -> Fixture {
    start_for(flows, &[])
}

fn start_for(flows: Box<dyn FlowSource>, origins: &[&str]) -> Fixture {
    let origins = origins.iter().map(|origin| origin.parse().unwrap()).collect();
    let access = Access { origins, ..Access::default() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    start_bound(flows, BoundListener { listener, access })
}

/// On an address of this host off loopback, as `edge.example`; `None` where it has none.
fn start_remote(token: &str) -> Option<Fixture> {
    let elsewhere = "192.0.2.1:9".parse().unwrap();
    let own = millrace_tunnel::source_address::source_address(elsewhere)
        .ok()
        .filter(|ip| !ip.is_loopback())?;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{token}").unwrap();
    let config = Admin {
        address: Some(SocketAddr::new(own, 0)),
        qlog_dir: None,
        qlog_max_bytes: 0,
        cors_allow_origins: Vec::new(),
        allowed_hosts: vec!["edge.example".to_owned()],
        token_file: Some(file.path().to_owned()),
    };
    Some(start_bound(Box::new(OneFlow), bind(&config).unwrap().unwrap()))
}

pub(super) fn start_bound(flows: Box<dyn FlowSource>, bound: BoundListener) -> Fixture {
    let metrics = Metrics::new("millrace-test", "0").unwrap();
    let healthy = Arc::new(AtomicBool::new(true));
    let is_healthy = Arc::clone(&healthy);
    let health: HealthSource = Box::new(move || {
        if is_healthy.load(Ordering::Relaxed) {
            Health::Healthy
        } else {
            Health::Unhealthy("no server answers".to_owned())
        }
    });
    let liveness: HealthSource = Box::new(|| Health::Healthy);
    let shown = Arc::clone(&metrics);
    let server =
        AdminServer::start(bound, PROGRAM, shown, flows, Checks { health, liveness }).unwrap();
    Fixture { server, metrics, healthy }
}

/// Sends `request` and reads to the end: status, head and body.
pub(super) fn send(server: &AdminServer, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // What the server refuses, it need not read to the end.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn get(server: &AdminServer, path: &str) -> (u16, String, String) {
    send(server, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address()))
}

#[test]
fn metrics_are_served_as_they_are() {
    let fixture = start(Box::new(OneFlow));
    fixture.metrics.flows_opened.inc_by(3);
    let (status, head, body) = get(&fixture.server, "/metrics?x=1");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\nmillrace_flows_opened_total 3\n"), "{body}");
}

#[test]
fn flows_are_served_as_json() {
    let fixture = start(Box::new(OneFlow));
    let (status, head, body) = get(&fixture.server, "/flows");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/json"), "{head}");
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    let flows: Vec<FlowInfo> = serde_json::from_value(json["flows"].clone()).unwrap();
    assert_eq!(flows, [flow()]);
    assert_eq!(json["flows"][0]["class"], "dash");
    assert_eq!(json["flows"][0]["state"], "open");
}

#[test]
fn status_says_what_the_process_is_its_health_totals_and_ended_flows() {
    let fixture = start(Box::new(OneFlow));
    fixture.metrics.flows_opened.inc_by(5);
    fixture.metrics.flows_finished.of(FlowOutcome::Complete).inc_by(3);
    fixture.metrics.flows_finished.of(FlowFailure::Refused.into()).inc();
    fixture.metrics.worker().bytes_down.add(1000);
    let status = || -> serde_json::Value {
        let (status, head, body) = get(&fixture.server, "/status");
        assert_eq!(status, 200);
        assert!(head.contains("content-type: application/json"), "{head}");
        serde_json::from_str(&body).unwrap()
    };
    let shown = status();
    assert_eq!((&shown["role"], &shown["version"]), (&"server".into(), &PROGRAM.version.into()));
    assert_eq!((&shown["healthy"], &shown["problem"]), (&true.into(), &serde_json::Value::Null));
    assert!(shown["uptime_s"].as_f64().is_some_and(|uptime| uptime >= 0.0), "{shown}");
    let totals = &shown["totals"];
    assert_eq!((&totals["flows_opened"], &totals["flows_complete"]), (&5.into(), &3.into()));
    assert_eq!(totals["flows_failed"], serde_json::json!({"refused": 1}));
    assert_eq!((&totals["bytes_up"], &totals["bytes_down"]), (&0.into(), &1000.into()));
    let ended = &shown["ended_flows"][0];
    assert_eq!(
        (&ended["destination"], &ended["outcome"]),
        (&flow().destination.into(), &"idle_timeout".into())
    );
    assert!(shown["algorithms"].as_array().unwrap().contains(&"cubic".into()), "{shown}");

    fixture.healthy.store(false, Ordering::Relaxed);
    let shown = status();
    assert_eq!(
        (&shown["healthy"], &shown["problem"]),
        (&false.into(), &"no server answers".into())
    );
    let (status, _, _) = send(&fixture.server, "POST /status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status, 405);
}

#[test]
fn a_player_can_be_asked_about_alone() {
    let fixture = start(Box::new(OneFlow));
    let flows = |query: &str| {
        let (status, _, body) = get(&fixture.server, &format!("/flows?{query}"));
        assert_eq!(status, 200, "{query}: {body}");
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        json["flows"].as_array().unwrap().len()
    };
    assert_eq!(flows("session=6e2f"), 1);
    assert_eq!(flows("session=6e2"), 0);
    let too_long = format!("session={}", "a".repeat(65));
    for wrong in ["session=", "session=a&b=c", "session=%20", "sid=6e2f", &too_long] {
        let (status, _, body) = get(&fixture.server, &format!("/flows?{wrong}"));
        assert_eq!(status, 400, "{wrong}");
        assert!(body.contains("session=NAME"), "{body}");
    }
}

#[test]
fn the_page_has_all_its_files_and_lets_nothing_in() {
    let fixture = start(Box::new(OneFlow));
    let (status, head, page) = get(&fixture.server, "/");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    // Each file that the page names, and each that those name.
    let mut files: Vec<_> =
        ["dashboard.js", "dashboard.css", "theme.css"].map(str::to_owned).into();
    for name in &files {
        assert!(page.contains(&format!("\"{name}\"")), "the page uses {name}");
    }
    let mut next = 0;
    while let Some(name) = files.get(next).cloned() {
        let (status, head, text) = get(&fixture.server, &format!("/{name}"));
        assert_eq!(status, 200, "{name}");
        let expected = if name.ends_with(".js") { "text/javascript" } else { "text/css" };
        assert!(head.contains(&format!("content-type: {expected}")), "{name}: {head}");
        let imported = text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next());
        for import in imported.map(str::to_owned) {
            if !files.contains(&import) {
                files.push(import);
            }
        }
        next += 1;
    }
    assert!(files.len() > 5, "{files:?}");
}

#[test]
fn health_follows_the_check() {
    let fixture = start(Box::new(OneFlow));
    assert_eq!(get(&fixture.server, "/healthz").0, 200);
    fixture.healthy.store(false, Ordering::Relaxed);
    let (status, _, body) = get(&fixture.server, "/healthz");
    assert_eq!((status, body.as_str()), (503, "no server answers\n"));
}

#[test]
fn what_is_no_request_of_ours_gets_the_right_status() {
    let fixture = start(Box::new(OneFlow));
    let server = &fixture.server;
    assert_eq!(get(server, "/dashboard.html").0, 404);
    assert_eq!(get(server, "/metrics/").0, 404);
    let (status, head, _) = send(server, "POST /flows HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    for request in ["nonsense\r\n\r\n", "GET /metrics HTTP/1.1\r\nbad field\r\n\r\n"] {
        assert_eq!(send(server, request).0, 400, "{request}");
    }
    let (status, head, body) = send(server, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: "), "{head}");
    assert_eq!(get(server, "/healthz").0, 200);
}

#[test]
fn a_foreign_name_that_leads_here_is_refused() {
    let fixture = start(Box::new(OneFlow));
    let cases = [
        ("evil.example.net", 421),
        ("localhost.evil.example.net", 421),
        ("localhost", 200),
        ("127.0.0.1:9464", 200),
        ("[::1]:9464", 200),
    ];
    for (host, expected) in cases {
        let request = format!("GET /flows HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(send(&fixture.server, &request).0, expected, "{host}");
    }
}

#[test]
fn only_pages_of_listed_origins_may_read_the_flows() {
    const LISTED: &str = "http://198.18.3.2";
    let fixture = start_for(Box::new(OneFlow), &["https://a.example", LISTED]);
    let ask = |method: &str, path: &str, fields: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        let (status, head, _) = send(&fixture.server, &request);
        let value = |name: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|value| value.trim().to_owned())
        };
        (status, value("access-control-allow-origin:"), value("vary:"))
    };
    let origin = |origin: &str| format!("Origin: {origin}\r\n");
    let vary = Some("origin".to_owned());

    let shared = (200, Some(LISTED.to_owned()), vary.clone());
    assert_eq!(ask("GET", "/flows", &origin(LISTED)), shared);
    let others =
        ["http://198.18.3.2:8080", "https://198.18.3.2", "http://198.18.3.20", "null", "*", ""];
    for other in others {
        assert_eq!(ask("GET", "/flows", &origin(other)), (200, None, vary.clone()), "{other}");
    }
    let twice = origin(LISTED).repeat(2);
    assert_eq!(ask("GET", "/flows", &twice), (200, None, vary.clone()));
    assert_eq!(ask("GET", "/flows", ""), (200, None, vary));
    for (method, path, status) in [
        ("HEAD", "/flows", 200),
        ("OPTIONS", "/flows", 405),
        ("GET", "/metrics", 200),
        ("GET", "/status", 200),
        ("GET", "/healthz", 200),
        ("GET", "/", 200),
        ("GET", "/qlog", 403),
    ] {
        assert_eq!(ask(method, path, &origin(LISTED)), (status, None, None), "{method} {path}");
    }

    let closed = start(Box::new(OneFlow));
    let request = format!("GET /flows HTTP/1.1\r\nHost: localhost\r\n{}\r\n", origin(LISTED));
    assert!(!send(&closed.server, &request).1.contains("access-control"));
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let fixture = start(Box::new(OneFlow));
    let long = "x".repeat(2 * MAX_HEAD_BYTES);
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    assert_eq!(send(&fixture.server, &request).0, 431);
    let many = "X: y\r\n".repeat(MAX_HEAD_FIELDS + 1);
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert_eq!(send(&fixture.server, &request).0, 431);
}

/// More silent connections than there are places.
#[test]
fn silent_clients_do_not_keep_others_out() {
    let fixture = start(Box::new(OneFlow));
    let silent: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    for path in ["/healthz", "/livez", "/metrics"] {
        let started = Instant::now();
        assert_eq!(get(&fixture.server, path).0, 200);
        assert!(started.elapsed() < HEAD_TIMEOUT / 2, "{path}: {:?}", started.elapsed());
    }
    drop(silent);
}

/// Requests that take long have all places.
#[test]
fn health_checks_are_answered_while_all_places_are_taken() {
    let fixture = start(Box::new(SlowFlows));
    let address = fixture.server.address();
    let busy: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /flows HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    for path in ["/healthz", "/livez"] {
        assert_eq!(get(&fixture.server, path).0, 200, "{path}");
    }
    assert!(started.elapsed() < Duration::from_millis(450), "{:?}", started.elapsed());
    let statuses: Vec<_> = busy
        .into_iter()
        .map(|mut stream| {
            let mut head = [0; 12];
            stream.read_exact(&mut head).unwrap();
            String::from_utf8_lossy(&head[9..]).into_owned()
        })
        .collect();
    assert!(statuses.contains(&"503".to_owned()), "{statuses:?}");
}

#[test]
fn a_request_has_exactly_one_host_field() {
    let fixture = start(Box::new(OneFlow));
    for (fields, status) in [
        ("", 400),
        ("Host: localhost\r\nHost: localhost\r\n", 400),
        ("Host: localhost\r\nHost: evil.example\r\n", 400),
        ("Host: \r\n", 421),
        ("Host: localhost\r\n", 200),
    ] {
        let request = format!("GET /flows HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(send(&fixture.server, &request).0, status, "{fields:?}");
    }
}

#[test]
fn off_loopback_a_request_shows_its_host_and_the_token() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let Some(fixture) = start_remote(TOKEN) else { return };
    let address = fixture.server.address();
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let ask = |method: &str, path: &str, host: &str, fields: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        send(&fixture.server, &request).0
    };
    let own = address.to_string();
    for path in ["/flows", "/status", "/metrics", "/qlog", "/congestion_control/0a0b"] {
        assert_eq!(ask("GET", path, "evil.example", &bearer), 421, "{path}");
        assert_eq!(ask("PUT", path, "evil.example", &bearer), 421, "{path}");
        assert_eq!(ask("GET", path, "localhost", &bearer), 421, "{path}");
        assert_eq!(ask("GET", path, "198.18.9.9", &bearer), 421, "{path}");
        assert_eq!(ask("GET", path, &own, ""), 401, "{path}");
        assert_eq!(ask("PUT", path, "edge.example", ""), 401, "{path}");
        let wrong = bearer.replace("ef\r", "ee\r");
        assert_eq!(ask("GET", path, &own, &wrong), 401, "{path}");
        assert_eq!(ask("GET", path, &own, &bearer.repeat(2)), 401, "{path}");
        assert!(![401, 421].contains(&ask("GET", path, &own, &bearer)), "{path}");
    }
    assert_eq!(ask("GET", "/flows", "EDGE.example:9464", &bearer), 200);
    assert_eq!(ask("GET", "/flows", &own, &bearer.replace("Bearer", "bearer")), 200);
    for path in ["/healthz", "/livez", "/", "/dashboard.js"] {
        assert_eq!(ask("GET", path, "edge.example", ""), 200, "{path}");
        assert_eq!(ask("GET", path, "evil.example", ""), 421, "{path}");
    }
    assert_eq!(send(&fixture.server, "GET /healthz HTTP/1.0\r\n\r\n").0, 400);
}

struct SlowFlows;

impl FlowSource for SlowFlows {
    fn flows(&self) -> Vec<FlowInfo> {
        std::thread::sleep(Duration::from_millis(500));
        Vec::new()
    }
}

#[test]
fn slow_flows_delay_nothing_else() {
    let fixture = start(Box::new(SlowFlows));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| get(&fixture.server, "/flows"));
        let started = Instant::now();
        while !slow.is_finished() && started.elapsed() < Duration::from_millis(300) {
            let one = Instant::now();
            assert_eq!(get(&fixture.server, "/healthz").0, 200);
            assert!(one.elapsed() < Duration::from_millis(250), "{:?}", one.elapsed());
        }
        assert_eq!(
            slow.join().unwrap().2,
            "{\"flows\":[],\"matching\":0,\"active\":0,\"rate_mbps\":0.0}"
        );
    });
}

#[test]
fn dropping_it_frees_the_address() {
    let fixture = start(Box::new(OneFlow));
    let address = fixture.server.address();
    drop(fixture);
    TcpStream::connect(address).unwrap_err();
}
