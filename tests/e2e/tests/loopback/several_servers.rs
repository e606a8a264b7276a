//! Several servers: preference, fail-over, fail-back, shared load, and restarts one after the other
//! that no new flow notices.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::program::Program;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::test_lock::Kind;
use millrace_e2e::udp::{self, UdpEcho};
use millrace_e2e::{data, wait};
use nix::sys::signal::Signal;

/// Two servers, of which the second is `other`.
struct Two {
    pair: Pair,
    other: Program,
    addresses: [SocketAddr; 2],
}

/// `list` makes the client's `servers` out of both addresses.
fn two(list: impl Fn([SocketAddr; 2]) -> String) -> Two {
    two_of(Pair::builder(), list)
}

fn two_of(pair: PairBuilder, list: impl Fn([SocketAddr; 2]) -> String) -> Two {
    let ports = [tcp::unused_port(), tcp::unused_port()];
    let addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let pair = pair
        .both("runtime.drain_timeout_s", 20)
        .both("runtime.workers", 1)
        .client("tunnel.servers", list(addresses))
        .tunnel_port(ports[0])
        .in_turn_of(Kind::Few)
        .start();
    let other = pair.start_another_server(addresses[1]);
    let two = Two { pair, other, addresses };
    for server in 0..2 {
        two.wait_healthy(server);
    }
    two
}

fn preferred([first, second]: [SocketAddr; 2]) -> String {
    format!("[\"{first}\", \"{second}\"]")
}

impl Two {
    fn of(&self, name: &str, server: usize) -> f64 {
        let client = Metrics::fetch(self.pair.addresses.client_admin);
        client.sum(name, &[("server", &self.addresses[server].to_string())])
    }

    fn flows(&self, server: usize) -> f64 {
        self.of("millrace_server_flows_total", server)
    }

    #[track_caller]
    fn wait_healthy(&self, server: usize) {
        wait::for_true("the server is healthy", wait::DEFAULT_TIMEOUT, || {
            self.of("millrace_server_healthy", server) == 1.0
        });
    }

    /// Which server a new flow takes, if it works.
    fn new_flow(&self, origin: &Origin) -> Option<usize> {
        let before = self.flows(0);
        works(self.pair.http(), origin).ok()?;
        Some(usize::from(self.flows(0) == before))
    }
}

/// A whole flow: open, send, receive, close.
fn works(listener: &TestListener, origin: &Origin) -> Result<(), String> {
    let mut flow = listener.open(&origin.address().to_string()).map_err(|it| format!("{it:?}"))?;
    let sent = data::pattern(41, 20_000);
    flow.write_all(&sent).map_err(|error| format!("sending: {error}"))?;
    flow.shutdown(Shutdown::Write).map_err(|error| format!("ending: {error}"))?;
    let mut received = Vec::new();
    flow.read_to_end(&mut received).map_err(|error| format!("receiving: {error}"))?;
    if received == sent { Ok(()) } else { Err(format!("{} bytes came back", received.len())) }
}

#[test]
fn the_preferred_server_is_left_when_it_dies_and_taken_again() {
    let mut two = two(preferred);
    let origin = Origin::echo();
    for _ in 0..5 {
        assert_eq!(two.new_flow(&origin), Some(0));
    }
    let failures = two.of("millrace_server_connect_errors_total", 1);
    two.pair.server.kill();
    let since = Instant::now();
    wait::for_true("the second server takes over", Duration::from_millis(2500), || {
        two.new_flow(&origin) == Some(1)
    });
    println!("taken over after {:?}", since.elapsed());
    assert!(two.of("millrace_server_connect_errors_total", 0) > 0.0);
    two.pair.start_server_again();
    let since = Instant::now();
    wait::for_true("the first is used again", Duration::from_millis(2500), || {
        two.new_flow(&origin) == Some(0)
    });
    println!("back after {:?}", since.elapsed());
    assert_eq!(two.of("millrace_server_connect_errors_total", 1), failures);
    assert!(two.other.is_running());
}

