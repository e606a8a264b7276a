//! A listener and clients in one process.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boring::sha::sha256;
use boring::x509::X509;
use millrace_config::{ClientConfig, HostPort, ServerConfig};
use millrace_ops::certificates::{
    self, Authority, CertificatesArgs, Identity, Validity, load_authority,
};
use millrace_ops::published::Published;
use millrace_tunnel::algorithms;
use millrace_tunnel::metrics::{EnrolmentResult, Metrics};
use millrace_wire::Destination;
use millrace_wire::enrolment::{EnrolmentRefusal, InviteSecret, InviteToken};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

use crate::{
    ClientSide, EnrolledClient, EnrolmentFailure, EnrolmentListener, EnrolmentService, Invites,
    SigningKey, enrol, renew, renew_server_certificate,
};

const SERVER_NAME: &str = "millrace.test";

struct EnrolmentServer {
    directory: TempDir,
    address: SocketAddr,
    service: Published<EnrolmentService>,
    metrics: Arc<Metrics>,
    _listener: EnrolmentListener,
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

fn make_certificates(directory: &Path) {
    let arguments = CertificatesArgs {
        dir: directory.to_owned(),
        server_name: vec![SERVER_NAME.parse().unwrap()],
        client: Some(Vec::new()),
        days: 30,
        renew: false,
        list: false,
    };
    certificates::run(&arguments, now()).unwrap();
}

fn server_config(directory: &Path, lifetime_s: u64) -> ServerConfig {
    let text = format!(
        "[tunnel]\nlisten = [\"127.0.0.1:4433\"]\nclient_ca = \"ca.pem\"\ncertificate = \"server.pem\"\n\
         private_key = \"server.key\"\ndenied_clients = \"denied.txt\"\n[enrolment]\nlisten = [\"127.0.0.1:0\"]\n\
         public_address = \"{SERVER_NAME}:4433\"\nauthority_dir = \".\"\ncertificate_lifetime_s = {lifetime_s}\n"
    );
    millrace_config::parse_server(&text, &directory.join("server.toml"), &algorithms::check)
        .unwrap()
}

impl EnrolmentServer {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        make_certificates(directory.path());
        fs::write(directory.path().join("denied.txt"), "").unwrap();
        let config = server_config(directory.path(), 3600);
        let listeners = crate::bind(config.enrolment.as_ref()).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let service = Published::new(EnrolmentService::new(&config).unwrap().unwrap());
        let metrics = Metrics::new("millrace-server", "0").unwrap();
        let listener =
            EnrolmentListener::start(listeners, service.clone(), metrics.clone()).unwrap();
        Self { directory, address, service, metrics, _listener: listener }
    }

    fn reload(&self) {
        let config = server_config(self.directory.path(), 3600);
        self.service.set(EnrolmentService::new(&config).unwrap().unwrap());
    }

    fn invite(&self, name: &str, lifetime: Duration) -> InviteToken {
        let invites = Invites::new(self.directory.path());
        let made = invites.create(&name.parse().unwrap(), lifetime, now()).unwrap();
        let authority = load_authority(self.directory.path()).unwrap().certificate().unwrap();
        InviteToken {
            invite: made.id,
            secret: made.secret,
            authority: sha256(&authority.to_der().unwrap()),
            expires: made.expires,
            server: Destination::from_address(self.address).unwrap(),
            server_name: Some(SERVER_NAME.to_owned()),
        }
    }

    fn side(&self) -> ClientSide {
        let server = HostPort {
            host: millrace_config::Host::Ip(self.address.ip()),
            port: self.address.port(),
        };
        ClientSide { server, server_name: SERVER_NAME.parse().unwrap(), mark: None }
    }

    fn enrol(&self, token: &InviteToken) -> Result<(EnrolledClient, SigningKey), EnrolmentFailure> {
        let key = SigningKey::generate().unwrap();
        enrol(&self.side(), token, &key).map(|enrolled| (enrolled, key))
    }

