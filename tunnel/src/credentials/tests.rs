use std::os::unix::net::UnixStream;
use std::time::Duration;

use boring::asn1::Asn1Integer;
use boring::bn::BigNum;
use boring::ec::{EcGroup, EcKey};
use boring::hash::MessageDigest;
use boring::rsa::Rsa;
use boring::ssl::{SslContextBuilder, SslFiletype, SslMethod, SslVerifyMode, SslVersion};
use boring::symm::Cipher;
use boring::x509::extension::{BasicConstraints, ExtendedKeyUsage, SubjectAlternativeName};
use boring::x509::{X509Builder, X509NameBuilder};
use tempfile::TempDir;

use super::*;

const DAY_S: i64 = 86_400;
/// What a good certificate has.
const GOOD: Leaf = Leaf { days: -1..365, server: true, client: false, name: true };

fn ec(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

#[derive(Clone)]
struct Leaf {
    days: std::ops::Range<i64>,
    server: bool,
    client: bool,
    name: bool,
}

/// A directory with an authority, and what it issues.
struct Site {
    dir: TempDir,
    key: PKey<Private>,
    ca: X509,
}

fn begin(name: &str, key: &PKey<Private>, days: &std::ops::Range<i64>) -> X509Builder {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = |days: i64| {
        Asn1Time::from_unix(i64::try_from(now.as_secs()).unwrap() + days * DAY_S).unwrap()
    };
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    let subject = subject.build();
    let serial = BigNum::from_u32(u32::try_from(name.len()).unwrap() + 7).unwrap();
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(2).unwrap();
    builder.set_serial_number(&Asn1Integer::from_bn(&serial).unwrap()).unwrap();
    builder.set_subject_name(&subject).unwrap();
    builder.set_issuer_name(&subject).unwrap();
    builder.set_not_before(&at(days.start)).unwrap();
    builder.set_not_after(&at(days.end)).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
}

impl Site {
    fn new(ca_flag: bool) -> Self {
        let key = ec(Nid::X9_62_PRIME256V1);
        let mut builder = begin("authority", &key, &(-1..365));
        if ca_flag {
            builder.append_extension(&BasicConstraints::new().ca().build().unwrap()).unwrap();
        }
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        let site = Self { dir: tempfile::tempdir().unwrap(), key, ca: builder.build() };
        site.write("ca.pem", &site.ca.to_pem().unwrap());
        site
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.dir.path().join(name), content).unwrap();
    }

    /// Writes `own.pem` and `own.key`.
    fn issue(&self, key: &PKey<Private>, leaf: &Leaf) {
        let mut builder = begin("own", key, &leaf.days);
        builder.set_issuer_name(self.ca.subject_name()).unwrap();
        let mut usage = ExtendedKeyUsage::new();
        if leaf.server {
            usage.server_auth();
        }
        if leaf.client {
            usage.client_auth();
        }
        builder.append_extension(&usage.build().unwrap()).unwrap();
        if leaf.name {
            let context = builder.x509v3_context(None, None);
            let names = SubjectAlternativeName::new().dns("own.test").build(&context).unwrap();
            builder.append_extension(&names).unwrap();
        }
        builder.sign(&self.key, MessageDigest::sha256()).unwrap();
        self.write("own.pem", &builder.build().to_pem().unwrap());
        self.write("own.key", &key.private_key_to_pem_pkcs8().unwrap());
    }

    fn credentials(&self) -> Credentials {
        let path = |name: &str| self.dir.path().join(name);
        Credentials {
            ca: path("ca.pem"),
            certificate: path("own.pem"),
            private_key: path("own.key"),
        }
    }

    fn problems(&self, end: CertificateOwner) -> Vec<Problem> {
        Contents::read(end, &self.credentials()).unwrap().problems
    }

    /// The only problem there is.
    fn problem(&self, end: CertificateOwner) -> Problem {
        let problems = self.problems(end);
        assert_eq!(problems.len(), 1, "{problems:?}");
        let problem = problems.into_iter().next().unwrap();
        for raw in ["ErrorStack", "error:", "OPENSSL", "routines", "cert_verify"] {
            assert!(!problem.to_string().contains(raw), "{problem}");
        }
        problem
    }
}

