//! An authority that was made before.

use std::path::Path;

use super::authority::{AUTHORITY, Authority};
use super::error::CertificateError;
use super::files::CertificateFiles;

/// The authority in `directory`, `ca.pem` and `ca.key`.
///
/// # Errors
/// A file is missing or can't be read, or they do not belong together.
pub fn load_authority(directory: &Path) -> Result<Authority, CertificateError> {
    let files = CertificateFiles::new(directory, AUTHORITY);
    let missing = "there is no authority; `millrace-server certificates` makes one";
    let stored = files.load()?.ok_or_else(|| files.unusable(missing.to_owned()))?;
    if !stored.key_matches() {
        let problem = "the private key beside it is another certificate's";
        return Err(files.unusable(problem.to_owned()));
    }
    Authority::from_pem(&stored.issued.certificate, &stored.issued.private_key)
        .map_err(|error| files.unusable(format!("is no authority's certificate: {error}")))
}
