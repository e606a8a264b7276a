//! The authority and what it issues, in memory.

use std::fmt;

use boring::x509::X509;
use millrace_config::Host;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber, SubjectPublicKeyInfo,
};
use time::{Duration, OffsetDateTime};

use super::error::CertificateError;

/// Name of an authority's files.
pub(super) const AUTHORITY: &str = "ca";

/// Bytes of a serial number.
const SERIAL_BYTES: usize = 16;

/// How long before they are made certificates begin to be valid, for clocks that are late.
pub const BACKDATE: Duration = Duration::HOUR;

/// From when until when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub not_before: OffsetDateTime,
    /// Last moment.
    pub not_after: OffsetDateTime,
}

impl Validity {
    /// From [`BACKDATE`] before `now` until `days` after it.
    pub fn days(now: OffsetDateTime, days: u32) -> Self {
        Self::lasting(now, Duration::days(days.into()))
    }

    /// From [`BACKDATE`] before `now` until `lifetime` after it.
    pub fn lasting(now: OffsetDateTime, lifetime: Duration) -> Self {
        Self { not_before: now - BACKDATE, not_after: now + lifetime }
    }
}

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A server, by the names and addresses that clients expect; at least one.
    Server {
        /// Subject alternative names, the first also the common name.
        names: Vec<Host>,
    },
    /// A client.
    Client {
        /// Common name, and subject alternative name.
        name: String,
    },
}

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key, PKCS #8. A secret.
    pub private_key: String,
}

/// Without the key.
impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate authority with its key.
pub struct Authority {
    issued: Issued,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority with a new key. It can issue certificates, but no further authority.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate(validity: &Validity) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let mut parameters = parameters(validity, Vec::new(), "Millrace authority")?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issued = Issued {
            certificate: parameters.self_signed(&key)?.pem(),
            private_key: key.serialize_pem(),
        };
        Ok(Self { issued, issuer: Issuer::new(parameters, key) })
    }

    /// An authority from its certificate and key, both PEM.
    ///
    /// # Errors
    /// One of them can't be read.
    pub fn from_pem(certificate: &str, private_key: &str) -> Result<Self, CertificateError> {
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(private_key)?)?;
        let issued =
            Issued { certificate: certificate.to_owned(), private_key: private_key.to_owned() };
        Ok(Self { issued, issuer })
    }

    /// The authority's own certificate.
    ///
    /// # Errors
    /// It can't be read back.
    pub fn certificate(&self) -> Result<X509, CertificateError> {
        Ok(X509::from_pem(self.issued.certificate.as_bytes())?)
    }

    /// The authority's own certificate and key.
    pub fn issued(&self) -> &Issued {
        &self.issued
    }

    /// Issues a certificate with a new key.
    ///
    /// # Errors
    /// A name can't be in a certificate, or the system has no random numbers.
    pub fn issue(
        &self,
        identity: &Identity,
        validity: &Validity,
    ) -> Result<Issued, CertificateError> {
        let key = KeyPair::generate()?;
        let certificate = self.sign(identity, validity, &key)?;
        Ok(Issued { certificate, private_key: key.serialize_pem() })
    }

    /// Issues a certificate, PEM, for a public key (SubjectPublicKeyInfo in DER, RFC 5280, Section 4.1.2.7).
    ///
    /// # Errors
    /// A name can't be in a certificate, or the key is of a type that is not supported.
    pub fn certify(
        &self,
        identity: &Identity,
        validity: &Validity,
        public_key: &[u8],
    ) -> Result<String, CertificateError> {
        self.sign(identity, validity, &SubjectPublicKeyInfo::from_der(public_key)?)
    }

    fn sign(
        &self,
        identity: &Identity,
        validity: &Validity,
        public_key: &impl PublicKeyData,
    ) -> Result<String, CertificateError> {
        let (names, common_name, usage) = match identity {
            Identity::Server { names } => {
                let names: Vec<_> = names.iter().map(Host::to_string).collect();
                let first = names.first().cloned().unwrap_or_default();
                (names, first, ExtendedKeyUsagePurpose::ServerAuth)
            }
            // Some verifiers want an alternative name (RFC 5280, Section 4.1.2.6, calls names in
            // the subject alone a legacy).
            Identity::Client { name } => {
                (vec![name.clone()], name.clone(), ExtendedKeyUsagePurpose::ClientAuth)
            }
        };
        let mut parameters = parameters(validity, names, &common_name)?;
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        parameters.use_authority_key_identifier_extension = true;
        // The default comes from the key: a renewed certificate for the same key would have the same number.
        let mut serial = [0; SERIAL_BYTES];
        boring::rand::rand_bytes(&mut serial)?;
        // Positive and without leading zeros (RFC 5280, Section 4.1.2.2).
        serial[0] = (serial[0] & 0x3f) | 0x40;
        parameters.serial_number = Some(SerialNumber::from_slice(&serial));
        Ok(parameters.signed_by(public_key, &self.issuer)?.pem())
    }
}

fn parameters(
    validity: &Validity,
    names: Vec<String>,
    common_name: &str,
) -> Result<CertificateParams, CertificateError> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.not_before = validity.not_before;
    parameters.not_after = validity.not_after;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, "Millrace");
    parameters.distinguished_name.push(DnType::CommonName, common_name);
    Ok(parameters)
}