#[track_caller]
fn says(problem: &Problem, severity: Severity, key: &str, file: &str, what: &str, right: &str) {
    assert_eq!((problem.severity, problem.key), (severity, key), "{problem}");
    assert!(problem.file.ends_with(file), "{problem}");
    assert!(problem.what.contains(what) && problem.right.contains(right), "{problem}");
}

#[test]
fn good_files_have_no_problem() {
    let site = Site::new(true);
    site.issue(&ec(Nid::X9_62_PRIME256V1), &GOOD);
    assert_eq!(site.problems(CertificateOwner::Server), []);
    site.issue(&ec(Nid::SECP384R1), &Leaf { server: false, client: true, name: false, ..GOOD });
    assert_eq!(site.problems(CertificateOwner::Client), []);
    site.issue(
        &PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap(),
        &Leaf { client: true, ..GOOD },
    );
    assert_eq!(site.problems(CertificateOwner::Server), []);
    assert_eq!(site.problems(CertificateOwner::Client), []);
}

/// The types that are reported as refused are those that a handshake refuses.
#[test]
fn key_types_are_judged_as_the_handshake_does() {
    let keys = [
        ("P-256", ec(Nid::X9_62_PRIME256V1)),
        ("P-384", ec(Nid::SECP384R1)),
        ("RSA", PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap()),
        ("P-521", ec(Nid::SECP521R1)),
        ("Ed25519", PKey::generate(Id::ED25519).unwrap()),
    ];
    for (name, key) in keys {
        let site = Site::new(true);
        site.issue(&key, &Leaf { client: true, ..GOOD });
        let works = handshake_succeeds(&site.credentials());
        assert_eq!(site.problems(CertificateOwner::Server).is_empty(), works, "{name}");
        if !works {
            let problem = site.problem(CertificateOwner::Server);
            says(&problem, Severity::Refused, "tunnel.certificate", "own.pem", name, "P-256");
        }
        assert_eq!(works, !["P-521", "Ed25519"].contains(&name), "{name}");
    }
}

/// Whether two ends with the same files accept each other, as BoringSSL is set up by default.
fn handshake_succeeds(credentials: &Credentials) -> bool {
    let context = || {
        let mut tls = SslContextBuilder::new(SslMethod::tls()).unwrap();
        tls.set_min_proto_version(Some(SslVersion::TLS1_3)).unwrap();
        tls.set_ca_file(&credentials.ca).unwrap();
        tls.set_certificate_chain_file(&credentials.certificate).unwrap();
        tls.set_private_key_file(&credentials.private_key, SslFiletype::PEM).unwrap();
        tls.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        tls.build()
    };
    let ssl = || boring::ssl::Ssl::new(&context()).unwrap();
    let (client_end, server_end) = UnixStream::pair().unwrap();
    for socket in [&client_end, &server_end] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    let server = ssl();
    let accepted = std::thread::spawn(move || server.accept(server_end).is_ok());
    let connected = ssl().connect(client_end).is_ok();
    accepted.join().unwrap() && connected
}

#[test]
fn wrong_keys_are_named() {
    let site = Site::new(true);
    let key = ec(Nid::X9_62_PRIME256V1);
    site.issue(&key, &GOOD);
    let unusable = |what: &str, right: &str| {
        let problem = site.problem(CertificateOwner::Server);
        says(&problem, Severity::Unusable, "tunnel.private_key", "own.key", what, right);
    };
    site.write("own.key", &ec(Nid::X9_62_PRIME256V1).private_key_to_pem_pkcs8().unwrap());
    unusable("is the key of another certificate than", "made together");
    let encrypted =
        key.private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"secret").unwrap();
    site.write("own.key", &encrypted);
    unusable("is an encrypted key", "openssl pkey");
    site.write("own.key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    unusable("damaged", "copy it again");
    fs::remove_file(site.dir.path().join("own.key")).unwrap();
    unusable("can't be read", "readable");
}

