//! What the certificates and keys of one end contain, and in words what keeps a peer from accepting them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use boring::asn1::{Asn1Time, Asn1TimeRef};
use boring::error::ErrorStack;
use boring::nid::Nid;
use boring::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use boring::x509::{X509, X509Ref};
use boring_sys as ffi;
use foreign_types::ForeignTypeRef;
use millrace_config::{ConfigError, Credentials, Source};

use crate::metrics::Metrics;

/// Days before the end at which it is time to renew.
const RENEW_DAYS: u32 = 30;
/// What BoringSSL accepts from a peer by default (RFC 8446, Section 4.2.3, less Ed25519 and P-521).
const KEY_TYPES: &str = "an ECDSA key on P-256 or P-384, or an RSA key";
const RENEW: &str = "`millrace-server certificates --renew` with the same names makes a new one";
const CLOCK: &str = "set the clock (`timedatectl`)";

/// The end that the certificates belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateOwner {
    /// Known by its common name.
    Client,
    /// Known by the names that clients give as `server_name`.
    Server,
}

impl CertificateOwner {
    /// The name of the key for the authorities.
    pub fn ca_key(self) -> &'static str {
        match self {
            Self::Client => "tunnel.ca",
            Self::Server => "tunnel.client_ca",
        }
    }
}

/// What a problem means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Everything works, for some time.
    Warning,
    /// Peers refuse it, or it refuses all peers.
    Refused,
    /// TLS can't be set up.
    Unusable,
}

/// Something wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The configuration's key for the file.
    pub key: &'static str,
    /// The file.
    pub file: PathBuf,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub right: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.file.display(), self.what, self.right)
    }
}

/// The files of one end as they were read; what could not be read is empty and among the problems.
#[derive(Default)]
pub struct Contents {
    /// Certificates of authorities.
    pub authorities: Vec<X509>,
    /// This end's certificate first.
    pub chain: Vec<X509>,
    /// Everything that is wrong, in the order of the files.
    pub problems: Vec<Problem>,
}

impl Contents {
    /// Reads and inspects all files.
    ///
    /// # Errors
    /// The clock can't be read.
    pub fn read(end: CertificateOwner, credentials: &Credentials) -> Result<Self, ErrorStack> {
        let mut contents = Self::default();
        let mut ca = File { key: end.ca_key(), path: &credentials.ca, problems: Vec::new() };
        contents.authorities = ca.certificates();
        let mut own = File {
            key: "tunnel.certificate",
            path: &credentials.certificate,
            problems: Vec::new(),
        };
        contents.chain = own.certificates();
        for authority in &contents.authorities {
            ca.dates(authority)?;
            ca.authority(authority, contents.chain.first());
        }
        if let Some((leaf, intermediates)) = contents.chain.split_first() {
            own.key_type(leaf);
            own.dates(leaf)?;
            own.purpose(leaf, end);
            for intermediate in intermediates {
                own.dates(intermediate)?;
            }
        }
        let mut key = File {
            key: "tunnel.private_key",
            path: &credentials.private_key,
            problems: Vec::new(),
        };
        if let Some(private) = key.private_key()
            && let Some(leaf) = contents.chain.first()
        {
            key.belongs_to(&private, leaf, own.path);
        }
        for file in [ca, own, key] {
            contents.problems.extend(file.problems);
        }
        Ok(contents)
    }

    /// The first problem that keeps TLS from being set up.
    pub fn unusable(&self) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.severity == Severity::Unusable)
    }
}

/// For the command `check`: the warnings.
///
/// # Errors
/// The first problem for which peers would refuse this end, or this end all peers.
pub fn check(
    end: CertificateOwner,
    credentials: &Credentials,
    source: &Source,
) -> Result<Vec<Problem>, ConfigError> {
    let contents = Contents::read(end, credentials)
        .map_err(|_| source.error("tunnel.certificate", "the clock can't be read"))?;
    let mut problems = contents.problems;
    match problems.iter().find(|problem| problem.severity > Severity::Warning) {
        Some(problem) => Err(source.error(problem.key, problem.to_string())),
        None => Ok(std::mem::take(&mut problems)),
    }
}

