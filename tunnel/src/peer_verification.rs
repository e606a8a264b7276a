//! Whether a peer's certificate is accepted now: its chain, dates and use, and the deny-list.
//!
//! TLS verifies a certificate in a full handshake only. A session carries the certificate of the handshake
//! that began it, so that both ends verify it again before they resume the session.

use std::sync::Arc;

use boring::error::ErrorStack;
use boring::nid::Nid;
use boring::ssl::{SslSession, SslSessionRef};
use boring::stack::{Stack, StackRef};
use boring::x509::store::{X509Store, X509StoreBuilder};
use boring::x509::{X509, X509Ref, X509StoreContext, X509StoreContextRef, X509VerifyError};
use boring_sys as ffi;
use foreign_types::ForeignTypeRef;
use millrace_config::{DeniedClients, DeniedEntry, Host};

/// What the peer's certificate has to be for (RFC 5280, Section 4.2.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The peer is a client.
    Client,
    /// The peer is a server.
    Server,
}

/// Why a certificate is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CertificateRefusal {
    /// A session without one.
    #[error("the session has no certificate")]
    NoCertificate,
    /// It is on the deny-list.
    #[error("denied by {0}")]
    Denied(DeniedEntry),
    /// It is not valid.
    #[error("{0}")]
    Invalid(X509VerifyError),
    /// TLS has failed.
    #[error("{0}")]
    Tls(#[from] ErrorStack),
}

/// Verifies certificates of peers; cheap to clone.
#[derive(Clone)]
pub struct PeerVerifier {
    authorities: Arc<X509Store>,
    purpose: Purpose,
    denied: Arc<DeniedClients>,
}

impl PeerVerifier {
    /// Accepts certificates for `purpose` that come from one of `authorities` and that `denied` does not have.
    ///
    /// # Errors
    /// An authority can't be used.
    pub fn new(
        authorities: &[X509],
        purpose: Purpose,
        denied: Arc<DeniedClients>,
    ) -> Result<Self, ErrorStack> {
        let mut store = X509StoreBuilder::new()?;
        for authority in authorities {
            store.add_cert(authority)?;
        }
        Ok(Self { authorities: Arc::new(store.build()), purpose, denied })
    }

    /// Whether there is a deny-list with entries.
    pub(crate) fn has_denied_clients(&self) -> bool {
        !self.denied.is_empty()
    }

    /// The entry of the deny-list that a certificate matches.
    pub(crate) fn denied(&self, certificate: &X509Ref) -> Option<DeniedEntry> {
        denied(&self.denied, certificate)
    }

    /// Whether a full handshake with the peer of `session` would succeed now. A server's certificate must also
    /// be for `server_name`.
    pub(crate) fn verify_session(
        &self,
        session: &SslSessionRef,
        server_name: Option<&Host>,
    ) -> Result<(), CertificateRefusal> {
        let mut certificates = peer_certificates(session)?.into_iter();
        let leaf = certificates.next().ok_or(CertificateRefusal::NoCertificate)?;
        let mut chain = Stack::new()?;
        certificates.try_for_each(|certificate| chain.push(certificate))?;
        self.verify(&leaf, &chain, server_name)
    }

    /// Whether the certificate `leaf`, with others from the same peer in `chain`, is accepted now. A server's
    /// certificate must also be for `server_name`.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn verify(
        &self,
        leaf: &X509Ref,
        chain: &StackRef<X509>,
        server_name: Option<&Host>,
    ) -> Result<(), CertificateRefusal> {
        if let Some(entry) = self.denied(leaf) {
            return Err(CertificateRefusal::Denied(entry));
        }
        let verified =
            X509StoreContext::new()?.init(&self.authorities, leaf, chain, |context| {
                self.expect(context, server_name)?;
                Ok(if context.verify_cert()? { Ok(()) } else { context.verify_result() })
            })?;
        verified.map_err(CertificateRefusal::Invalid)
    }

    /// Sets what TLS sets in a full handshake.
    fn expect(
        &self,
        context: &mut X509StoreContextRef,
        server_name: Option<&Host>,
    ) -> Result<(), ErrorStack> {
        let defaults = match self.purpose {
            Purpose::Client => c"ssl_client",
            Purpose::Server => c"ssl_server",
        };
        // SAFETY: the context is initialized, and the name a C string.
        let set = unsafe { ffi::X509_STORE_CTX_set_default(context.as_ptr(), defaults.as_ptr()) };
        if set != 1 {
            return Err(ErrorStack::get());
        }
        match server_name {
            None => Ok(()),
            Some(Host::Name(name)) => context.verify_param_mut().set_host(name.as_str()),
            Some(Host::Ip(ip)) => context.verify_param_mut().set_ip(*ip),
        }
    }
}

/// Refuses denied clients in a full handshake; to be called when the chain has been found valid up to and
/// including the certificate at the context's depth.
pub(crate) fn refuse_denied(
    denied_clients: &DeniedClients,
    context: &mut X509StoreContextRef,
) -> bool {
    let is_leaf = context.error_depth() == 0;
    let entry = context.cert().filter(|_| is_leaf).and_then(|it| denied(denied_clients, it));
    let Some(entry) = entry else { return true };
    tracing::debug!(%entry, "client certificate is on the deny-list");
    context.set_error(Err(X509VerifyError::CERT_REVOKED));
    false
}

fn denied(denied: &DeniedClients, certificate: &X509Ref) -> Option<DeniedEntry> {
    if denied.is_empty() {
        return None;
    }
    let serial = certificate.serial_number().to_bn().map(|serial| serial.to_vec());
    denied.entry(&serial.unwrap_or_default(), &names(certificate))
}

/// Common names and subject alternative names.
fn names(certificate: &X509Ref) -> Vec<String> {
    let common = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    let common = common.filter_map(|entry| Some(entry.data().as_utf8().ok()?.to_string()));
    let address = |bytes: &[u8]| match bytes.len() {
        4 => Some(std::net::IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        _ => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
    };
    let alternative = certificate.subject_alt_names().into_iter().flatten().filter_map(|name| {
        let text = name.dnsname().or(name.email()).or(name.uri()).map(str::to_owned);
        text.or_else(|| Some(address(name.ipaddress()?)?.to_string()))
    });
    common.chain(alternative).collect()
}

/// The peer's certificate, and those that it sent with it.
fn peer_certificates(session: &SslSessionRef) -> Result<Vec<X509>, ErrorStack> {
    // SAFETY: the stack and its buffers belong to the session, which outlives this function; a null stack has
    // no elements.
    unsafe {
        let stack = ffi::SSL_SESSION_get0_peer_certificates(session.as_ptr());
        let stack = stack.cast::<ffi::OPENSSL_STACK>();
        let mut certificates = Vec::new();
        for index in 0..ffi::OPENSSL_sk_num(stack) {
            let buffer = ffi::OPENSSL_sk_value(stack, index).cast::<ffi::CRYPTO_BUFFER>();
            let (data, length) = (ffi::CRYPTO_BUFFER_data(buffer), ffi::CRYPTO_BUFFER_len(buffer));
            certificates.push(X509::from_der(std::slice::from_raw_parts(data, length))?);
        }
        Ok(certificates)
    }
}

/// The TLS session in what quiche calls a session: its length, itself, and the peer's transport parameters.
pub(crate) fn tls_session(session: &[u8]) -> Option<SslSession> {
    let (length, rest) = session.split_first_chunk()?;
    let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
    SslSession::from_der(rest.get(..length)?).ok()
}
