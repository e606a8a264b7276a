//! No server, or all are full: new flows bypass the tunnel within two seconds and return to it
//! within two seconds, and where another proxy stands before the client it is refused.

use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::data;
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::test_lock::Kind;
use millrace_e2e::wait;
use socket2::Socket;

const DOWNLOADS: usize = 50;
/// A rate at which the machine has time for other things.
const SLOW: &str = "{ name = \"constant\", rate_mbps = 40 }";
/// Longest time until new flows take the other way (docs/operate/failover.md).
pub(crate) const MAX_SWITCH_TIME: Duration = Duration::from_secs(2);
/// What polling adds on a busy machine.
pub(crate) const POLL_MARGIN: Duration = Duration::from_millis(500);

/// `http_connect` and `proxy_protocol` go direct, the Unix socket withdraws.
pub(crate) fn builder() -> PairBuilder {
    Pair::builder()
        .both("tunnel.congestion_control", SLOW)
        .listener(1, "fail_mode = \"open\"")
        .listener(3, "fail_mode = \"open\"")
        .direct("127.0.0.0/8")
        .in_turn_of(Kind::Few)
}

/// Downloads that do not end by themselves, all of them known to move.
pub(crate) struct Downloads {
    stop: Arc<AtomicBool>,
    flows: Vec<JoinHandle<Option<End>>>,
    _origin: Origin,
}

impl Downloads {
    pub(crate) fn start(pair: &Pair) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let origin = Origin::start(|mut stream| while stream.write_all(&[7; 4096]).is_ok() {});
        let (moving, moves) = mpsc::channel();
        let flows = (0..DOWNLOADS).map(|_| {
            let flow = pair.http().open(&origin.address().to_string()).unwrap();
            let (moving, stopped) = (moving.clone(), stop.clone());
            std::thread::spawn(move || {
                (&flow).read_exact(&mut [0; 10_000]).unwrap();
                moving.send(()).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    match (&flow).read(&mut [0; 10_000]) {
                        Ok(0) => return Some(End::Eof),
                        Ok(_) => {}
                        Err(error) => return Some(End::of(Some(&error))),
                    }
                }
                None
            })
        });
        let flows: Vec<_> = flows.collect();
        for _ in 0..DOWNLOADS {
            moves.recv_timeout(tcp::IO_TIMEOUT).unwrap();
        }
        Self { stop, flows, _origin: origin }
    }

    /// Whether all of them go on.
    fn run(&self) -> bool {
        self.flows.iter().all(|flow| !flow.is_finished())
    }

    /// How all of them ended; `None` if by the players themselves.
    pub(crate) fn end_with(self, end: Option<End>) {
        for flow in self.flows {
            assert_eq!(flow.join().unwrap(), end);
        }
    }
}

pub(crate) fn echoes(mut flow: Socket) -> bool {
    let mut answer = [0; 4];
    let said = flow.write_all(b"ping").and_then(|()| flow.read_exact(&mut answer));
    said.is_ok() && &answer == b"ping"
}

/// Whether a new flow works now, and whether it bypassed the tunnel.
fn new_flow(pair: &Pair, listener: &TestListener, origin: &Origin) -> Option<bool> {
    let before = bypassed_flows(pair);
    let flow = listener.open(&origin.address().to_string()).ok()?;
    echoes(flow).then(|| bypassed_flows(pair) > before)
}

pub(crate) fn bypassed_flows(pair: &Pair) -> f64 {
    Metrics::fetch(pair.addresses.client_admin).sum("millrace_flows_direct_total", &[])
}

fn unix_socket(pair: &Pair) -> PathBuf {
    let TestListener::ProxyUnix(path) = &pair.listeners[4] else {
        panic!("the last listener is the Unix socket")
    };
    path.clone()
}