#[test]
fn servers_of_one_priority_share_the_flows() {
    let two = two(|[first, second]| {
        format!(
            "[{{ address = \"{first}\", priority = 1 }}, {{ address = \"{second}\", priority = 1 }}]"
        )
    });
    let origin = Origin::echo();
    let to = origin.address().to_string();
    let before = [two.flows(0), two.flows(1)];
    let flows: Vec<_> = (0..20).map(|_| two.pair.http().open(&to).unwrap()).collect();
    for (server, before) in before.into_iter().enumerate() {
        assert_eq!(two.flows(server) - before, 10.0, "server {server}");
    }
    drop(flows);
}

/// A full server's flows go to the next, and none of them fails.
#[test]
fn flows_that_one_server_has_no_room_for_go_to_another() {
    let two = eight_flows_with_room_for_four("limits.max_flows");
    assert!(two.of("millrace_server_overload_total", 0) > 0.0);
}

/// What a server refuses one client says nothing of its room for others.
#[test]
fn a_client_limit_sends_its_flow_elsewhere_and_marks_no_server_as_full() {
    let two = eight_flows_with_room_for_four("limits.max_flows_per_client");
    for server in 0..2 {
        assert_eq!(two.of("millrace_server_overload_total", server), 0.0, "server {server}");
        assert_eq!(two.of("millrace_server_healthy", server), 1.0, "server {server}");
    }
    assert!(two.flows(0) >= 8.0, "the first server was not asked every time");
}

fn eight_flows_with_room_for_four(limit: &str) -> Two {
    let ports = [tcp::unused_port(), tcp::unused_port()];
    let addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let pair = Pair::builder()
        .server(limit, 4)
        .client("runtime.workers", 1)
        .client("tunnel.servers", preferred(addresses))
        .tunnel_port(ports[0])
        .start();
    let other = pair.start_another_server(addresses[1]);
    let two = Two { pair, other, addresses };
    two.wait_healthy(1);
    let origin = Origin::echo();
    let to = origin.address().to_string();
    let listeners = [two.pair.http(), &two.pair.listeners[3]];
    let mut flows: Vec<_> = (0..8).map(|n| listeners[n % 2].open(&to).unwrap()).collect();
    for flow in &mut flows {
        flow.write_all(b"ping").unwrap();
        flow.read_exact(&mut [0; 4]).unwrap();
    }
    assert_eq!(origin.accepted(), 8);
    two
}

/// Both servers are restarted in turn under load: no new flow fails, and those that run may end.
#[test]
fn a_rolling_restart_fails_no_new_flow() {
    let mut two = two(preferred);
    let origin = Origin::echo();
    let listeners: Vec<TestListener> = two.pair.listeners[1..].to_vec();
    let listeners = &listeners;
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failures = std::thread::scope(|scope| {
        let load: Vec<_> = (0..8)
            .map(|number| {
                let listener = listeners[number % listeners.len()].clone();
                let (stop, done, origin) = (&stop, &done, &origin);
                scope.spawn(move || {
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        failures.extend(works(&listener, origin).err());
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    failures
                })
            })
            .collect();
        let some_more = |count: usize| {
            let target = done.load(Ordering::Relaxed) + count;
            wait::for_true("flows go on", wait::DEFAULT_TIMEOUT, || {
                done.load(Ordering::Relaxed) >= target
            });
        };
        let restarted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            some_more(100);
            for _ in 0..2 {
                two.pair.server.signal(Signal::SIGTERM);
                assert_eq!(two.pair.server.wait(wait::DEFAULT_TIMEOUT).code(), Some(0));
                some_more(100);
                two.pair.start_server_again();
                two.wait_healthy(0);
                some_more(100);
                two.other.signal(Signal::SIGTERM);
                assert_eq!(two.other.wait(wait::DEFAULT_TIMEOUT).code(), Some(0));
                some_more(100);
                two.other = two.pair.start_another_server(two.addresses[1]);
                two.wait_healthy(1);
                some_more(100);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let failures: Vec<_> = load.into_iter().flat_map(|it| it.join().unwrap()).collect();
        restarted.unwrap();
        failures
    });
    println!("{} flows", done.load(Ordering::Relaxed));
    assert!(failures.is_empty(), "{} flows failed: {:?}", failures.len(), &failures[..1]);
    assert!((0..2).all(|server| two.flows(server) > 100.0), "one server had hardly any flow");
}

/// A flow that runs on a server that drains goes on to its end.
#[test]
fn a_running_flow_outlives_the_change_to_another_server() {
    let mut two = two(preferred);
    let origin = Origin::echo();
    let mut flow = two.pair.http().open(&origin.address().to_string()).unwrap();
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
    two.pair.server.signal(Signal::SIGTERM);
    wait::for_true("new flows take the second server", wait::DEFAULT_TIMEOUT, || {
        two.new_flow(&origin) == Some(1)
    });
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
    flow.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (vec![], End::Eof));
    assert_eq!(two.pair.server.wait(wait::DEFAULT_TIMEOUT).code(), Some(0));
}

