//! Certificates: the good ones as the server's own command makes them, the bad ones by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;

use crate::binaries;
use crate::program::Program;

/// The name that the test server's certificate is for.
pub const SERVER_NAME: &str = "millrace.test";

/// One end's certificate and key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// PEM.
    pub certificate: PathBuf,
    /// PEM.
    pub private_key: PathBuf,
}

/// What `millrace-server certificates` makes.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The server's.
    pub server: Identity,
    /// The client's.
    pub client: Identity,
}

impl Certificates {
    /// Runs the command for the directory `dir`.
    ///
    /// # Panics
    /// When it fails.
    pub fn make(dir: &Path) -> Self {
        let mut command = binaries::server();
        command.args(["certificates", "--dir"]).arg(dir);
        command.args(["--server-name", SERVER_NAME, "--client", "client"]);
        let ended = Program::run("millrace-server certificates", command, Duration::from_secs(20));
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        Self {
            ca: dir.join("ca.pem"),
            server: identity(dir, "server"),
            client: identity(dir, "client"),
        }
    }
}

fn identity(dir: &Path, name: &str) -> Identity {
    Identity {
        certificate: dir.join(format!("{name}.pem")),
        private_key: dir.join(format!("{name}.key")),
    }
}

/// An authority made by hand, for certificates that the command would not make.
#[derive(Debug)]
pub struct Authority {
    /// Its certificate, PEM.
    pub ca: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    /// Makes one in the directory `dir`, which must exist.
    ///
    /// # Panics
    /// When it can't.
    #[must_use]
    pub fn make(dir: &Path) -> Self {
        let key = KeyPair::generate().expect("keys can be generated");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("a self-signed certificate");
        let ca = dir.join("hand-made-ca.pem");
        fs::write(&ca, certificate.pem()).expect("a PEM file");
        Self { ca, issuer: Issuer::new(params, key), dir: dir.to_owned() }
    }

    /// Signs a certificate for `name` that is valid from and until so many days from now.
    ///
    /// # Panics
    /// When it can't.
    #[must_use]
    pub fn sign(&self, name: &str, days: std::ops::Range<i64>) -> Identity {
        let now = OffsetDateTime::now_utc();
        let [from, until] = [days.start, days.end].map(|days| now + time::Duration::days(days));
        self.sign_as(name, &format!("{}-{}", days.start, days.end), from, until)
    }

    /// The same, from and until a moment.
    ///
    /// # Panics
    /// When it can't.
    #[must_use]
    pub fn sign_for(&self, name: &str, from: OffsetDateTime, until: OffsetDateTime) -> Identity {
        self.sign_as(name, &until.unix_timestamp().to_string(), from, until)
    }

    fn sign_as(
        &self,
        name: &str,
        file: &str,
        from: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Identity {
        let key = KeyPair::generate().expect("keys can be generated");
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_before = from;
        params.not_after = until;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).expect("a signed certificate");
        let made = identity(&self.dir, &format!("hand-made-{name}-{file}"));
        fs::write(&made.certificate, certificate.pem()).expect("a PEM file");
        fs::write(&made.private_key, key.serialize_pem()).expect("a PEM file");
        use std::os::unix::fs::PermissionsExt;
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&made.private_key, private).expect("permissions can be set");
        made
    }
}
