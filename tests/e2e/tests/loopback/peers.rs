//! Peers that can't authenticate: refused, logged, counted. (A client without any certificate
//! is in `tests/quic_peers`, since millrace-client can't be configured so.)

use std::path::Path;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::certificates::{Authority, Certificates, Identity, SERVER_NAME};
use millrace_e2e::listeners::Refusal;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::program::Program;
use millrace_e2e::wait;
use tempfile::TempDir;

/// A hand-made authority that both ends trust, and a server certificate of it.
fn authority() -> (TempDir, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::make(dir.path());
    (dir, authority)
}

fn trusting(authority: &Authority) -> PairBuilder {
    let server = authority.sign(SERVER_NAME, -1..30);
    Pair::builder()
        .server_identity(&authority.ca, server)
        .client("tunnel.ca", format!("\"{}\"", authority.ca.display()))
        .client("tunnel.reconnect_max_s", 1)
}

/// The tunnel does not come up; `program` counts and logs why.
fn assert_refused(pair: &Pair, program: &Program, admin: std::net::SocketAddr, reason: &str) {
    wait::for_true(&format!("a handshake that failed for {reason}"), wait::DEFAULT_TIMEOUT, || {
        let metrics = Metrics::fetch(admin);
        metrics.sum("millrace_handshake_failures_total", &[("reason", reason)]) >= 1.0
    });
    program.expect_log("a failed handshake", wait::DEFAULT_TIMEOUT, |line| {
        (line.contains("handshake") && line.contains(reason)).then_some(())
    });
    // A client believes for a round trip that it was taken (TLS 1.3).
    wait::for_true("the client is not healthy", wait::DEFAULT_TIMEOUT, || {
        matches!(admin::get(pair.addresses.client_admin, "/healthz"), Ok((503, _)))
    });
    let origin = Origin::echo();
    match pair.http().open(&origin.address().to_string()) {
        Err(Refusal::Http { status: 503, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(origin.accepted(), 0);
}

fn server_refuses(pair: &Pair, reason: &str) {
    assert_refused(pair, &pair.server, pair.addresses.server_admin, reason);
    let server = Metrics::fetch(pair.addresses.server_admin);
    let established = server.sum("millrace_connections", &[("state", "established")]);
    assert_eq!(established, 0.0);
}

fn client_refuses(pair: &Pair, reason: &str) {
    assert_refused(pair, &pair.client, pair.addresses.client_admin, reason);
}

/// That the tests below can tell: the same set-up with a good certificate works.
#[test]
fn a_certificate_of_the_right_authority_is_taken() {
    let (_dir, authority) = authority();
    let pair = trusting(&authority).client_identity(authority.sign("edge", -1..1)).start();
    let origin = Origin::echo();
    pair.http().open(&origin.address().to_string()).unwrap();
}

#[test]
fn a_client_of_another_authority_is_refused() {
    let (_dir, authority) = authority();
    let pair = Pair::builder().client_identity(authority.sign("edge", -1..1)).unhealthy().start();
    server_refuses(&pair, "unknown_authority");
    // The client is told, and says so.
    pair.client.expect_log("what the server said", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("TLS alert").then_some(())
    });
}

#[test]
fn an_expired_client_is_refused() {
    let (_dir, authority) = authority();
    let client = authority.sign("edge", -30..-1);
    let pair = trusting(&authority).client_identity(client).unhealthy().start();
    server_refuses(&pair, "expired");
}

#[test]
fn a_client_that_is_not_valid_yet_is_refused() {
    let (_dir, authority) = authority();
    let client = authority.sign("edge", 1..30);
    let pair = trusting(&authority).client_identity(client).unhealthy().start();
    server_refuses(&pair, "expired");
}

/// A server's certificate is for servers: a stolen one does not authenticate a client.
#[test]
fn a_server_certificate_is_no_client_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let made = Certificates::make(dir.path());
    let pair = Pair::builder()
        .server_identity(&made.ca, made.server.clone())
        .client("tunnel.ca", format!("\"{}\"", made.ca.display()))
        .client_identity(made.server)
        .unhealthy()
        .start();
    server_refuses(&pair, "wrong_name");
}

#[test]
fn a_server_with_another_name_is_refused() {
    let (_dir, authority) = authority();
    let pair = with_server(&authority, &authority.ca, authority.sign("other.test", -1..30));
    client_refuses(&pair, "wrong_name");
}

#[test]
fn an_expired_server_is_refused() {
    let (_dir, authority) = authority();
    let pair = with_server(&authority, &authority.ca, authority.sign(SERVER_NAME, -30..-1));
    client_refuses(&pair, "expired");
}

#[test]
fn a_server_of_another_authority_is_refused() {
    let ((_dir, authority), (_other_dir, other)) = (self::authority(), self::authority());
    let pair = with_server(&authority, &authority.ca, other.sign(SERVER_NAME, -1..30));
    client_refuses(&pair, "unknown_authority");
}

/// A pair whose client is right and whose server may not be.
fn with_server(authority: &Authority, client_ca: &Path, server: Identity) -> Pair {
    trusting(authority)
        .server_identity(client_ca, server)
        .client_identity(authority.sign("edge", -1..1))
        .unhealthy()
        .start()
}
