use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use boring::nid::Nid;
use boring::pkey::PKey;
use boring::ssl::{SslAcceptor, SslConnector, SslMethod, SslVerifyMode};
use boring::x509::X509;
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

use super::*;

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

fn arguments(directory: &TempDir, clients: &[&str]) -> CertificatesArgs {
    CertificatesArgs {
        dir: directory.path().join("certificates"),
        server_name: vec!["millrace-server".parse().unwrap(), "198.18.2.2".parse().unwrap()],
        client: Some(clients.iter().map(|name| name.parse().unwrap()).collect()),
        days: 30,
        renew: false,
        list: false,
    }
}

fn outcomes(reports: &[CertificateReport]) -> Vec<CertificateOutcome> {
    reports.iter().map(|report| report.outcome).collect()
}

fn contents(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Whether a client and a server with these certificates accept each other.
fn handshake(ca: &str, server: &Issued, client: &Issued, name: &str) -> Result<(), String> {
    let ca = X509::from_pem(ca.as_bytes()).unwrap();
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
    acceptor.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    acceptor.cert_store_mut().add_cert(ca.clone()).unwrap();
    acceptor.set_certificate(&X509::from_pem(server.certificate.as_bytes()).unwrap()).unwrap();
    acceptor
        .set_private_key(&PKey::private_key_from_pem(server.private_key.as_bytes()).unwrap())
        .unwrap();
    let acceptor = acceptor.build();
    let mut connector = SslConnector::builder(SslMethod::tls()).unwrap();
    connector.cert_store_mut().add_cert(ca).unwrap();
    connector.set_certificate(&X509::from_pem(client.certificate.as_bytes()).unwrap()).unwrap();
    connector
        .set_private_key(&PKey::private_key_from_pem(client.private_key.as_bytes()).unwrap())
        .unwrap();
    let connector = connector.build();
    let (client_end, server_end) = std::os::unix::net::UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let server =
            scope.spawn(move || acceptor.accept(server_end).map(drop).map_err(|e| e.to_string()));
        let client = connector.connect(name, client_end).map(drop).map_err(|e| e.to_string());
        client.and(server.join().unwrap())
    })
}

#[test]
fn what_the_command_makes_works_for_mutual_tls() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = arguments(&directory, &["alice", "bob"]);
    let reports = run(&arguments, now()).unwrap();
    assert_eq!(outcomes(&reports), [CertificateOutcome::Created; 4]);
    let names = ["ca", "server", "alice", "bob"];
    let [ca, server, alice, bob] = names.map(|name| {
        let read = |extension| {
            fs::read_to_string(arguments.dir.join(format!("{name}.{extension}"))).unwrap()
        };
        Issued { certificate: read("pem"), private_key: read("key") }
    });
    for client in [&alice, &bob] {
        for name in ["millrace-server", "198.18.2.2"] {
            handshake(&ca.certificate, &server, client, name).unwrap();
        }
        let certificate = X509::from_pem(client.certificate.as_bytes()).unwrap();
        let common = certificate.subject_name().entries_by_nid(Nid::COMMONNAME).next().unwrap();
        let alternatives = certificate.subject_alt_names().expect("there are such names");
        let [alternative] = alternatives.iter().collect::<Vec<_>>()[..] else { panic!("one name") };
        assert_eq!(alternative.dnsname().unwrap().as_bytes(), common.data().as_slice());
    }
    handshake(&ca.certificate, &server, &alice, "other-server").unwrap_err();
    handshake(&ca.certificate, &alice, &alice, "alice").unwrap_err();
    handshake(&ca.certificate, &server, &server, "millrace-server").unwrap_err();
}

#[test]
fn keys_are_their_owners_only_and_nothing_else_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = arguments(&directory, &["client"]);
    run(&arguments, now()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&arguments.dir), 0o700);
    let files = contents(&arguments.dir);
    // Three pairs, and the list of what was issued.
    assert_eq!(files.len(), 7, "{files:?}");
    for (path, content) in files {
        let is_key = path.extension().is_some_and(|extension| extension == "key");
        assert_eq!(mode(&path), if is_key { 0o600 } else { 0o644 }, "{}", path.display());
        assert_eq!(content.contains("PRIVATE KEY"), is_key);
    }
}

