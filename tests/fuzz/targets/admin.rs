//! The admin listener. Each request of the input has a connection of its own; traces and congestion control keep
//! their state from one request to the next.
//!
//! Every answer is whole and has a documented status. Flows and connections are read and changed only by requests
//! that name this machine and show the token, and changed only by PUT and DELETE. The listener goes on.
#![no_main]

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use millrace_cc::Tuning;
use millrace_config::{Admin, Class};
use millrace_mcc::{Explained, RuleInput};
use millrace_ops::admin;
use millrace_ops::admin::{AdminServer, Checks, FlowSource, Health, ProgramInfo};
use millrace_tunnel::cc_override::{CcOverride, CcOverrideError, CcOverrideResult};
use millrace_tunnel::ended_flows::{EndedFlow, EndedFlows};
use millrace_tunnel::flow_info::{FlowInfo, FlowState};
use millrace_tunnel::metrics::{FlowOutcome, Metrics};
use millrace_tunnel::qlog::{QlogError, TraceInfo};

/// Separates the requests of an input.
const SEPARATOR: u8 = 0xff;
const MAX_REQUESTS: usize = 8;
/// Fields of a request's head that the listener reads.
const MAX_FIELDS: usize = 64;
/// An answer takes far less, also on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Then a client that waits for an answer ends its direction.
const READ_TIMEOUT: Duration = Duration::from_millis(500);
/// The largest file of the dashboard, with a margin.
const MAX_ANSWER_BYTES: usize = 1 << 20;
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const ALLOWED_HOST: &str = "edge.example";
const CONNECTIONS: [&str; 2] = ["0a0b", "0c0d"];
const MAX_TRACES: usize = 1;
const STATUSES: [u16; 11] = [200, 400, 401, 403, 404, 405, 409, 421, 429, 431, 503];

/// What a listener's requests read and change.
#[derive(Default)]
struct Site {
    has_qlog_dir: bool,
    is_healthy: AtomicBool,
    reads: AtomicUsize,
    changes: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    traced: BTreeSet<String>,
    pinned: Option<&'static str>,
}

impl Site {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reset(&self, is_healthy: bool) {
        *self.state() = State::default();
        self.is_healthy.store(is_healthy, Relaxed);
    }
}

struct Flows(Arc<Site>);

impl FlowSource for Flows {
    fn flows(&self) -> Vec<FlowInfo> {
        self.0.reads.fetch_add(1, Relaxed);
        let pinned = self.0.state().pinned;
        CONNECTIONS.map(|connection| flow(connection, pinned)).into()
    }

    fn ended_flows(&self) -> Vec<EndedFlow> {
        self.0.reads.fetch_add(1, Relaxed);
        let (ended, now) = (EndedFlows::default(), Instant::now());
        ended.add(flow(CONNECTIONS[0], None), FlowOutcome::Complete, now);
        ended.list(now)
    }

    fn traces(&self) -> Result<Vec<TraceInfo>, QlogError> {
        self.0.reads.fetch_add(1, Relaxed);
        if !self.0.has_qlog_dir {
            return Err(QlogError::NotConfigured);
        }
        let info = |connection: &String| TraceInfo {
            connection: connection.clone(),
            file: PathBuf::from(connection),
            bytes: 7,
            left_out_bytes: 0,
        };
        Ok(self.0.state().traced.iter().map(info).collect())
    }

    fn trace(&self, connection: &str, on: bool) -> Result<PathBuf, QlogError> {
        self.0.changes.fetch_add(1, Relaxed);
        if !self.0.has_qlog_dir {
            return Err(QlogError::NotConfigured);
        }
        if !CONNECTIONS.contains(&connection) {
            return Err(QlogError::NoConnection);
        }
        let traced = &mut self.0.state().traced;
        match (on, traced.contains(connection)) {
            (true, true) => return Err(QlogError::Running),
            (true, false) if traced.len() == MAX_TRACES => return Err(QlogError::TooMany),
            (true, false) => drop(traced.insert(connection.to_owned())),
            (false, true) => drop(traced.remove(connection)),
            (false, false) => return Err(QlogError::NotRunning),
        }
        Ok(PathBuf::from(connection))
    }

    fn override_cc(
        &self,
        connection: &str,
        change: &CcOverride,
    ) -> Result<CcOverrideResult, CcOverrideError> {
        self.0.changes.fetch_add(1, Relaxed);
        if !CONNECTIONS.contains(&connection) {
            return Err(CcOverrideError::NoConnection);
        }
        let pinned = &mut self.0.state().pinned;
        match change {
            CcOverride::Set(to) if to.name() == "bbr2" => {
                return Err(CcOverrideError::Irreplaceable { from: "cubic", to: "bbr2" });
            }
            CcOverride::Set(to) => *pinned = Some(to.name()),
            CcOverride::Clear => *pinned = None,
            CcOverride::Tune(Tuning::Share(share)) if *share > 0.0 && *share <= 1.0 => {}
            CcOverride::Tune(_) => {
                let (asked, able) = ("share", "vivace-weighted");
                return Err(CcOverrideError::Untunable { algorithm: "cubic", asked, able });
            }
        }
        Ok(CcOverrideResult { algorithm: pinned.unwrap_or("cubic"), pinned: pinned.is_some() })
    }

