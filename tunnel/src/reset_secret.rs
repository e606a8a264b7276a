//! The secret of a server's stateless resets, in a file of its state directory.
//!
//! It belongs to one instance: of two servers with the same secret, each gives away the tokens by which the
//! other's connections are reset (RFC 9000, Section 21.11).

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the file.
const SECRET_FILE: &str = "stateless-reset.key";
/// Bytes of the secret.
pub const RESET_SECRET_BYTES: usize = 32;

/// The secret.
pub type ResetSecret = [u8; RESET_SECRET_BYTES];

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum ResetSecretError {
    /// The directory or the file can't be used.
    #[error("can't {action} {}: {error}; the state directory must be writable for the server", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The directory or file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The file is something else.
    #[error(
        "{} has {length} bytes and not the {RESET_SECRET_BYTES} of a secret; remove it, and a new one is made",
        path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
}

/// A secret that no other start of a server has.
///
/// # Panics
/// Never: BoringSSL's generator does not fail.
#[must_use]
pub fn random() -> ResetSecret {
    let mut secret = [0; RESET_SECRET_BYTES];
    boring::rand::rand_bytes(&mut secret).expect("BoringSSL's generator does not fail");
    secret
}

/// Reads the secret in `directory`, if it exists.
///
/// # Errors
/// The directory or the file can't be used, or the file is no secret.
pub fn read(directory: &Path) -> Result<Option<ResetSecret>, ResetSecretError> {
    let path = directory.join(SECRET_FILE);
    match fs::read(&path) {
        Ok(bytes) => {
            let length = bytes.len();
            let secret = ResetSecret::try_from(bytes);
            Ok(Some(secret.map_err(|_| ResetSecretError::Length { path, length })?))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ResetSecretError::Io { action: "read", path, error }),
    }
}

/// Reads the secret in `directory`, or makes one that only its owner can read.
///
/// # Errors
/// The directory or the file can't be used, or the file is no secret.
pub fn read_or_create(directory: &Path) -> Result<ResetSecret, ResetSecretError> {
    if let Some(secret) = read(directory)? {
        return Ok(secret);
    }
    let failed =
        |action, path: &Path, error| ResetSecretError::Io { action, path: path.to_owned(), error };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| failed("make", directory, error))?;
    let path = directory.join(SECRET_FILE);
    let write = || {
        let mut file = tempfile::Builder::new()
            .prefix(".millrace-")
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(directory)?;
        file.write_all(&random())?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    let file = write().map_err(|error| failed("write", &path, error))?;
    if let Err(error) = file.persist_noclobber(&path)
        && error.error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(failed("write", &path, error.error));
    }
    // Another process may have been faster.
    read(directory)?.ok_or_else(|| failed("read", &path, io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_made_once_and_only_its_owner_reads_it() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("state");
        assert_eq!(read(&directory).unwrap(), None);
        let secret = read_or_create(&directory).unwrap();
        assert_eq!(read_or_create(&directory).unwrap(), secret);
        assert_eq!(read(&directory).unwrap(), Some(secret));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join(SECRET_FILE))), (0o700, 0o600));
        let other = read_or_create(&parent.path().join("other")).unwrap();
        assert_ne!(other, secret);
    }

    #[test]
    fn wrong_file_is_reported_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(SECRET_FILE), "short").unwrap();
        let said = read_or_create(directory.path()).unwrap_err().to_string();
        assert!(said.contains("has 5 bytes") && said.contains("remove it"), "{said}");
        let said = read_or_create(&directory.path().join(SECRET_FILE)).unwrap_err().to_string();
        assert!(said.contains("must be writable"), "{said}");
    }
}
