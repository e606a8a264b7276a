//! A destination that refuses, or never answers, is reported in the words of each listener.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::Blackhole;
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp::{self, End};

/// What each listener says about `destination`.
fn check(pair: &Pair, destination: &str, status: u16, error: &str, socks: u8) {
    for listener in &pair.listeners {
        match (listener, listener.drain(destination)) {
            (TestListener::Http(_), Err(Refusal::Http { status: got, head })) => {
                assert_eq!(got, status, "{head}");
                let head = head.to_ascii_lowercase();
                let field = head.lines().find_map(|line| line.strip_prefix("proxy-status:"));
                let expected = format!("error={error}");
                assert!(field.is_some_and(|field| field.contains(&expected)), "{head}");
            }
            (TestListener::Socks(_), Err(Refusal::Socks(code))) => assert_eq!(code, socks),
            (TestListener::Static(_) | TestListener::Proxy(_), Ok(ended)) => {
                assert_eq!(ended, (vec![], End::Reset), "{listener:?}");
            }
            // Unix sockets have no reset: closed without a byte is all that can be said.
            (TestListener::ProxyUnix(_), Ok((bytes, _))) => {
                assert!(bytes.is_empty(), "{listener:?}")
            }
            (_, other) => panic!("{listener:?}: {other:?}"),
        }
    }
}

#[test]
fn refused_is_reported_as_refused() {
    let closed = tcp::unused(Ipv4Addr::LOCALHOST);
    let pair = Pair::builder().static_destination(closed).start();
    check(&pair, &closed.to_string(), 502, "connection_refused", 5);
    let server = Metrics::fetch(pair.addresses.server_admin);
    assert_eq!(server.sum("millrace_flows_finished_total", &[("outcome", "refused")]), 5.0);
}

#[test]
fn a_destination_that_never_answers_times_out() {
    let dead = Blackhole::open();
    let pair = Pair::builder()
        .static_destination(dead.address())
        .server("dial.timeout_s", 1)
        .server("dial.per_address_timeout_s", 1)
        .start();
    let started = Instant::now();
    check(&pair, &dead.address().to_string(), 504, "connection_timeout", 6);
    // Five listeners, one second each.
    assert!(started.elapsed() > Duration::from_millis(4900), "{:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[test]
fn a_name_that_does_not_resolve_is_reported() {
    let pair = Pair::builder().start();
    // RFC 6761, Section 6.4: never resolves.
    let name = "no-such-host.invalid:80";
    match pair.http().open(name) {
        Err(Refusal::Http { status: 502, head }) => assert!(head.contains("dns_error"), "{head}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(pair.listeners[2].open(name), Err(Refusal::Socks(4))));
}