/// Two servers, and a listener whose datagrams are echoed.
fn two_with_udp(echo: &UdpEcho) -> (Two, SocketAddr) {
    let listener = tcp::unused(Ipv4Addr::LOCALHOST);
    let body =
        format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{}\"", echo.address());
    let pair = Pair::builder().allow_udp("127.0.0.1").listen(&body);
    // Nothing but silence is to end a flow on a silent server.
    let pair = pair.client("tunnel.idle_timeout_s", 60);
    (two_of(pair, preferred), listener)
}

/// Unlike TCP's, which have bytes to lose, UDP flows do not wait for their server to come back.
#[test]
fn udp_flows_begin_again_elsewhere_when_their_server_is_silent() {
    let echo = UdpEcho::start();
    let (two, listener) = two_with_udp(&echo);
    let (running, asking) = (udp::client(listener), udp::client(listener));
    assert!(udp::exchange(&running, b"first", wait::DEFAULT_TIMEOUT).is_some());
    assert_eq!([two.flows(0), two.flows(1)], [1.0, 0.0]);

    two.pair.server.signal(Signal::SIGSTOP);
    // A request that the silent server has already is made again, with what waits for its answer.
    assert_eq!(
        udp::exchange(&asking, b"only", wait::DEFAULT_TIMEOUT).as_deref(),
        Some(&b"only"[..])
    );
    assert_eq!(two.flows(1), 1.0);
    let again = udp::exchange(&running, b"again", wait::DEFAULT_TIMEOUT);
    assert_eq!(again.as_deref(), Some(&b"again"[..]), "the next datagram begins a flow");
    assert_eq!(two.flows(1), 2.0);

    // They stay where they are when the first is back, and new ones go there.
    two.pair.server.signal(Signal::SIGCONT);
    two.wait_healthy(0);
    let before = two.flows(0);
    for client in [&running, &asking] {
        assert_eq!(
            udp::exchange(client, b"stays", wait::DEFAULT_TIMEOUT).as_deref(),
            Some(&b"stays"[..])
        );
    }
    assert_eq!([two.flows(0), two.flows(1)], [before, 2.0]);
    assert!(udp::exchange(&udp::client(listener), b"new", wait::DEFAULT_TIMEOUT).is_some());
    assert_eq!([two.flows(0), two.flows(1)], [before + 1.0, 2.0]);
}

/// Without another server they wait for it.
#[test]
fn udp_flows_stay_when_all_servers_are_silent() {
    let echo = UdpEcho::start();
    let (mut two, listener) = two_with_udp(&echo);
    two.other.kill();
    wait::for_true("the second server is gone", wait::DEFAULT_TIMEOUT, || {
        two.of("millrace_server_healthy", 1) == 0.0
    });
    let client = udp::client(listener);
    assert!(udp::exchange(&client, b"first", wait::DEFAULT_TIMEOUT).is_some());
    let opened = || {
        let client = Metrics::fetch(two.pair.addresses.client_admin);
        client.sum("millrace_flows_opened_total", &[])
    };
    assert_eq!(opened(), 1.0);
    two.pair.server.signal(Signal::SIGSTOP);
    wait::for_true("the first server is unresponsive", wait::DEFAULT_TIMEOUT, || {
        two.of("millrace_server_healthy", 0) == 0.0
    });
    two.pair.server.signal(Signal::SIGCONT);
    two.wait_healthy(0);
    assert_eq!(
        udp::exchange(&client, b"again", wait::DEFAULT_TIMEOUT).as_deref(),
        Some(&b"again"[..])
    );
    assert_eq!(opened(), 1.0, "it is the flow of before");
}
