//! Why certificates were not made.

use std::path::PathBuf;

/// Why no certificate was made or kept.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A client's name that can't be a file name of its own.
    #[error(
        "a client's name is 1 to 64 letters, digits, '.', '_' and '-', starts with a letter or \
         digit, and is not \"ca\" or \"server\""
    )]
    ClientName,
    /// A file that can't be read or written.
    #[error("can't {action} {}: {error}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// One half of a pair is missing.
    #[error(
        "{} exists but {} does not; restore it, or move the first away to make both again",
        present.display(), missing.display()
    )]
    HalfAPair {
        /// The half that exists.
        present: PathBuf,
        /// The half that doesn't.
        missing: PathBuf,
    },
    /// A file that isn't what its name says.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// A name that no certificate can hold, or a failure of the system's random numbers.
    #[error("can't make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// A certificate that was just made can't be read back.
    #[error("can't read a certificate: {0}")]
    Read(#[from] boring::error::ErrorStack),
}
