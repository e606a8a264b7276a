//! Report of what was done with each file.

use std::path::PathBuf;

/// What [`run`](super::run) did with one certificate and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateOutcome {
    /// Both were missing and are new.
    Created,
    /// Both were there and are right.
    Kept,
    /// Both were replaced.
    Renewed,
}

/// One line of what [`run`](super::run) did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateReport {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub private_key: PathBuf,
    /// What happened to them.
    pub outcome: CertificateOutcome,
}

impl std::fmt::Display for CertificateReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outcome = match self.outcome {
            CertificateOutcome::Created => "created",
            CertificateOutcome::Kept => "kept",
            CertificateOutcome::Renewed => "renewed",
        };
        write!(f, "{outcome} {} and {}", self.certificate.display(), self.private_key.display())
    }
}
