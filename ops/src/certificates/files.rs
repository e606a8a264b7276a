//! Certificates and keys on disk.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use boring::asn1::Asn1Time;
use boring::nid::Nid;
use boring::pkey::PKey;
use boring::x509::X509;
use time::OffsetDateTime;

use super::authority::{Authority, Identity, Issued};
use super::error::CertificateError;
use super::report::{CertificateOutcome, CertificateReport};

/// Makes `directory`, closed to others, unless it exists. Made by root, it belongs to the owner of the directory above.
///
/// # Errors
/// It can't be made.
pub fn make_directory(directory: &Path) -> Result<(), CertificateError> {
    let make = || {
        if directory.is_dir() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        give_to_owner(&File::open(directory)?, directory)
    };
    make().map_err(|error| failed("make the directory", directory, error))
}

/// Gives what root has made at `path` to the owner of the directory that it is in: the user that a program runs as
/// has to read what a command of root puts into its directory.
pub(super) fn give_to_owner(file: &File, path: &Path) -> io::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let owner = fs::metadata(parent.unwrap_or(Path::new(".")))?;
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}

/// Writes a file, which appears under its name whole or not at all. Without `replace` an existing one stays, and is an
/// error.
///
/// # Errors
/// It can't be written, or it exists.
pub fn write_file(
    path: &Path,
    content: &str,
    mode: u32,
    replace: bool,
) -> Result<(), CertificateError> {
    let file = temporary(path, content, mode)?;
    let named = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    named.map(drop).map_err(|error| failed("write", path, error.error))
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> CertificateError {
    CertificateError::File { action, path: path.to_owned(), error }
}

/// The two files of one certificate.
pub(super) struct CertificateFiles {
    certificate: PathBuf,
    private_key: PathBuf,
}

/// A pair as it was found on disk.
pub(super) struct StoredPair {
    pub(super) issued: Issued,
    pub(super) certificate: X509,
    private_key: PKey<boring::pkey::Private>,
}

impl CertificateFiles {
    pub(super) fn new(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.pem")),
            private_key: directory.join(format!("{name}.key")),
        }
    }

    /// Whether either file exists, readable or not.
    pub(super) fn is_there(&self) -> bool {
        [&self.certificate, &self.private_key].iter().any(|path| path.symlink_metadata().is_ok())
    }

    pub(super) fn report(&self, outcome: CertificateOutcome) -> CertificateReport {
        CertificateReport {
            certificate: self.certificate.clone(),
            private_key: self.private_key.clone(),
            outcome,
        }
    }

    pub(super) fn unusable(&self, problem: String) -> CertificateError {
        CertificateError::Unusable { path: self.certificate.clone(), problem }
    }

    /// Reads both files; `None` when neither exists.
    pub(super) fn load(&self) -> Result<Option<StoredPair>, CertificateError> {
        let half = |present: &PathBuf, missing: &PathBuf| CertificateError::HalfAPair {
            present: present.clone(),
            missing: missing.clone(),
        };
        match (read(&self.certificate)?, read(&self.private_key)?) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(half(&self.certificate, &self.private_key)),
            (None, Some(_)) => Err(half(&self.private_key, &self.certificate)),
            (Some(certificate), Some(private_key)) => Ok(Some(StoredPair {
                certificate: X509::from_pem(certificate.as_bytes())
                    .map_err(|_| self.unusable("has no PEM certificate".to_owned()))?,
                private_key: PKey::private_key_from_pem(private_key.as_bytes()).map_err(|_| {
                    CertificateError::Unusable {
                        path: self.private_key.clone(),
                        problem: "has no PEM private key".to_owned(),
                    }
                })?,
                issued: Issued { certificate, private_key },
            })),
        }
    }

    /// Writes both files. Both are complete on disk before either gets its name; the key comes
    /// first, so that a certificate is never there without one.
    pub(super) fn store(&self, issued: &Issued, replace: bool) -> Result<(), CertificateError> {
        let key = temporary(&self.private_key, &issued.private_key, 0o600)?;
        let certificate = temporary(&self.certificate, &issued.certificate, 0o644)?;
        for (file, path) in [(key, &self.private_key), (certificate, &self.certificate)] {
            let named = if replace { file.persist(path) } else { file.persist_noclobber(path) };
            named.map_err(|error| failed("write", path, error.error))?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<String>, CertificateError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, error)),
    }
}

/// A file of that content beside `path`, which goes away unless it is given a name.
fn temporary(
    path: &Path,
    content: &str,
    mode: u32,
) -> Result<tempfile::NamedTempFile, CertificateError> {
    let write = || {
        let mut file = tempfile::Builder::new()
            .prefix(".millrace-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            })?;
        file.write_all(content.as_bytes())?;
        give_to_owner(file.as_file(), path)?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    write().map_err(|error| failed("write", path, error))
}

impl StoredPair {
    pub(super) fn key_matches(&self) -> bool {
        self.certificate.public_key().is_ok_and(|key| key.public_eq(&self.private_key))
    }

    pub(super) fn comes_from(&self, authority: &Authority) -> Result<bool, CertificateError> {
        let authority = X509::from_pem(authority.issued().certificate.as_bytes())?;
        Ok(self.certificate.verify(authority.public_key()?.as_ref())?)
    }

    pub(super) fn is_valid_until(&self, moment: OffsetDateTime) -> Result<bool, CertificateError> {
        let moment = Asn1Time::from_unix(moment.unix_timestamp())?;
        Ok(self.certificate.not_after() >= moment.as_ref())
    }

    /// A name of `identity` that the certificate is not for.
    pub(super) fn missing_name(&self, identity: &Identity) -> Option<String> {
        match identity {
            Identity::Server { names } => {
                let names = names.iter().map(ToString::to_string);
                let mut missing = names.filter(|name| {
                    let check = self.certificate.as_ref();
                    !(check.check_host(name).unwrap_or(false)
                        || check.check_ip_asc(name).unwrap_or(false))
                });
                missing.next()
            }
            Identity::Client { name } => {
                let mut entries = self.certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
                let is_there = entries.any(|entry| entry.data().as_slice() == name.as_bytes());
                (!is_there).then(|| name.clone())
            }
        }
    }
}
