//! Sessions are resumed, with early data, only while the client's certificate is accepted.

use std::fs;
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::certificates::{Authority, Identity, SERVER_NAME};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::wait;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use time::OffsetDateTime;

use crate::peer::Peer;

/// BoringSSL's `ssl_early_data_accepted`.
const EARLY_DATA_ACCEPTED: u32 = 2;
/// TLS alerts (RFC 8446, Section 6.2) as QUIC errors (RFC 9001, Section 4.8).
const CERTIFICATE_REVOKED: u64 = 0x100 + 44;
const CERTIFICATE_EXPIRED: u64 = 0x100 + 45;
/// Both authorities of a test have the same name, so that it is the signature that is wrong.
const DECRYPT_ERROR: u64 = 0x100 + 51;

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
        .client_identity(authority.sign("other", -1..30))
}

/// A client that keeps its session.
struct Client<'a> {
    pair: &'a Pair,
    authority: &'a Authority,
    identity: Identity,
}

impl Client<'_> {
    fn connect(&self, session: Option<&[u8]>) -> Peer {
        let mut peer = Peer::of(self.pair, &self.authority.ca, Some(&self.identity), |config| {
            config.enable_early_data()
        });
        if let Some(session) = session {
            peer.quic.set_session(session).unwrap();
            // What goes with the first flight: the control stream of HTTP/3.
            let sent = peer.quic.stream_send(2, &[0], false);
            assert!(sent.is_ok() || !peer.quic.is_in_early_data(), "{sent:?}");
        }
        peer
    }

    /// A session that works now.
    fn session(&self) -> Vec<u8> {
        let mut peer = self.connect(None);
        let session =
            peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.session().map(<[u8]>::to_vec));
        session.unwrap_or_else(|| panic!("no session: {:?}", peer.quic.peer_error()))
    }

    fn resumes(&self, session: &[u8]) {
        let mut peer = self.connect(Some(session));
        let established =
            peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(()));
        assert!(established.is_some() && peer.quic.is_resumed(), "{:?}", peer.quic.peer_error());
        assert_eq!(peer.quic.early_data_reason(), EARLY_DATA_ACCEPTED);
    }

    /// The server closes with `code`, without having accepted session or early data.
    fn is_refused(&self, session: &[u8], code: u64) {
        let mut peer = self.connect(Some(session));
        peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.peer_error().map(|_| ()));
        let error = peer.quic.peer_error().expect("the server refuses");
        assert_eq!((error.is_app, error.error_code), (false, code), "{error:?}");
        assert!(!peer.quic.is_resumed());
        assert_ne!(peer.quic.early_data_reason(), EARLY_DATA_ACCEPTED);
    }

    fn failures(&self, reason: &str) -> f64 {
        let metrics = Metrics::fetch(self.pair.addresses.server_admin);
        metrics.sum("millrace_handshake_failures_total", &[("reason", reason)])
    }
}

#[test]
fn expired_client_is_refused_with_its_ticket_and_early_data() {
    let (_dir, authority) = authority();
    let pair = trusting(&authority).start();
    let now = OffsetDateTime::now_utc();
    let until = now + Duration::from_secs(3);
    let identity = authority.sign_for("edge", now - Duration::from_secs(60), until);
    let client = Client { pair: &pair, authority: &authority, identity };
    let session = client.session();
    client.resumes(&session);
    wait::for_true("the certificate has expired", wait::DEFAULT_TIMEOUT, || {
        OffsetDateTime::now_utc() > until + Duration::from_secs(1)
    });
    client.is_refused(&session, CERTIFICATE_EXPIRED);
    // Counted once the connection has drained.
    wait::for_true("it is counted", wait::DEFAULT_TIMEOUT, || client.failures("expired") == 1.0);
}

#[test]
fn client_denied_by_name_is_refused_after_reload_and_disconnected() {
    let (dir, authority) = authority();
    let list = dir.path().join("denied.txt");
    fs::write(&list, "name somebody-else\n").unwrap();
    let pair = trusting(&authority)
        .server("tunnel.denied_clients", format!("\"{}\"", list.display()))
        .start();
    let identity = authority.sign("edge", -1..30);
    let client = Client { pair: &pair, authority: &authority, identity };
    let session = client.session();
    client.resumes(&session);
    let mut running = client.connect(None);
    running.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(())).unwrap();
    fs::write(&list, "name EDGE # stolen\n").unwrap();
    pair.server.signal(Signal::SIGHUP);
    running.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.peer_error().map(|_| ()));
    let error = running.quic.peer_error().expect("the connection is closed");
    assert_eq!(error.error_code, CERTIFICATE_REVOKED, "{error:?}");
    client.is_refused(&session, CERTIFICATE_REVOKED);
    wait::for_true("it is counted", wait::DEFAULT_TIMEOUT, || client.failures("denied") == 1.0);
    // The other client of this authority goes on.
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
}

#[test]
fn client_denied_by_serial_is_refused() {
    let (dir, authority) = authority();
    let list = dir.path().join("denied.txt");
    fs::write(&list, "").unwrap();
    let pair = trusting(&authority)
        .server("tunnel.denied_clients", format!("\"{}\"", list.display()))
        .start();
    let identity = authority.sign("edge", -1..30);
    let pem = fs::read(&identity.certificate).unwrap();
    let serial = boring::x509::X509::from_pem(&pem).unwrap().serial_number().to_bn().unwrap();
    let client = Client { pair: &pair, authority: &authority, identity };
    let session = client.session();
    fs::write(&list, format!("serial {}\n", serial.to_hex_str().unwrap())).unwrap();
    pair.server.signal(Signal::SIGHUP);
    pair.server.expect_log("the reload", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("configuration reloaded").then_some(())
    });
    client.is_refused(&session, CERTIFICATE_REVOKED);
}

/// Sessions survive a reload, so that the authorities of then must not count.
#[test]
fn client_of_a_removed_authority_does_not_resume() {
    let ((_dir, old), (_other_dir, new)) = (authority(), authority());
    let pair = trusting(&old).start();
    let identity = old.sign("edge", -1..30);
    let client = Client { pair: &pair, authority: &old, identity };
    let session = client.session();
    let reload = |from: &Authority, to: &Authority| {
        let file = pair.dir().join("server.toml");
        let text = fs::read_to_string(&file).unwrap();
        let key = |authority: &Authority| format!("client_ca = \"{}\"", authority.ca.display());
        fs::write(&file, text.replace(&key(from), &key(to))).unwrap();
        let before = pair.server.log_text().matches("configuration reloaded").count();
        pair.server.signal(Signal::SIGHUP);
        wait::for_true("the reload", wait::DEFAULT_TIMEOUT, || {
            pair.server.log_text().matches("configuration reloaded").count() > before
        });
    };
    reload(&old, &new);
    client.is_refused(&session, DECRYPT_ERROR);
    reload(&new, &old);
    client.resumes(&session);
}

#[test]
fn expired_ticket_costs_a_full_handshake_only() {
    let (_dir, authority) = authority();
    let pair = trusting(&authority)
        .server("tunnel.session_ticket_lifetime_s", 1)
        .server("tunnel.session_ticket_rotation_s", 1)
        .start();
    let client =
        Client { pair: &pair, authority: &authority, identity: authority.sign("edge", -1..30) };
    let session = client.session();
    let made = std::time::Instant::now();
    wait::for_true("the ticket is old", wait::DEFAULT_TIMEOUT, || {
        made.elapsed() > Duration::from_secs(3)
    });
    let mut peer = client.connect(Some(&session));
    peer.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(())).unwrap();
    assert!(!peer.quic.is_resumed());
}