    fn explain(&self, connection: &str) -> Option<Explained> {
        self.0.reads.fetch_add(1, Relaxed);
        let explained = Explained { input: RuleInput::default(), choice: None, problem: None };
        (connection == CONNECTIONS[0]).then_some(explained)
    }
}

fn flow(connection: &str, pinned: Option<&str>) -> FlowInfo {
    FlowInfo {
        id: 7,
        connection: Some(connection.to_owned()),
        client: "198.18.1.2:50000".to_owned(),
        destination: "198.18.3.2:80".to_owned(),
        class: Class::Dash,
        algorithm: Some(pinned.unwrap_or("cubic").to_owned()),
        pinned: pinned.is_some(),
        managed: true,
        bytes_up: 100,
        bytes_down: u64::MAX,
        age_s: 1.5,
        rate_mbps: 12.0,
        state: FlowState::Open,
        ..FlowInfo::default()
    }
}

struct Listener {
    server: AdminServer,
    site: Arc<Site>,
    has_token: bool,
}

impl Listener {
    /// One with a token, allowed hosts and origins and a directory for traces, or one with none of them.
    fn start(is_restricted: bool) -> anyhow::Result<Self> {
        let file = std::env::temp_dir().join(format!("millrace-fuzz-{}", std::process::id()));
        if is_restricted {
            let mut options = std::fs::OpenOptions::new();
            options
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(&file)?
                .write_all(TOKEN.as_bytes())?;
        }
        let config = Admin {
            address: Some("127.0.0.1:0".parse()?),
            qlog_dir: None,
            qlog_max_bytes: 0,
            cors_allow_origins: match is_restricted {
                true => vec!["https://player.example".parse()?],
                false => Vec::new(),
            },
            allowed_hosts: match is_restricted {
                true => vec![ALLOWED_HOST.to_owned()],
                false => Vec::new(),
            },
            token_file: is_restricted.then(|| file.clone()),
        };
        let bound = admin::bind(&config)?.expect("the address is set");
        if is_restricted {
            std::fs::remove_file(file)?;
        }
        let site = Arc::new(Site { has_qlog_dir: is_restricted, ..Site::default() });
        let checked = Arc::clone(&site);
        let health = Box::new(move || match checked.is_healthy.load(Relaxed) {
            true => Health::Healthy,
            false => Health::Unhealthy("no server answers".to_owned()),
        });
        let checks = Checks { health, liveness: Box::new(|| Health::Healthy) };
        let flows = Box::new(Flows(Arc::clone(&site)));
        let program = ProgramInfo { role: "server", version: "0" };
        let metrics = Metrics::new("millrace-fuzz", "0")?;
        let server = AdminServer::start(bound, program, metrics, flows, checks)?;
        Ok(Self { server, site, has_token: is_restricted })
    }

    /// The answer, and whether it ended without a reset: a listener that closes before it has read everything
    /// resets the connection (RFC 1122, Section 4.2.2.13).
    fn ask(&self, bytes: &[u8], is_whole: bool) -> (Vec<u8>, bool) {
        let mut stream = connect(&self.server);
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("the timeout is not zero");
        // The listener need not read all of a request that it refuses.
        stream.write_all(bytes).ok();
        if !is_whole {
            stream.shutdown(Shutdown::Write).ok();
        }
        let mut answer = Vec::new();
        let mut read = read_to_end(&mut stream, &mut answer);
        if is_timeout(&read) {
            stream.shutdown(Shutdown::Write).ok();
            stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("the timeout is not zero");
            read = read_to_end(&mut stream, &mut answer);
        }
        assert!(!is_timeout(&read), "the answer does not end");
        assert!(answer.len() <= MAX_ANSWER_BYTES);
        (answer, read.is_ok())
    }
}

fn connect(server: &AdminServer) -> TcpStream {
    // All ports may be in TIME-WAIT for a moment.
    for _ in 0..200 {
        match TcpStream::connect(server.address()) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected => return connected.expect("the listener goes on"),
        }
    }
    panic!("no port is free");
}

fn read_to_end(stream: &mut TcpStream, answer: &mut Vec<u8>) -> io::Result<usize> {
    let most = (MAX_ANSWER_BYTES + 1 - answer.len()) as u64;
    stream.take(most).read_to_end(answer)
}

