//! How a client recognises the server: by an authority that it knows.

use boring::sha::sha256;
use boring::ssl::SslRef;
use boring::x509::X509;
use millrace_config::{DeniedClients, Host};
use millrace_tunnel::peer_verification::{PeerVerifier, Purpose};
use millrace_wire::enrolment::FINGERPRINT_BYTES;

/// What a client knows of the authority that the server's certificate must come from.
#[derive(Clone, Debug)]
pub(crate) enum ServerTrust {
    /// The digest of its certificate, which the server sends.
    Fingerprint([u8; FINGERPRINT_BYTES]),
    /// The certificates of one or more.
    Authorities(Vec<X509>),
}

impl ServerTrust {
    /// Checks the certificate of the server in a handshake, and that it is for `name`. Returns the authority if it was
    /// known by its fingerprint.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub(crate) fn verify(&self, ssl: &SslRef, name: &Host) -> Result<Option<X509>, String> {
        let leaf = ssl.peer_certificate().ok_or("the server has no certificate")?;
        let chain = ssl.peer_cert_chain().ok_or("the server has no certificate")?;
        let pinned = match self {
            Self::Authorities(_) => None,
            Self::Fingerprint(fingerprint) => {
                let is_pinned = |it: &&boring::x509::X509Ref| {
                    it.to_der().is_ok_and(|der| boring::memcmp::eq(&sha256(&der), fingerprint))
                };
                let authority = chain.iter().find(is_pinned);
                let authority = authority.ok_or(
                    "the server's authority is not the one that the token names: the token is of another server, or \
                     something between intercepts TLS",
                )?;
                Some(authority.to_owned())
            }
        };
        let authorities = match (self, &pinned) {
            (Self::Authorities(known), _) => known.as_slice(),
            (_, pinned) => pinned.as_slice(),
        };
        let verifier = PeerVerifier::new(
            authorities,
            Purpose::Server,
            std::sync::Arc::new(DeniedClients::default()),
        )
        .map_err(|error| error.to_string())?;
        let verified = verifier.verify(&leaf, chain, Some(name));
        verified.map_err(|error| format!("the server's certificate is not accepted: {error}"))?;
        Ok(pinned)
    }
}