/// For a start and a reload, which go on: a clock may be wrong for a while.
pub fn warn(end: CertificateOwner, credentials: &Credentials) {
    for problem in Contents::read(end, credentials).into_iter().flat_map(|it| it.problems) {
        tracing::warn!(key = problem.key, %problem, "certificate problem");
    }
}

/// Shows when the certificate of this end expires; 0 if it can't be read.
pub fn show_expiry(metrics: &Metrics, credentials: &Credentials) {
    metrics.certificate_expiry.set(expiry(credentials).unwrap_or_default());
}

/// In seconds since 1970-01-01T00:00:00Z.
fn expiry(credentials: &Credentials) -> Option<i64> {
    let certificate = X509::from_pem(&fs::read(&credentials.certificate).ok()?).ok()?;
    let since = Asn1Time::from_unix(0).ok()?.diff(certificate.not_after()).ok()?;
    Some(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

/// One file, and what is wrong with it.
struct File<'a> {
    key: &'static str,
    path: &'a Path,
    problems: Vec<Problem>,
}

impl File<'_> {
    fn add(&mut self, severity: Severity, what: impl Into<String>, right: impl Into<String>) {
        self.problems.push(Problem {
            key: self.key,
            file: self.path.to_owned(),
            severity,
            what: what.into(),
            right: right.into(),
        });
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        fs::read(self.path)
            .map_err(|error| {
                let right =
                    "the file must be there, and readable for the user that the program runs as";
                self.add(Severity::Unusable, format!("can't be read: {error}"), right);
            })
            .ok()
    }

    fn certificates(&mut self) -> Vec<X509> {
        let Some(pem) = self.bytes() else { return Vec::new() };
        match X509::stack_from_pem(&pem) {
            Ok(certificates) if !certificates.is_empty() => certificates,
            Ok(_) if X509::from_der(&pem).is_ok() => {
                let right = "`openssl x509 -inform der -in FILE -out FILE.pem` converts it";
                self.add(Severity::Unusable, "is a certificate in DER and not in PEM", right);
                Vec::new()
            }
            Ok(_) => {
                self.add(Severity::Unusable, "has no PEM certificate", "name a file that has one");
                Vec::new()
            }
            Err(_) => {
                let right = "copy it again from where it was made";
                self.add(Severity::Unusable, "has a damaged PEM certificate", right);
                Vec::new()
            }
        }
    }

    fn private_key(&mut self) -> Option<PKey<Private>> {
        let pem = self.bytes()?;
        let text = String::from_utf8_lossy(&pem);
        if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
            let right = "`openssl pkey -in FILE -out NEW_FILE` writes it without the passphrase; then chmod 600";
            let what = "is an encrypted key, and there is no way to give its passphrase";
            self.add(Severity::Unusable, what, right);
            return None;
        }
        let key = PKey::private_key_from_pem(&pem).ok();
        if key.is_none() {
            let what = "has no PEM private key, or a damaged one";
            self.add(Severity::Unusable, what, "copy it again from where it was made");
        }
        key
    }

    fn belongs_to(&mut self, private: &PKey<Private>, certificate: &X509Ref, path: &Path) {
        if certificate.public_key().is_ok_and(|key| key.public_eq(private)) {
            return;
        }
        let what = format!("is the key of another certificate than {}", path.display());
        self.add(Severity::Unusable, what, "use the two files that were made together");
    }

    fn key_type(&mut self, certificate: &X509Ref) {
        let found = match certificate.public_key() {
            Ok(key) => match key_type(&key) {
                Ok(()) => return,
                Err(found) => found,
            },
            Err(_) => "a key of an unknown type",
        };
        let right = format!("make it with {KEY_TYPES}");
        self.add(Severity::Refused, format!("is for {found}, which peers refuse"), right);
    }

    /// Whether the clock is between the two ends.
    fn dates(&mut self, certificate: &X509Ref) -> Result<(), ErrorStack> {
        let (from, until) = (certificate.not_before(), certificate.not_after());
        let (now, soon) = (Asn1Time::days_from_now(0)?, Asn1Time::days_from_now(RENEW_DAYS)?);
        let (now, soon): (&Asn1TimeRef, &Asn1TimeRef) = (&now, &soon);
        if from > now {
            let what =
                format!("is valid from {from} on only, and it is {now} by this machine's clock");
            self.add(Severity::Refused, what, format!("{CLOCK}, or make the certificate again"));
        } else if until < now {
            let what = format!("has expired on {until}, and it is {now} by this machine's clock");
            self.add(Severity::Refused, what, format!("{RENEW}; or {CLOCK}"));
        } else if until < soon {
            self.add(
                Severity::Warning,
                format!("is valid until {until}, less than {RENEW_DAYS} days"),
                RENEW,
            );
        }
        Ok(())
    }

    /// Whether an authority may issue certificates. One that is its own issuer and no authority can still be
    /// the certificate of the one peer there is.
    fn authority(&mut self, authority: &X509Ref, own: Option<&X509>) {
        // SAFETY: the certificate is valid for the call.
        if unsafe { ffi::X509_check_ca(authority.as_ptr()) } != 0 {
            return;
        }
        let issued = |certificate: &X509Ref| {
            authority.public_key().is_ok_and(|key| certificate.verify(&key).unwrap_or(false))
        };
        let is_self_signed = issued(authority);
        let issued_own = own.is_some_and(|own| issued(own));
        let what = "is not the certificate of an authority: its basic constraints have no CA flag";
        if is_self_signed && !issued_own {
            let right = "right only if the peer has this very certificate";
            self.add(Severity::Warning, what, right);
        } else {
            let right = "name the ca.pem of the authority that the peers' certificates come from";
            self.add(Severity::Refused, what, right);
        }
    }

    /// Whether a certificate is for this end.
    fn purpose(&mut self, certificate: &X509Ref, end: CertificateOwner) {
        let is_for = |purpose| {
            // SAFETY: the certificate is valid for the call.
            unsafe { ffi::X509_check_purpose(certificate.as_ptr().cast(), purpose, 0) == 1 }
        };
        let (server, client) =
            (is_for(ffi::X509_PURPOSE_SSL_SERVER), is_for(ffi::X509_PURPOSE_SSL_CLIENT));
        let lacks = "by its extended key usage";
        match end {
            CertificateOwner::Server if !server => {
                let whose =
                    if client { "a client's certificate" } else { "no server's certificate" };
                let right = "use the certificate that was made for the server (serverAuth)";
                self.add(Severity::Refused, format!("is {whose} {lacks}"), right);
            }
            CertificateOwner::Client if !client => {
                let whose =
                    if server { "a server's certificate" } else { "no client's certificate" };
                let right = "use the certificate that was made for this client (clientAuth)";
                self.add(Severity::Refused, format!("is {whose} {lacks}"), right);
            }
            _ => {}
        }
        if end == CertificateOwner::Server && alternative_names(certificate).is_empty() {
            let what = "is for no name: it has no subject alternative name, and clients refuse it";
            self.add(
                Severity::Refused,
                what,
                "make it with the name that clients have as server_name",
            );
        }
    }
}

