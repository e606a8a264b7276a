//! SIGTERM: what runs may finish within the deadline, what is new is refused, and the exit is clean.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::binaries;
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, run_with};
use millrace_e2e::program::Program;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;
use nix::sys::signal::Signal;
use socket2::Socket;

/// More than two: those that have nothing to do must not disturb the others.
const WORKERS: usize = 4;
/// New flows while a server drains.
const FLOWS: usize = 20;

/// An echo flow that is known to run.
fn running_flow(pair: &Pair, origin: &Origin) -> Socket {
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    still_echoes(&mut flow);
    flow
}

fn still_echoes(flow: &mut Socket) {
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
}

fn finish(mut flow: Socket) {
    still_echoes(&mut flow);
    flow.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (vec![], End::Eof));
}

/// No listener lets a new flow in.
fn nothing_new(pair: &Pair, origin: &Origin) {
    let before = origin.accepted();
    for listener in &pair.listeners[1..3] {
        assert!(
            listener.open(&origin.address().to_string()).is_err(),
            "{listener:?} let a flow in"
        );
    }
    assert_eq!(origin.accepted(), before);
}

#[test]
fn a_client_lets_its_flows_finish() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().client("runtime.drain_timeout_s", 30).start();
    let mut flow = running_flow(&pair, &origin);
    pair.client.signal(Signal::SIGTERM);
    wait::for_true("new flows are refused", wait::DEFAULT_TIMEOUT, || {
        pair.http().open(&origin.address().to_string()).is_err()
    });
    nothing_new(&pair, &origin);
    still_echoes(&mut flow);
    finish(flow);
    let status = pair.client.wait(Duration::from_secs(5));
    assert_eq!(status.code(), Some(0));
    let TestListener::ProxyUnix(path) = &pair.listeners[4] else {
        panic!("the last listener is the Unix socket")
    };
    assert!(!path.exists(), "{} was left behind", path.display());
}

#[test]
fn a_server_lets_its_flows_finish() {
    let origin = Origin::echo();
    let mut pair = Pair::builder()
        .server("runtime.drain_timeout_s", 30)
        .both("runtime.workers", WORKERS)
        .start();
    let mut flow = running_flow(&pair, &origin);
    pair.server.signal(Signal::SIGTERM);
    wait::for_true("new flows are refused", wait::DEFAULT_TIMEOUT, || {
        matches!(pair.http().open(&origin.address().to_string()), Err(Refusal::Http { .. }))
    });
    nothing_new(&pair, &origin);
    still_echoes(&mut flow);
    // The client knows that it has no server for new flows.
    wait::for_true("the client says so", wait::DEFAULT_TIMEOUT, || {
        matches!(admin::get(pair.addresses.client_admin, "/healthz"), Ok((503, _)))
    });
    finish(flow);
    assert_eq!(pair.server.wait(Duration::from_secs(5)).code(), Some(0));
    assert!(pair.client.is_running());
    // The next server takes over where the first one was.
    pair.start_server_again();
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
    finish(running_flow(&pair, &origin));
    let log = pair.client.log_text();
    assert!(!log.contains("can't accept"), "a listener that refuses was tried: {log}");
}

/// What is new goes to the other server at once, what runs ends where it is, and in time.
#[test]
fn a_draining_servers_clients_go_to_the_next_one() {
    let origin = Origin::echo();
    let [first, second] = [(); 2].map(|()| tcp::unused_port());
    let mut pair = Pair::builder()
        .server("runtime.drain_timeout_s", 30)
        .both("runtime.workers", WORKERS)
        .tunnel_port(first)
        .client("tunnel.servers", format!("[\"127.0.0.1:{first}\", \"127.0.0.1:{second}\"]"))
        .client("tunnel.reconnect_max_s", 1)
        .start();
    let mut flow = running_flow(&pair, &origin);
    let admin = tcp::unused(std::net::Ipv4Addr::LOCALHOST);
    let text = fs::read_to_string(pair.dir().join("server.toml")).unwrap();
    let text = text.replace(&pair.addresses.tunnel.to_string(), &format!("127.0.0.1:{second}"));
    let text = text.replace(&pair.addresses.server_admin.to_string(), &admin.to_string());
    let config = pair.dir().join("second.toml");
    fs::write(&config, text).unwrap();
    let _second = Program::start("the second server", run_with(binaries::server(), &config));
    wait::for_true("the second server", wait::DEFAULT_TIMEOUT, || {
        admin::get(admin, "/healthz").is_ok()
    });
    let carried = |at| Metrics::fetch(at).sum("millrace_flows_opened_total", &[]);
    assert_eq!(carried(admin), 0.0);

    pair.server.signal(Signal::SIGTERM);
    wait::for_true("a new flow by the second server", wait::DEFAULT_TIMEOUT, || {
        pair.http().open(&origin.address().to_string()).is_ok() && carried(admin) > 0.0
    });
    let before = carried(pair.addresses.server_admin);
    for _ in 0..FLOWS {
        assert!(pair.http().open(&origin.address().to_string()).is_ok());
    }
    assert_eq!(carried(pair.addresses.server_admin), before);
    still_echoes(&mut flow);
    finish(flow);
    assert_eq!(pair.server.wait(Duration::from_secs(5)).code(), Some(0));
    finish(running_flow(&pair, &origin));
}

#[test]
fn an_idle_pair_ends_at_once() {
    let mut pair = Pair::builder().both("runtime.drain_timeout_s", 60).start();
    for program in [&mut pair.client, &mut pair.server] {
        let started = Instant::now();
        program.signal(Signal::SIGTERM);
        assert_eq!(program.wait(Duration::from_secs(5)).code(), Some(0));
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    }
}

#[test]
fn the_deadline_ends_what_does_not_finish_with_a_reset() {
    for client in [true, false] {
        let origin = Origin::echo();
        let mut pair = Pair::builder()
            .both("runtime.drain_timeout_s", 1)
            .both("runtime.workers", WORKERS)
            .start();
        let mut flow = running_flow(&pair, &origin);
        let program = if client { &mut pair.client } else { &mut pair.server };
        let started = Instant::now();
        program.signal(Signal::SIGTERM);
        std::thread::sleep(Duration::from_millis(500));
        still_echoes(&mut flow);
        assert_eq!(tcp::drain(&flow), (vec![], End::Reset), "client: {client}");
        let status = program.wait(Duration::from_secs(5));
        assert_eq!(status.code(), Some(0), "client: {client}");
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(900), "client: {client}: ended after {took:?}");
        assert!(took < Duration::from_secs(4), "client: {client}: ended after {took:?}");
    }
}

#[test]
fn interrupt_is_as_good_as_terminate() {
    let mut pair = Pair::builder().start();
    pair.client.signal(Signal::SIGINT);
    assert_eq!(pair.client.wait(Duration::from_secs(5)).code(), Some(0));
}