#[test]
fn a_second_run_keeps_all_and_adds_what_is_new() {
    let directory = tempfile::tempdir().unwrap();
    let first = arguments(&directory, &["alice"]);
    run(&first, now()).unwrap();
    let before = contents(&first.dir);
    assert_eq!(outcomes(&run(&first, now()).unwrap()), [CertificateOutcome::Kept; 3]);
    assert_eq!(contents(&first.dir), before);
    let reports = run(&arguments(&directory, &["alice", "bob"]), now()).unwrap();
    assert_eq!(
        outcomes(&reports),
        [
            CertificateOutcome::Kept,
            CertificateOutcome::Kept,
            CertificateOutcome::Kept,
            CertificateOutcome::Created
        ]
    );
}

#[test]
fn renew_replaces_all_but_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = arguments(&directory, &["client"]);
    run(&arguments, now()).unwrap();
    let before = contents(&arguments.dir);
    arguments.renew = true;
    let reports = run(&arguments, now()).unwrap();
    assert_eq!(
        outcomes(&reports),
        [CertificateOutcome::Kept, CertificateOutcome::Renewed, CertificateOutcome::Renewed]
    );
    for (old, new) in before.iter().zip(contents(&arguments.dir)) {
        let is_authority = new.0.file_stem().is_some_and(|stem| stem == "ca");
        assert_eq!(old.1 == new.1, is_authority, "{}", new.0.display());
    }
}

#[test]
fn renew_without_a_client_makes_none_again_that_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let named = arguments(&directory, &["edge"]);
    run(&named, now()).unwrap();
    let unnamed = CertificatesArgs { client: None, renew: true, ..named.clone() };
    let renewed = [CertificateOutcome::Kept, CertificateOutcome::Renewed];
    assert_eq!(outcomes(&run(&unnamed, now()).unwrap()), renewed);
    assert!(!named.dir.join("client.pem").exists());
    let first = CertificatesArgs { renew: false, ..unnamed.clone() };
    run(&first, now()).unwrap();
    assert!(named.dir.join("client.pem").exists());
    assert_eq!(run(&unnamed, now()).unwrap().len(), 3);
}

#[test]
fn a_pair_that_is_not_right_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = arguments(&directory, &["client"]);
    run(&arguments, now()).unwrap();
    let path = |name: &str| arguments.dir.join(name);
    let good = contents(&arguments.dir);
    let other = Authority::generate(&Validity::days(now(), 30)).unwrap();
    let client = Identity::Client { name: "client".to_owned() };
    let foreign = other.issue(&client, &Validity::days(now(), 30)).unwrap();
    let restore = || good.iter().for_each(|(path, content)| fs::write(path, content).unwrap());
    type Damage<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let damages: [Damage<'_>; 6] = [
        ("client.key does not", Box::new(|| fs::remove_file(path("client.key")).unwrap())),
        ("ca.pem does not", Box::new(|| fs::remove_file(path("ca.pem")).unwrap())),
        (
            "another certificate's",
            Box::new(|| fs::write(path("client.key"), &foreign.private_key).unwrap()),
        ),
        (
            "doesn't come from the authority",
            Box::new(|| {
                fs::write(path("client.pem"), &foreign.certificate).unwrap();
                fs::write(path("client.key"), &foreign.private_key).unwrap();
            }),
        ),
        ("no PEM certificate", Box::new(|| fs::write(path("server.pem"), "x").unwrap())),
        ("no PEM private key", Box::new(|| fs::write(path("server.key"), "x").unwrap())),
    ];
    for (expected, damage) in damages {
        damage();
        let damaged = contents(&arguments.dir);
        let error = run(&arguments, now()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(contents(&arguments.dir), damaged);
        restore();
    }
    let renamed = CertificatesArgs { server_name: vec!["new".parse().unwrap()], ..arguments };
    let error = run(&renamed, now()).unwrap_err().to_string();
    assert!(error.contains("isn't for \"new\"; --renew replaces it"), "{error}");
}