fn is_refused(listener: &TestListener) -> bool {
    let kind = |error: std::io::Error| error.kind();
    let result = match listener {
        TestListener::ProxyUnix(path) => tcp::connect_unix(path).map_err(kind),
        TestListener::Proxy(at) => tcp::connect(*at).map_err(kind),
        _ => panic!("{listener:?} refuses nothing"),
    };
    matches!(result, Err(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

/// From now on: new flows of listeners with fail mode `open` bypass the tunnel, and the Unix socket is
/// away, both within two seconds.
#[track_caller]
pub(crate) fn goes_direct(pair: &Pair, origin: &Origin) {
    let since = Instant::now();
    wait::for_true("a new flow goes direct", MAX_SWITCH_TIME + POLL_MARGIN, || {
        new_flow(pair, pair.http(), origin) == Some(true)
    });
    println!("direct after {:?}", since.elapsed());
    wait::for_true(
        "the Unix socket is away",
        MAX_SWITCH_TIME.saturating_sub(since.elapsed()) + POLL_MARGIN,
        || is_refused(&pair.listeners[4]),
    );
    println!("withdrawn after {:?}", since.elapsed());
    assert_eq!(new_flow(pair, &pair.listeners[3], origin), Some(true));
}

/// From now on: new flows take the tunnel again within two seconds, through every listener.
#[track_caller]
pub(crate) fn uses_the_tunnel(pair: &Pair, origin: &Origin) {
    let since = Instant::now();
    wait::for_true("a new flow takes the tunnel", MAX_SWITCH_TIME + POLL_MARGIN, || {
        new_flow(pair, pair.http(), origin) == Some(false)
    });
    println!("in the tunnel after {:?}", since.elapsed());
    for listener in [pair.http(), &pair.listeners[3], &pair.listeners[4]] {
        // Each of the client's workers has connections of its own.
        for _ in 0..4 {
            wait::for_true(
                "all take the tunnel",
                MAX_SWITCH_TIME.saturating_sub(since.elapsed()) + POLL_MARGIN,
                || new_flow(pair, listener, origin) == Some(false),
            );
        }
    }
}

#[test]
fn a_killed_server_is_passed_by_and_taken_again() {
    let mut pair = builder().start();
    let echo = Origin::echo();
    assert_eq!(new_flow(&pair, pair.http(), &echo), Some(false));
    let flows = Downloads::start(&pair);
    pair.server.kill();
    goes_direct(&pair, &echo);
    // A while later it is still so, and the return is not slower for it.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(new_flow(&pair, pair.http(), &echo), Some(true));
    pair.start_server_again();
    uses_the_tunnel(&pair, &echo);
    flows.end_with(Some(End::Reset));
}

#[test]
fn a_path_that_swallows_everything_is_passed_by_and_its_flows_wait() {
    let pair = builder().relay(RelayOptions::default()).start();
    let echo = Origin::echo();
    let flows = Downloads::start(&pair);
    pair.relay.as_ref().unwrap().swallow(true);
    goes_direct(&pair, &echo);
    pair.relay.as_ref().unwrap().swallow(false);
    uses_the_tunnel(&pair, &echo);
    assert!(flows.run(), "a short outage ended flows");
}

#[test]
fn flows_of_a_path_that_stays_dead_end_with_a_reset() {
    let pair = builder()
        .both("tunnel.idle_timeout_s", 4)
        .client("tunnel.keepalive_s", 1)
        .relay(RelayOptions::default())
        .start();
    let echo = Origin::echo();
    let flows = Downloads::start(&pair);
    pair.relay.as_ref().unwrap().swallow(true);
    goes_direct(&pair, &echo);
    flows.end_with(Some(End::Reset));
    pair.relay.as_ref().unwrap().swallow(false);
    uses_the_tunnel(&pair, &echo);
}

#[test]
fn a_full_server_is_passed_by_and_taken_again() {
    let pair = builder().server("limits.max_flows", DOWNLOADS).client("runtime.workers", 1).start();
    let echo = Origin::echo();
    let flows = Downloads::start(&pair);
    // None of them fails, not even the first: the server has refused it before connecting.
    for _ in 0..3 {
        for listener in [pair.http(), &pair.listeners[3]] {
            assert_eq!(new_flow(&pair, listener, &echo), Some(true), "{listener:?}");
        }
    }
    wait::for_true("the Unix socket is away", MAX_SWITCH_TIME, || is_refused(&pair.listeners[4]));
    assert!(flows.run());
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert!(client.sum("millrace_server_overload_total", &[]) > 0.0);
    // Bare connections to the Unix socket, to look whether it is there, count as others.
    for reason in ["overloaded", "tunnel_unavailable", "tunnel_lost"] {
        let failed = client.sum("millrace_flows_finished_total", &[("outcome", reason)]);
        assert_eq!(failed, 0.0, "{reason}");
    }
    // Its flows end, and there is room.
    flows.stop.store(true, Ordering::Relaxed);
    wait::for_true("the server has room", wait::DEFAULT_TIMEOUT, || {
        let server = Metrics::fetch(pair.addresses.server_admin);
        server.sum("millrace_flows_active", &[]) == 0.0
    });
    uses_the_tunnel(&pair, &echo);
    flows.end_with(None);
}

/// Players see a reset, and the next client takes flows at once.
#[test]
fn a_killed_client_ends_its_flows_with_a_reset_and_the_next_one_works() {
    let mut pair = builder().start();
    let echo = Origin::echo();
    let flows = Downloads::start(&pair);
    pair.client.kill();
    flows.end_with(Some(End::Reset));
    assert!(unix_socket(&pair).exists(), "what a killed client leaves behind");
    assert!(is_refused(&pair.listeners[4]));
    pair.start_client_again();
    let since = Instant::now();
    wait::for_true("a new flow works", MAX_SWITCH_TIME + POLL_MARGIN, || {
        pair.http().open(&echo.address().to_string()).is_ok_and(echoes)
    });
    println!("a flow after {:?}", since.elapsed());
    uses_the_tunnel(&pair, &echo);
}

/// What is not listed stays closed, also without a server; a fixed destination needs no list, but
/// this machine's own addresses always do.
#[test]
fn direct_is_no_open_proxy() {
    let (listed, other) = (Origin::echo(), Origin::echo());
    let mut pair = Pair::builder()
        .listener(0, "fail_mode = \"open\"")
        .listener(1, "fail_mode = \"open\"")
        .listener(2, "fail_mode = \"open\"")
        .listener(3, "fail_mode = \"open\"")
        .direct_port("127.0.0.1", listed.address().port())
        .static_destination(other.address())
        .start();
    pair.server.kill();
    wait::for_true("a new flow goes direct", MAX_SWITCH_TIME + POLL_MARGIN, || {
        new_flow(&pair, pair.http(), &listed) == Some(true)
    });
    let forbidden = other.address().to_string();
    match pair.http().open(&forbidden) {
        Err(Refusal::Http { status: 403, head }) => {
            assert!(head.contains("http_request_denied"), "{head}");
        }
        answer => panic!("{answer:?}"),
    }
    assert!(matches!(pair.listeners[2].open(&forbidden), Err(Refusal::Socks(2))));
    // By name, and in another spelling.
    let port = other.address().port();
    for spelling in [format!("localhost:{port}"), format!("[::ffff:127.0.0.1]:{port}")] {
        let answer = pair.http().open(&spelling);
        assert!(matches!(answer, Err(Refusal::Http { status: 403, .. })), "{spelling}: {answer:?}");
    }
    for listener in [&pair.listeners[0], &pair.listeners[3]] {
        match listener.open(&forbidden) {
            Ok(flow) => assert_eq!(tcp::drain(&flow), (vec![], End::Reset), "{listener:?}"),
            Err(Refusal::Io(error)) => {
                assert_eq!(End::of(Some(&error)), End::Reset, "{listener:?}")
            }
            Err(other) => panic!("{listener:?}: {other:?}"),
        }
    }
    assert_eq!(other.accepted(), 0);
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert!(client.sum("millrace_destinations_denied_total", &[]) >= 4.0);
}

/// Bypassed flows keep half-closes and resets, as flows in the tunnel do.
#[test]
fn bypassed_flows_keep_half_closes_and_resets() {
    let mut pair = builder().start();
    pair.server.kill();
    let echo = Origin::echo();
    goes_direct(&pair, &echo);
    let origin = Origin::start(millrace_e2e::origin::answer_with_hash);
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let sent = data::send(&flow, 33, 20_000_000).unwrap();
    flow.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (sent.to_string().into_bytes(), End::Eof));
    let origin = Origin::start(millrace_e2e::origin::source(34, 20_000_000));
    let flow = pair.listeners[3].open(&origin.address().to_string()).unwrap();
    let expected = data::send(std::io::sink(), 34, 20_000_000).unwrap();
    assert_eq!(data::receive(&flow).unwrap(), expected);
    drop(flow);
    let origin = Origin::start(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        tcp::reset(stream);
    });
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    flow.write_all(b"x").unwrap();
    assert_eq!(tcp::drain(&flow), (vec![], End::Reset));
    // No process listens there.
    match pair.http().open(&tcp::unused(std::net::Ipv4Addr::LOCALHOST).to_string()) {
        Err(Refusal::Http { status: 502, head }) => {
            assert!(head.contains("connection_refused"), "{head}");
        }
        answer => panic!("{answer:?}"),
    }
    wait::for_true("no flow is left", wait::DEFAULT_TIMEOUT, || {
        let client = Metrics::fetch(pair.addresses.client_admin);
        client.sum("millrace_flows_active", &[]) == 0.0
    });
}

/// A client that finds no server at its start refuses soon, and opens with the first.
#[test]
fn listeners_behind_a_proxy_wait_for_the_first_server() {
    let mut pair = Pair::builder().start();
    pair.server.kill();
    pair.client.kill();
    pair.start_client_again();
    let admin = pair.addresses.client_admin;
    wait::for_true("the client has started", wait::DEFAULT_TIMEOUT, || {
        millrace_e2e::admin::get(admin, "/healthz").is_ok()
    });
    for listener in &pair.listeners[3..] {
        wait::for_true("the listener refuses", MAX_SWITCH_TIME + POLL_MARGIN, || {
            is_refused(listener)
        });
    }
    pair.start_server_again();
    let echo = Origin::echo();
    for listener in &pair.listeners[3..] {
        wait::for_true("a flow works", MAX_SWITCH_TIME + POLL_MARGIN, || {
            listener.open(&echo.address().to_string()).is_ok_and(echoes)
        });
    }
}
