//! A connection that comes back resumes, and its first flows need no round trip of their own.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::certificates::{Authority, SERVER_NAME};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::test_lock::Kind;
use millrace_e2e::wait;
use serde_json::Value;
use time::OffsetDateTime;

/// Whether each connection that came up was resumed, and what became of its early data.
fn connections(log: &str) -> Vec<(bool, String)> {
    let fields = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    fields
        .filter(|line| line["message"] == "connection established")
        .filter_map(|line| {
            Some((line["resumed"].as_bool()?, line["early_data"].as_str()?.to_owned()))
        })
        .collect()
}

/// Both ends give up connections soon, and the client tries again soon.
fn short_lived() -> PairBuilder {
    Pair::builder()
        .both("tunnel.idle_timeout_s", 2)
        .client("tunnel.keepalive_s", 1)
        .client("tunnel.reconnect_max_s", 1)
        .client("tunnel.connect_timeout_s", 1)
        .relay(RelayOptions::default())
}

/// Lets nothing pass until both ends have given up all connections.
fn take_down(pair: &Pair) {
    pair.relay.as_ref().unwrap().swallow(true);
    let established =
        |admin| Metrics::fetch(admin).sum("millrace_connections", &[("state", "established")]);
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        wait::for_true("the tunnel is down", wait::DEFAULT_TIMEOUT, || established(admin) == 0.0);
    }
}

#[test]
fn a_connection_that_comes_back_is_resumed_with_early_data() {
    let origin = Origin::echo();
    let pair = short_lived().start();
    let flow_works = || {
        let mut flow = pair.http().open(&origin.address().to_string()).ok()?;
        flow.write_all(b"x").ok()?;
        flow.read_exact(&mut [0]).ok()
    };
    flow_works().expect("a flow on the first connection");
    take_down(&pair);
    let first = connections(&pair.server.log_text());
    assert!(!first.is_empty() && first.iter().all(|(resumed, _)| !resumed), "{first:?}");
    pair.relay.as_ref().unwrap().swallow(false);
    wait::for_true("the tunnel is up again", wait::DEFAULT_TIMEOUT, || flow_works().is_some());
    let again = connections(&pair.server.log_text()).split_off(first.len());
    assert!(!again.is_empty(), "no connection came back");
    // One whose first attempt went into the outage may have started afresh.
    assert!(again.iter().any(|(resumed, early)| *resumed && early == "accepted"), "{again:?}");
}

/// TLS looks at the server's certificate in full handshakes only; the client looks at it again.
#[test]
fn a_server_whose_certificate_has_expired_is_not_resumed() {
    let builder = short_lived().in_turn_of(Kind::Many);
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::make(dir.path());
    let now = OffsetDateTime::now_utc();
    let until = now + Duration::from_secs(15);
    let server = authority.sign_for(SERVER_NAME, now - Duration::from_secs(60), until);
    let pair = builder
        .server_identity(&authority.ca, server)
        .client("tunnel.ca", format!("\"{}\"", authority.ca.display()))
        .client_identity(authority.sign("client", -1..30))
        .start();
    let relay = pair.relay.as_ref().unwrap();
    let resumed =
        || connections(&pair.server.log_text()).iter().filter(|(resumed, _)| *resumed).count();
    take_down(&pair);
    relay.swallow(false);
    wait::for_true("a session is resumed", wait::DEFAULT_TIMEOUT, || resumed() > 0);
    assert!(
        OffsetDateTime::now_utc() < until,
        "the certificate has expired too early for this test"
    );

    take_down(&pair);
    let expired = until + Duration::from_secs(1);
    let left = Duration::try_from(expired - OffsetDateTime::now_utc()).unwrap_or_default();
    std::thread::sleep(left);
    let before = connections(&pair.server.log_text()).len();
    relay.swallow(false);
    pair.client.expect_log("the refusal", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("certificate has expired").then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(connections(&pair.server.log_text()).len(), before, "it was accepted all the same");
}

/// With the connection kept warm a new flow costs one round trip of the tunnel, not two.
#[test]
fn a_new_flow_takes_one_round_trip() {
    let one_way = Duration::from_millis(100);
    let origin = Origin::echo();
    let pair = Pair::builder()
        .relay(RelayOptions { one_way, ..Default::default() })
        .in_turn_of(Kind::Few)
        .start();
    let open = || {
        let started = Instant::now();
        let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
        flow.write_all(b"x").unwrap();
        let opened = started.elapsed();
        flow.read_exact(&mut [0]).unwrap();
        opened
    };
    open();
    let fastest = (0..5).map(|_| open()).min().unwrap();
    assert!(fastest >= 2 * one_way, "{fastest:?} for a path of {one_way:?} each way");
    assert!(fastest < 3 * one_way, "{fastest:?} for a path of {one_way:?} each way");
}