fn is_timeout(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// A request's head, as the listener's parser reads it.
struct Head {
    method: String,
    target: String,
    is_http_1_1: bool,
    hosts: Vec<Vec<u8>>,
    authorizations: Vec<Vec<u8>>,
}

impl Head {
    /// `Ok(None)` when it is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        if request.parse(bytes)?.is_partial() {
            return Ok(None);
        }
        let values = |name: &str| -> Vec<Vec<u8>> {
            let named = request.headers.iter().filter(|it| it.name.eq_ignore_ascii_case(name));
            named.map(|it| it.value.to_vec()).collect()
        };
        Ok(Some(Self {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            is_http_1_1: request.version == Some(1),
            hosts: values("host"),
            authorizations: values("authorization"),
        }))
    }

    fn names_this_machine(&self) -> bool {
        let authority = self
            .target
            .split_once("://")
            .map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default().as_bytes());
        let by_field = match &*self.hosts {
            [] => return !self.is_http_1_1,
            [host] => is_this_machine(host),
            _ => false,
        };
        by_field && authority.is_none_or(is_this_machine)
    }

    fn shows_the_token(&self) -> bool {
        let [value] = &*self.authorizations else { return false };
        let Some(value) = std::str::from_utf8(value).ok() else { return false };
        value
            .split_once(' ')
            .is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("Bearer") && token == TOKEN)
    }
}

fn is_this_machine(authority: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(authority) else { return false };
    let host_and_port = text.rsplit('@').next().unwrap_or_default();
    let host = match host_and_port.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host_and_port.split(':').next(),
    };
    let host = host.unwrap_or_default().to_ascii_lowercase();
    host == "localhost" || host == ALLOWED_HOST || host.parse::<IpAddr>().is_ok()
}

/// Sends a request and checks its answer.
fn check(listener: &Listener, bytes: &[u8]) {
    let parsed = Head::parse(bytes);
    listener.site.reads.store(0, Relaxed);
    listener.site.changes.store(0, Relaxed);
    let (answer, is_complete) = listener.ask(bytes, !matches!(parsed, Ok(None)));
    let head = parsed.ok().flatten();

    let is_allowed = head.as_ref().is_some_and(|head| {
        head.names_this_machine() && (!listener.has_token || head.shows_the_token())
    });
    let is_change = head.as_ref().is_some_and(|it| ["PUT", "DELETE"].contains(&&*it.method));
    let reads = listener.site.reads.load(Relaxed);
    let changes = listener.site.changes.load(Relaxed);
    assert!(reads == 0 || is_allowed, "a request reads what it may not");
    assert!(changes == 0 || is_allowed && is_change, "a request changes what it may not");
    assert!(reads + changes <= 1, "one request has one effect");
    if answer.is_empty() {
        return;
    }

    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(&answer).expect("the answer is HTTP");
    let httparse::Status::Complete(body_at) = parsed else { panic!("the answer's head is cut") };
    let status = response.code.expect("an answer has a status");
    assert!(STATUSES.contains(&status), "{status}");
    let value = |name: &str| {
        let mut named = response.headers.iter().filter(|it| it.name.eq_ignore_ascii_case(name));
        let value = named.next().map(|it| std::str::from_utf8(it.value).expect("it is ASCII"));
        assert!(named.next().is_none(), "{name} is there twice");
        value
    };
    let length: usize = value("content-length").expect("a length").parse().expect("a number");
    let is_head = head.as_ref().is_some_and(|it| it.method == "HEAD");
    let body = &answer[body_at..];
    let expected = if is_head { 0 } else { length };
    assert!(body.len() == expected || !is_complete && body.len() < expected, "the body is cut");

    let content_type = value("content-type").unwrap_or_default();
    let is_public = content_type != "application/json" && !content_type.contains("version=0.0.4");
    assert!(is_public || is_allowed, "a request reads what it may not");
    assert!(status != 200 || head.is_some_and(|head| head.names_this_machine()));
    if let Some(origin) = value("access-control-allow-origin") {
        assert!(listener.has_token && origin == "https://player.example");
    }
}

static LISTENERS: LazyLock<[Listener; 2]> =
    LazyLock::new(|| [false, true].map(|it| Listener::start(it).expect("a listener starts")));

fuzz_target!(|input: &[u8]| {
    // Bit 0: the restricted listener. Bit 1: the process is unhealthy.
    let Some((&first, requests)) = input.split_first() else { return };
    let listener = &LISTENERS[usize::from(first & 1)];
    let is_healthy = first & 2 == 0;
    listener.site.reset(is_healthy);
    for request in requests.split(|byte| *byte == SEPARATOR).take(MAX_REQUESTS) {
        check(listener, request);
    }
    let (answer, _) = listener.ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
    let expected: &[u8] = if is_healthy { b"HTTP/1.1 200 " } else { b"HTTP/1.1 503 " };
    assert!(answer.starts_with(expected), "the listener goes on");
});
