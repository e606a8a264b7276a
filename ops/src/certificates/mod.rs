//! A small certificate authority for the tunnel's mutual TLS.
//!
//! [`run`] is the command `millrace-server certificates`: it makes, in one directory, an authority
//! (`ca.pem`, `ca.key`), the server's certificate (`server.pem`, `server.key`) and one for each
//! client (`NAME.pem`, `NAME.key`). All keys are ECDSA P-256, readable by their owner only.
//! [`Authority`] is what it is built from, with free choice of the validity.

mod authority;
mod command;
mod error;
mod files;
mod issued;
mod load;
mod report;
#[cfg(test)]
mod tests;

pub use authority::{Authority, BACKDATE, Identity, Issued, Validity};
pub use command::{CertificatesArgs, ClientName, run};
pub use error::CertificateError;
pub use files::{make_directory, write_file};
pub use issued::{list, record};
pub use load::load_authority;
pub use report::{CertificateOutcome, CertificateReport};