    /// A client's configuration with this certificate.
    fn client(&self, certificate: &str, key: &str) -> ClientConfig {
        let directory = self.directory.path().join("client");
        fs::create_dir_all(&directory).unwrap();
        fs::copy(self.directory.path().join("ca.pem"), directory.join("ca.pem")).unwrap();
        fs::write(directory.join("client.pem"), certificate).unwrap();
        fs::write(directory.join("client.key"), key).unwrap();
        let text = format!(
            "[tunnel]\nservers = [\"{0}\"]\nserver_name = \"{SERVER_NAME}\"\nca = \"ca.pem\"\n\
             certificate = \"client.pem\"\nprivate_key = \"client.key\"\n[enrolment]\nserver = \"{0}\"\n\
             [[listen]]\nmode = \"http_connect\"\naddress = \"127.0.0.1:3128\"\n",
            self.address
        );
        millrace_config::parse_client(&text, &directory.join("client.toml"), &algorithms::check)
            .unwrap()
    }
}

fn refusal<T>(result: Result<T, EnrolmentFailure>) -> EnrolmentRefusal {
    match result {
        Err(EnrolmentFailure::Refused(reason)) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

fn renewal_refusal(config: &ClientConfig) -> EnrolmentRefusal {
    refusal(renew(config).map_err(|error| error.downcast::<EnrolmentFailure>().unwrap()))
}

fn serial(pem: &[u8]) -> Vec<u8> {
    X509::from_pem(pem).unwrap().serial_number().to_bn().unwrap().to_vec()
}

fn common_name(pem: &[u8]) -> String {
    let certificate = X509::from_pem(pem).unwrap();
    let mut names = certificate.subject_name().entries_by_nid(boring::nid::Nid::COMMONNAME);
    names.next().unwrap().data().as_utf8().unwrap().to_string()
}

#[test]
fn token_gets_a_certificate_for_the_invited_name_once() {
    let server = EnrolmentServer::start();
    let token = server.invite("edge-1", Duration::HOUR);
    let (enrolled, _) = server.enrol(&token).unwrap();
    assert_eq!(common_name(enrolled.certificate.as_bytes()), "edge-1");
    let ca = fs::read_to_string(server.directory.path().join("ca.pem")).unwrap();
    assert_eq!(enrolled.authority, ca);
    assert_eq!(refusal(server.enrol(&token)), EnrolmentRefusal::Invite);
    let enrolments = &server.metrics.enrolments;
    let counts = [EnrolmentResult::Joined, EnrolmentResult::InvalidInvitation];
    assert_eq!(counts.map(|result| enrolments.of(result).get()), [1, 1]);
    let listed = certificates::list(server.directory.path()).unwrap();
    assert!(listed.iter().any(|line| line.ends_with(" name edge-1")), "{listed:?}");
}

#[test]
fn expired_and_wrong_secrets_are_refused() {
    let server = EnrolmentServer::start();
    let expired = server.invite("edge-1", Duration::seconds(-1));
    assert_eq!(refusal(server.enrol(&expired)), EnrolmentRefusal::Invite);
    let good = server.invite("edge-1", Duration::HOUR);
    let guessed = InviteToken { secret: InviteSecret([0; 16]), ..good.clone() };
    assert_eq!(refusal(server.enrol(&guessed)), EnrolmentRefusal::Invite);
    server.enrol(&good).unwrap();
}

#[test]
fn secret_is_not_sent_to_a_server_of_another_authority() {
    let (server, other) = (EnrolmentServer::start(), EnrolmentServer::start());
    let token = server.invite("edge-1", Duration::HOUR);
    let error = other.enrol(&token).unwrap_err();
    assert!(matches!(error, EnrolmentFailure::Untrusted(_)), "{error}");
    let named = InviteToken { server_name: Some("other.test".to_owned()), ..token.clone() };
    let side = ClientSide { server_name: "other.test".parse().unwrap(), ..server.side() };
    let error = enrol(&side, &named, &SigningKey::generate().unwrap()).unwrap_err();
    assert!(error.to_string().contains("not accepted"), "{error}");
    // It is as good as before.
    server.enrol(&token).unwrap();
}

#[test]
fn client_is_no_server() {
    let server = EnrolmentServer::start();
    let token = server.invite("millrace.test", Duration::HOUR);
    let (enrolled, key) = server.enrol(&token).unwrap();
    // What a client that intercepts connections could show, with the authority behind it.
    let path = |name: &str| server.directory.path().join(name);
    fs::write(path("chain.pem"), format!("{}{}", enrolled.certificate, enrolled.authority))
        .unwrap();
    fs::write(path("impostor.key"), key.to_pem()).unwrap();
    let impostor = impostor(&path("chain.pem"), &path("impostor.key"));
    let token = server.invite("edge-2", Duration::HOUR);
    let [host, port] = [impostor.ip().to_string(), impostor.port().to_string()];
    let side = ClientSide { server: format!("{host}:{port}").parse().unwrap(), ..server.side() };
    let error = enrol(&side, &token, &SigningKey::generate().unwrap()).unwrap_err();
    assert!(matches!(error, EnrolmentFailure::Untrusted(_)), "{error}");
}

/// A TLS server with these files, for one connection.
fn impostor(chain: &Path, key: &Path) -> SocketAddr {
    use boring::ssl::{Ssl, SslContext, SslFiletype, SslMethod};
    let mut context = SslContext::builder(SslMethod::tls()).unwrap();
    context.set_certificate_chain_file(chain).unwrap();
    context.set_private_key_file(key, SslFiletype::PEM).unwrap();
    let context = context.build();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        Ssl::new(&context).unwrap().accept(stream).map(drop).ok();
    });
    address
}