/// Checks that peers accept signatures with such a key; the error names the key type.
fn key_type<T: HasPublic>(key: &PKeyRef<T>) -> Result<(), &'static str> {
    match key.id() {
        Id::RSA => Ok(()),
        Id::EC => match key.ec_key().ok().and_then(|key| key.group().curve_name()) {
            Some(Nid::X9_62_PRIME256V1 | Nid::SECP384R1) => Ok(()),
            Some(Nid::SECP521R1) => Err("an ECDSA key on P-521"),
            _ => Err("an ECDSA key on an unusual curve"),
        },
        Id::ED25519 => Err("an Ed25519 key"),
        Id::RSAPSS => Err("an RSA key for PSS only"),
        _ => Err("a key of an unusual type"),
    }
}

/// The names and addresses that a certificate is for.
pub fn alternative_names(certificate: &X509Ref) -> Vec<String> {
    let names = certificate.subject_alt_names().into_iter().flatten();
    let name = |name: boring::x509::GeneralName| {
        let address = |bytes: &[u8]| match bytes.len() {
            4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
            _ => Some(std::net::IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        };
        let ip = || Some(address(name.ipaddress()?)?.to_string());
        name.dnsname().map(str::to_owned).or_else(ip)
    };
    names.filter_map(name).collect()
}

#[cfg(test)]
mod tests;
