//! Credentials that live as long as a run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// PEM texts of an authority and of one certificate each for server and client.
#[derive(Debug)]
pub struct Certificates {
    files: Vec<(&'static str, String)>,
}

impl Certificates {
    /// Makes them; the server's is for `server_name`, a name or an address.
    ///
    /// # Errors
    /// When a key can't be made.
    pub fn make(server_name: &str) -> Result<Self> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "millrace-bench authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let mut files = vec![("ca.pem", ca.self_signed(&ca_key)?.pem())];
        let issuer = Issuer::new(ca, ca_key);
        for (name, certificate, key, usage) in [
            (server_name, "server.pem", "server.key", ExtendedKeyUsagePurpose::ServerAuth),
            ("client", "client.pem", "client.key", ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let pair = KeyPair::generate()?;
            let mut leaf = CertificateParams::new([name.to_owned()])?;
            leaf.distinguished_name.push(DnType::CommonName, name);
            leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            leaf.extended_key_usages = vec![usage];
            files.push((certificate, leaf.signed_by(&pair, &issuer)?.pem()));
            files.push((key, pair.serialize_pem()));
        }
        Ok(Self { files })
    }

    /// Writes `ca.pem`, and `server` and `client` with `.pem` and `.key`, into `dir`.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        for (name, pem) in &self.files {
            fs::write(dir.join(name), pem).with_context(|| format!("write {name}"))?;
        }
        Ok(())
    }
}
