//! Names of destinations: what is resolved, by which name server, and that dead names delay nothing
//! else.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::dns::{Answer, NameServer};
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::wait;
use socket2::{Domain, Socket, Type};

/// Names of one viewer that are resolved at a time: `MAX_UNDER_WAY_PER_VIEWER` of the server.
const UNDER_WAY_PER_VIEWER: usize = 64;

fn asking(name_servers: &[SocketAddr]) -> PairBuilder {
    let list: Vec<_> = name_servers.iter().map(|address| format!("\"{address}\"")).collect();
    Pair::builder().server("resolver.nameservers", format!("[{}]", list.join(", ")))
}

fn assert_dns_error(result: Result<Socket, Refusal>) {
    match result {
        Err(Refusal::Http { status: 502, head }) => {
            assert!(head.contains("error=dns_error"), "{head}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_that_no_entry_can_match_is_refused_before_it_is_resolved() {
    let dns = NameServer::start(&[("*.test", Answer::address("127.0.0.1"))]);
    let pair = asking(&[dns.address()]).allow_only(&[]).allow_name("listed.test", "80").start();
    for destination in ["other.test:80", "listed.test:81", "sub.listed.test:80"] {
        match pair.http().open(destination) {
            Err(Refusal::Http { status: 403, head }) => {
                assert!(head.contains("error=http_request_denied"), "{head}");
            }
            other => panic!("{destination}: {other:?}"),
        }
        let (name, _) = destination.split_once(':').unwrap();
        assert_eq!(dns.asked(name), 0, "{name}");
    }
    // What is listed is asked for, and its address is checked.
    assert!(matches!(pair.http().open("listed.test:80"), Err(Refusal::Http { status: 403, .. })));
    assert!(dns.asked("listed.test") > 0);
    let server = Metrics::fetch(pair.addresses.server_admin);
    let denied = |reason| server.sum("millrace_destinations_denied_total", &[("reason", reason)]);
    let expected = [("not_listed", 2.0), ("port_not_listed", 1.0), ("loopback", 1.0)];
    for (reason, count) in expected {
        assert_eq!(denied(reason), count, "{reason}");
    }
}

#[test]
fn an_answer_is_kept_for_its_ttl() {
    let loopback = || vec![Ipv4Addr::LOCALHOST.into()];
    let dns = NameServer::start(&[("kept.test", Answer::Addresses(loopback(), 60))]);
    let origin = Origin::echo();
    let pair = asking(&[dns.address()]).start();
    let to = format!("kept.test:{}", origin.address().port());
    for _ in 0..10 {
        pair.http().open(&to).unwrap();
    }
    assert!(dns.asked("kept.test") <= 2, "both families once: {}", dns.asked("kept.test"));
    // Without a TTL it is asked for each time.
    dns.set("fresh.test", Answer::Addresses(loopback(), 0));
    let to = format!("fresh.test:{}", origin.address().port());
    for _ in 0..3 {
        pair.http().open(&to).unwrap();
    }
    assert!(dns.asked("fresh.test") >= 3, "{}", dns.asked("fresh.test"));
}

/// One viewer asks for more dead names than its share: its own other names and those of another
/// viewer are resolved at once.
#[test]
fn dead_names_delay_no_other_name() {
    let dns = NameServer::start(&[
        ("*.dead.test", Answer::Silence),
        ("live.test", Answer::address("127.0.0.1")),
        ("other.test", Answer::address("127.0.0.1")),
    ]);
    let origin = Origin::echo();
    let port = origin.address().port();
    let pair = asking(&[dns.address()]).server("resolver.timeout_s", 3).start();
    std::thread::scope(|scope| {
        let ask = |name: String| {
            scope.spawn({
                let pair = &pair;
                move || pair.http().open(&name)
            })
        };
        let mut dead: Vec<_> = (0..40).map(|n| ask(format!("n{n}.dead.test:80"))).collect();
        // Repeated requests for one name cause one query.
        dead.extend((0..100).map(|_| ask("same.dead.test:80".to_owned())));
        wait::for_true("the dead names are asked for", wait::DEFAULT_TIMEOUT, || {
            dns.asked("n39.dead.test") > 0 && dns.asked("same.dead.test") > 0
        });
        let started = Instant::now();
        pair.http().open(&format!("live.test:{port}")).unwrap();
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        // Above the viewer's share only its own names wait.
        dead.extend((40..2 * UNDER_WAY_PER_VIEWER).map(|n| ask(format!("n{n}.dead.test:80"))));
        wait::for_true("the share is used up", wait::DEFAULT_TIMEOUT, || {
            let under_way = |n: &usize| dns.asked(&format!("n{n}.dead.test")) > 0;
            (0..2 * UNDER_WAY_PER_VIEWER).filter(under_way).count() >= UNDER_WAY_PER_VIEWER - 2
        });
        let started = Instant::now();
        open_from(Ipv4Addr::new(127, 0, 0, 2), pair.http(), &format!("other.test:{port}"));
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        for dead in dead {
            assert_dns_error(dead.join().unwrap());
        }
    });
    assert!(dns.asked("same.dead.test") < 30, "{}", dns.asked("same.dead.test"));
}

/// A flow of another viewer, as far as the client can tell.
fn open_from(source: Ipv4Addr, listener: &TestListener, destination: &str) {
    use std::io::{Read, Write};
    let TestListener::Http(address) = listener else { panic!("not HTTP CONNECT") };
    let mut socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&(*address).into()).unwrap();
    socket.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
    write!(socket, "CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n\r\n").unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

/// Whatever the state of the first name server: closed, or there and silent.
#[test]
fn the_second_name_server_is_asked_when_the_first_is_dead() {
    let dns = NameServer::start(&[("*.test", Answer::address("127.0.0.1"))]);
    let origin = Origin::echo();
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let closed = millrace_e2e::tcp::unused(Ipv4Addr::LOCALHOST);
    for first in [silent.local_addr().unwrap(), closed] {
        let pair = asking(&[first, dns.address()]).start();
        let open = |name: &str| {
            let started = Instant::now();
            let opened = pair.http().open(&format!("{name}:{}", origin.address().port()));
            opened.unwrap_or_else(|error| panic!("{name} with {first}: {error:?}"));
            started.elapsed()
        };
        let took = open("first.test");
        assert!(took < Duration::from_millis(2500), "{took:?} with {first}");
        // It is known by now which one answers.
        let took = open("second.test");
        assert!(took < Duration::from_millis(800), "{took:?} with {first}");
    }
}

/// Names that fail say nothing about the server: flows to an address go on beside them.
#[test]
fn unresolvable_names_fail_alone() {
    let dns = NameServer::start(&[("*.dead.test", Answer::Silence)]);
    let origin = Origin::echo();
    let pair = asking(&[dns.address()]).server("resolver.timeout_s", 1).start();
    std::thread::scope(|scope| {
        let names = (0..20).map(|n| match n % 2 {
            0 => format!("n{n}.dead.test:80"),
            _ => format!("n{n}.none.test:80"),
        });
        let failing: Vec<_> = names
            .map(|name| {
                scope.spawn({
                    let pair = &pair;
                    move || pair.http().open(&name)
                })
            })
            .collect();
        for _ in 0..50 {
            pair.http().open(&origin.address().to_string()).unwrap();
        }
        for failing in failing {
            assert_dns_error(failing.join().unwrap());
        }
        pair.http().open(&origin.address().to_string()).unwrap();
    });
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert_eq!(client.sum("millrace_server_overload_total", &[]), 0.0);
}