#[test]
fn dates_are_compared_with_the_clock() {
    let site = Site::new(true);
    for (days, severity, what, right) in [
        (-30..-1, Severity::Refused, "has expired on", "--renew"),
        (1..30, Severity::Refused, "is valid from", "set the clock"),
        (-1..10, Severity::Warning, "less than 30 days", "--renew"),
    ] {
        site.issue(&ec(Nid::X9_62_PRIME256V1), &Leaf { days, ..GOOD });
        let problem = site.problem(CertificateOwner::Server);
        says(&problem, severity, "tunnel.certificate", "own.pem", what, right);
    }
}

#[test]
fn certificates_for_another_use_are_named() {
    let site = Site::new(true);
    let issue = |leaf: Leaf, end| {
        site.issue(&ec(Nid::X9_62_PRIME256V1), &leaf);
        site.problem(end)
    };
    let refused = |problem: &Problem, what: &str, right: &str| {
        says(problem, Severity::Refused, "tunnel.certificate", "own.pem", what, right);
    };
    let of_client = Leaf { server: false, client: true, ..GOOD };
    refused(&issue(of_client, CertificateOwner::Server), "is a client's certificate", "serverAuth");
    refused(&issue(GOOD, CertificateOwner::Client), "is a server's certificate", "clientAuth");
    refused(
        &issue(Leaf { name: false, ..GOOD }, CertificateOwner::Server),
        "no subject alternative name",
        "server_name",
    );
}

#[test]
fn authority_without_the_flag_is_named() {
    let site = Site::new(false);
    site.issue(&ec(Nid::X9_62_PRIME256V1), &GOOD);
    let problem = site.problem(CertificateOwner::Server);
    says(
        &problem,
        Severity::Refused,
        "tunnel.client_ca",
        "ca.pem",
        "no CA flag",
        "ca.pem of the authority",
    );
    // The certificate of the one peer there is, which no authority issued.
    let other = Site::new(true);
    site.write("own.pem", &[]);
    other.issue(&ec(Nid::X9_62_PRIME256V1), &Leaf { client: true, server: false, ..GOOD });
    for file in ["own.pem", "own.key"] {
        site.write(file, &fs::read(other.dir.path().join(file)).unwrap());
    }
    let problem = site.problem(CertificateOwner::Client);
    says(&problem, Severity::Warning, "tunnel.ca", "ca.pem", "no CA flag", "this very certificate");
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let site = Site::new(true);
    site.issue(&ec(Nid::X9_62_PRIME256V1), &GOOD);
    for (content, what) in [
        (site.ca.to_der().unwrap(), "in DER"),
        (b"hello".to_vec(), "has no PEM certificate"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
            "damaged PEM certificate",
        ),
    ] {
        site.write("ca.pem", &content);
        let problem = site.problem(CertificateOwner::Server);
        says(&problem, Severity::Unusable, "tunnel.client_ca", "ca.pem", what, "");
    }
}

#[test]
fn check_fails_for_what_peers_refuse_and_passes_on_warnings() {
    let site = Site::new(true);
    let source = Source::new("[tunnel]\n", Path::new("server.toml"));
    let check = || super::check(CertificateOwner::Server, &site.credentials(), &source);
    site.issue(&ec(Nid::X9_62_PRIME256V1), &Leaf { days: -1..10, ..GOOD });
    assert_eq!(check().unwrap().len(), 1);
    site.issue(&ec(Nid::SECP521R1), &GOOD);
    let error = check().unwrap_err().to_string();
    assert!(
        error.contains("tunnel.certificate")
            && error.contains("own.pem is for an ECDSA key on P-521"),
        "{error}"
    );
}