#[test]
fn renewed_certificate_has_the_same_name_and_key_and_another_serial_number() {
    let server = EnrolmentServer::start();
    let token = server.invite("edge-1", Duration::HOUR);
    let (enrolled, key) = server.enrol(&token).unwrap();
    let config = server.client(&enrolled.certificate, &key.to_pem());
    renew(&config).unwrap();
    assert_eq!(server.metrics.enrolments.of(EnrolmentResult::Renewed).get(), 1);
    let renewed = fs::read(&config.tunnel.credentials.certificate).unwrap();
    assert_ne!(serial(&renewed), serial(enrolled.certificate.as_bytes()));
    assert_eq!(common_name(&renewed), "edge-1");
    renew(&config).unwrap();
}

#[test]
fn denied_client_renews_nothing() {
    let server = EnrolmentServer::start();
    let (enrolled, key) = server.enrol(&server.invite("edge-1", Duration::HOUR)).unwrap();
    let config = server.client(&enrolled.certificate, &key.to_pem());
    let denied = server.directory.path().join("denied.txt");
    let hex: String =
        serial(enrolled.certificate.as_bytes()).iter().map(|it| format!("{it:02x}")).collect();
    for entry in [format!("serial {hex}\n"), "name EDGE-1\n".to_owned()] {
        fs::write(&denied, entry).unwrap();
        server.reload();
        assert_eq!(renewal_refusal(&config), EnrolmentRefusal::Denied);
    }
    assert_eq!(server.metrics.enrolments.of(EnrolmentResult::ClientDenied).get(), 2);
    // The name is denied, whatever the certificate.
    let token = server.invite("edge-1", Duration::HOUR);
    assert_eq!(refusal(server.enrol(&token)), EnrolmentRefusal::Denied);
    fs::write(&denied, "").unwrap();
    server.reload();
    renew(&config).unwrap();
}

#[test]
fn expired_foreign_and_server_certificates_renew_nothing() {
    let server = EnrolmentServer::start();
    let identity = Identity::Client { name: "edge-1".to_owned() };
    let good = Validity::days(now(), 1);
    let own = load_authority(server.directory.path()).unwrap();
    let past = Validity { not_after: now() - Duration::MINUTE, ..good };
    let expired = own.issue(&identity, &past).unwrap();
    let foreign = Authority::generate(&good).unwrap().issue(&identity, &good).unwrap();
    let names = vec![SERVER_NAME.parse().unwrap()];
    let of_a_server = own.issue(&Identity::Server { names }, &good).unwrap();
    for issued in [expired, foreign, of_a_server] {
        let config = server.client(&issued.certificate, &issued.private_key);
        assert!(renew(&config).is_err());
        let kept = fs::read_to_string(&config.tunnel.credentials.certificate).unwrap();
        assert_eq!(kept, issued.certificate);
    }
}

