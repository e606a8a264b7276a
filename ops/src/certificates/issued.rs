//! The list of what an authority has issued, with the serial numbers that a deny-list needs.
//!
//! `issued.txt` has one line a certificate, `serial HEX until DATE name NAME`, the oldest first. Certificates that
//! were renewed stay in it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use boring::x509::{X509, X509Ref};

use super::error::CertificateError;
use super::files::give_to_owner;

/// Name of the list, in the directory of the authority.
const ISSUED_FILE: &str = "issued.txt";

/// Longest list, with more than 100,000 certificates: clients that renew without need must not fill the disk.
const MAX_ISSUED_BYTES: u64 = 16 << 20;

/// Adds a certificate, PEM, to the list of `directory`.
///
/// # Errors
/// The list can't be written, or it is full.
pub fn record(directory: &Path, name: &str, certificate: &str) -> Result<(), CertificateError> {
    let certificate = X509::from_pem(certificate.as_bytes())?;
    let path = directory.join(ISSUED_FILE);
    let append = || {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        if file.metadata()?.len() >= MAX_ISSUED_BYTES {
            let problem = "it has 16 MiB; remove lines of certificates that have expired";
            return Err(io::Error::other(problem));
        }
        give_to_owner(&file, &path)?;
        writeln!(file, "{}", line(&certificate, name)?)?;
        file.sync_all()
    };
    append().map_err(|error| CertificateError::File { action: "write", path: path.clone(), error })
}

/// One line for each certificate that was made in `directory`, the oldest first, and for each that is there
/// without being in the list.
///
/// # Errors
/// The directory or the list can't be read.
pub fn list(directory: &Path) -> Result<Vec<String>, CertificateError> {
    let failed = |action, path: &Path, error| {
        Err(CertificateError::File { action, path: path.to_owned(), error })
    };
    let path = directory.join(ISSUED_FILE);
    let mut lines: Vec<String> = match fs::read_to_string(&path) {
        Ok(text) => text.lines().map(str::to_owned).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return failed("read", &path, error),
    };
    let mut files = match fs::read_dir(directory) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>(),
        Err(error) => return failed("read", directory, error),
    };
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|it| it == "pem")) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let Ok(pem) = fs::read(file) else { continue };
        let Ok(certificate) = X509::from_pem(&pem) else { continue };
        let serial = format!("serial {} ", serial(&certificate).unwrap_or_default());
        if name != "ca" && !lines.iter().any(|line| line.starts_with(&serial)) {
            lines.extend(line(&certificate, &name));
        }
    }
    Ok(lines)
}

fn line(certificate: &X509Ref, name: &str) -> io::Result<String> {
    let until = certificate.not_after();
    Ok(format!("serial {} until {until} name {name}", serial(certificate)?))
}

fn serial(certificate: &X509Ref) -> io::Result<String> {
    let hex = certificate.serial_number().to_bn().and_then(|serial| serial.to_hex_str());
    Ok(hex.map_err(io::Error::other)?.to_uppercase())
}