#[test]
fn an_authority_that_expires_first_signs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = arguments(&directory, &["client"]);
    run(&arguments, now()).unwrap();
    arguments.renew = true;
    let error = run(&arguments, now() + Duration::days(3640)).unwrap_err().to_string();
    assert!(error.contains("the authority expires on"), "{error}");
    arguments.days = 36500;
    assert!(run(&arguments, now()).is_err());
}

#[test]
fn expired_and_foreign_certificates_can_be_made_and_are_refused() {
    let month = Validity::days(now(), 30);
    let authority = Authority::generate(&month).unwrap();
    let server = Identity::Server { names: vec!["millrace-server".parse().unwrap()] };
    let client = Identity::Client { name: "client".to_owned() };
    let server = authority.issue(&server, &month).unwrap();
    let good = authority.issue(&client, &month).unwrap();
    let over = Validity { not_after: now() - Duration::HOUR, ..month };
    let over = Validity { not_before: over.not_after - Duration::DAY, ..over };
    let expired = authority.issue(&client, &over).unwrap();
    let early = Validity { not_before: now() + Duration::HOUR, ..month };
    let early = authority.issue(&client, &early).unwrap();
    let foreign = Authority::generate(&month).unwrap().issue(&client, &month).unwrap();
    let ca = &authority.issued().certificate;
    handshake(ca, &server, &good, "millrace-server").unwrap();
    for bad in [expired, early, foreign] {
        handshake(ca, &server, &bad, "millrace-server").unwrap_err();
    }
}

#[test]
fn a_client_cannot_be_called_as_it_likes() {
    for name in ["", "ca", "server", "../x", "a/b", ".hidden", "-x", "a b", &"x".repeat(65)] {
        assert!(name.parse::<ClientName>().is_err(), "{name:?}");
    }
    for name in ["client", "edge-1.example_net", &"x".repeat(64)] {
        assert_eq!(name.parse::<ClientName>().unwrap().as_str(), name);
    }
}

#[test]
fn no_key_is_shown_by_debug() {
    let authority = Authority::generate(&Validity::days(now(), 1)).unwrap();
    assert!(!format!("{:?}", authority.issued()).contains("PRIVATE"));
}

#[test]
fn list_has_the_serial_numbers_of_renewed_certificates_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = arguments(&directory, &["edge-1"]);
    run(&arguments, now()).unwrap();
    arguments.renew = true;
    run(&arguments, now()).unwrap();
    let lines = list(&arguments.dir).unwrap();
    let named = |name: &str| lines.iter().filter(|line| line.ends_with(name)).count();
    assert_eq!((lines.len(), named(" name edge-1"), named(" name server")), (4, 2, 2), "{lines:?}");
    let pem = fs::read(arguments.dir.join("edge-1.pem")).unwrap();
    let certificate = X509::from_pem(&pem).unwrap();
    let serial = certificate.serial_number().to_bn().unwrap();
    let newest = lines.iter().rfind(|line| line.contains("edge-1")).unwrap();
    let denied = newest.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let denied = millrace_config::DeniedClients::parse(&denied).unwrap();
    assert!(denied.entry(&serial.to_vec(), &[]).is_some(), "{newest}");
    // Those of an earlier version.
    fs::remove_file(arguments.dir.join("issued.txt")).unwrap();
    assert_eq!(list(&arguments.dir).unwrap().len(), 2);
}

#[test]
fn list_that_is_full_keeps_certificates_from_being_issued() {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = arguments(&directory, &["edge-1"]);
    run(&arguments, now()).unwrap();
    let before = fs::read(arguments.dir.join("edge-1.pem")).unwrap();
    fs::write(arguments.dir.join("issued.txt"), vec![b'\n'; 16 << 20]).unwrap();
    arguments.renew = true;
    let error = run(&arguments, now()).unwrap_err().to_string();
    assert!(error.contains("remove lines"), "{error}");
    assert_eq!(fs::read(arguments.dir.join("edge-1.pem")).unwrap(), before);
}