#[test]
fn server_renews_its_own_certificate() {
    let directory = tempfile::tempdir().unwrap();
    make_certificates(directory.path());
    fs::write(directory.path().join("denied.txt"), "").unwrap();
    let config = server_config(directory.path(), 3600);
    let path: PathBuf = directory.path().join("server.pem");
    let before = fs::read(&path).unwrap();
    renew_server_certificate(&config, now()).unwrap();
    let after = fs::read(&path).unwrap();
    assert_ne!(serial(&before), serial(&after));
    let names =
        |pem: &[u8]| millrace_tunnel::credentials::alternative_names(&X509::from_pem(pem).unwrap());
    assert_eq!(names(&before), names(&after));
    // The key is as before: the service starts with it.
    EnrolmentService::new(&config).unwrap().unwrap();
    let schedule = crate::RenewalSchedule::of(&X509::from_pem(&after).unwrap()).unwrap();
    let left = schedule.due - now().unix_timestamp();
    assert!((2390..=2400).contains(&left), "{left}");
}

#[test]
fn certificates_do_not_outlive_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    make_certificates(directory.path());
    fs::write(directory.path().join("denied.txt"), "").unwrap();
    let config = server_config(directory.path(), 315_360_000);
    renew_server_certificate(&config, now() + Duration::days(100)).unwrap();
    let end = |name: &str| {
        let pem = fs::read(directory.path().join(name)).unwrap();
        crate::renewal::unix_time(X509::from_pem(&pem).unwrap().not_after()).unwrap()
    };
    assert_eq!(end("server.pem"), end("ca.pem"));
    let later = now() + Duration::days(4000);
    let error = renew_server_certificate(&config, later).unwrap_err().to_string();
    assert!(error.contains("expired"), "{error}");
}

#[test]
fn garbage_and_silence_do_not_keep_others_from_enrolling() {
    let server = EnrolmentServer::start();
    // As many as one source may have, less one.
    let mut silent: Vec<_> = (0..3).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    silent[0].write_all(&[0xff; 64]).unwrap();
    let mut answer = Vec::new();
    silent[0].read_to_end(&mut answer).ok();
    server.enrol(&server.invite("edge-1", Duration::HOUR)).unwrap();
    // Beyond them connections are closed at once.
    let mut more: Vec<_> = (0..8).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let last = more.last_mut().unwrap();
    last.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    match last.read(&mut [0; 1]) {
        Ok(0) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn attempts_of_a_source_are_limited() {
    let server = EnrolmentServer::start();
    let token = server.invite("edge-1", Duration::HOUR);
    let guessed = InviteToken { secret: InviteSecret([0; 16]), ..token };
    let failures: Vec<_> = (0..30).map(|_| server.enrol(&guessed).unwrap_err()).collect();
    let refused = failures.iter().filter(|it| matches!(it, EnrolmentFailure::Refused(_))).count();
    assert!((20..30).contains(&refused), "{refused}");
}

#[test]
fn configuration_without_a_matching_authority_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let config = server_config(directory.path(), 3600);
    let problem = |config: &ServerConfig| EnrolmentService::new(config).err().unwrap().to_string();
    assert!(problem(&config).contains("there is no authority"), "{}", problem(&config));
    make_certificates(directory.path());
    let other = tempfile::tempdir().unwrap();
    make_certificates(other.path());
    fs::copy(other.path().join("ca.pem"), directory.path().join("other.pem")).unwrap();
    let mut foreign = config.clone();
    foreign.tunnel.credentials.ca = directory.path().join("other.pem");
    assert!(problem(&foreign).contains("lacks the authority"), "{}", problem(&foreign));
    let mut foreign = config.clone();
    foreign.tunnel.credentials.certificate = other.path().join("server.pem");
    assert!(
        problem(&foreign).contains("does not come from the authority"),
        "{}",
        problem(&foreign)
    );
}
