//! What the server issues, and to whom.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use boring::nid::Nid;
use boring::ssl::{
    Ssl, SslContext, SslFiletype, SslMethod, SslOptions, SslRef, SslSessionCacheMode,
    SslVerifyMode, SslVersion,
};
use boring::stack::Stack;
use boring::x509::X509;
use boring::x509::store::X509StoreBuilder;
use millrace_config::{ConfigError, DeniedClients, ServerConfig, ServerEnrolment};
use millrace_ops::certificates::{self, Authority, ClientName, Identity, Validity, load_authority};
use millrace_tunnel::metrics::{EnrolmentResult, Metrics};
use millrace_tunnel::peer_verification::{CertificateRefusal, PeerVerifier, Purpose};
use millrace_wire::enrolment::{
    EnrolmentRefusal, EnrolmentRequest, EnrolmentResponse, MAX_ENROLMENT_REQUEST_BYTES,
    parse_request,
};
use time::OffsetDateTime;

use crate::deadline_stream::DeadlineStream;
use crate::exchange;
use crate::invites::{InviteError, Invites};
use crate::renewal::unix_time;
use crate::signing_request;

/// Issues certificates by invitations, and renews those of clients that are not denied.
pub struct EnrolmentService {
    settings: ServerEnrolment,
    authority: Authority,
    invites: Invites,
    denied: Arc<DeniedClients>,
    verifier: PeerVerifier,
    context: SslContext,
}

/// A refusal, and its reason for the log.
struct Refused(EnrolmentRefusal, String);

impl EnrolmentService {
    /// Reads the authority, the deny-list and the server's certificate; `None` without `[enrolment]`.
    ///
    /// # Errors
    /// One of them can't be used, or they do not belong together.
    pub fn new(config: &ServerConfig) -> Result<Option<Self>, ConfigError> {
        let Some(settings) = config.enrolment.clone() else { return Ok(None) };
        let error = |key: &str, problem: String| config.source.error(key, problem);
        let unusable = |problem: String| error("enrolment.authority_dir", problem);
        let authority =
            load_authority(&settings.authority_dir).map_err(|error| unusable(error.to_string()))?;
        let certificate = authority.certificate().map_err(|error| unusable(error.to_string()))?;
        let credentials = &config.tunnel.credentials;
        let stack = |path: &PathBuf| {
            X509::stack_from_pem(&fs::read(path).unwrap_or_default()).unwrap_or_default()
        };
        let der = certificate.to_der().unwrap_or_default();
        if !stack(&credentials.ca).iter().any(|it| it.to_der().is_ok_and(|it| it == der)) {
            let problem =
                format!("lacks the authority {}/ca.pem", settings.authority_dir.display());
            return Err(error("tunnel.client_ca", problem));
        }
        let leaf = stack(&credentials.certificate).into_iter().next();
        let key = certificate.public_key().map_err(|error| unusable(error.to_string()))?;
        if !leaf.is_some_and(|leaf| leaf.verify(&key).unwrap_or(false)) {
            let problem = "does not come from the authority in enrolment.authority_dir, by which clients recognise \
                           the server; `millrace-server certificates --dir` makes one";
            return Err(error("tunnel.certificate", problem.to_owned()));
        }
        let denied = Arc::new(config.denied_clients()?);
        let tls = |problem: boring::error::ErrorStack| {
            unusable(format!("can't set up TLS with it: {problem}"))
        };
        let verifier =
            PeerVerifier::new(std::slice::from_ref(&certificate), Purpose::Client, denied.clone())
                .map_err(tls)?;
        let context = context(config, certificate).map_err(tls)?;
        let invites = Invites::new(&settings.authority_dir);
        Ok(Some(Self { settings, authority, invites, denied, verifier, context }))
    }

    /// Serves one connection. Failures are logged.
    pub(crate) fn serve(&self, stream: DeadlineStream, from: SocketAddr, metrics: &Metrics) {
        if let Err(error) = self.handle(stream, from, metrics) {
            metrics.enrolments.of(EnrolmentResult::Failed).inc();
            tracing::info!(%from, %error, "enrolment connection failed");
        }
    }

    fn handle(
        &self,
        stream: DeadlineStream,
        from: SocketAddr,
        metrics: &Metrics,
    ) -> io::Result<()> {
        let ssl = Ssl::new(&self.context).map_err(io::Error::other)?;
        let accepted = ssl.accept(stream);
        let mut stream = accepted.map_err(|error| io::Error::other(error.to_string()))?;
        let request = exchange::receive(&mut stream, MAX_ENROLMENT_REQUEST_BYTES, parse_request)?;
        let now = OffsetDateTime::now_utc();
        let response =
            self.answer(&request, stream.ssl(), now).unwrap_or_else(|Refused(reason, cause)| {
                tracing::warn!(%from, cause, "enrolment refused");
                EnrolmentResponse::Refused(reason)
            });
        metrics.enrolments.of(result_of(&request, &response)).inc();
        let sent = response.encode().map_err(io::Error::other)?;
        if let Err(error) = stream.write_all(&sent).and_then(|()| stream.flush()) {
            tracing::info!(%from, %error, "failed to send an enrolment response");
        }
        // The client has all; how it closes does not matter.
        let _ = stream.shutdown();
        Ok(())
    }

    fn answer(
        &self,
        request: &EnrolmentRequest,
        peer: &SslRef,
        now: OffsetDateTime,
    ) -> Result<EnrolmentResponse, Refused> {
        match request {
            EnrolmentRequest::Enrol { invite, secret, signing_request } => {
                // Before the invitation is used up.
                let key = signing_request::public_key(signing_request).ok_or_else(|| {
                    Refused(EnrolmentRefusal::SigningRequest, "unusable signing request".to_owned())
                })?;
                let claimed = self.invites.claim(*invite, *secret, now);
                let name = claimed.map_err(|error| match error {
                    InviteError::Refused(_) => Refused(EnrolmentRefusal::Invite, error.to_string()),
                    _ => Refused(EnrolmentRefusal::Unavailable, error.to_string()),
                })?;
                self.refuse_denied(&name)?;
                self.issue(&name, &key, now)
            }
            EnrolmentRequest::Renew => {
                let (name, key) = self.known_client(peer)?;
                self.issue(&name, &key, now)
            }
        }
    }

    fn refuse_denied(&self, name: &ClientName) -> Result<(), Refused> {
        match self.denied.entry(&[], &[name.as_str().to_owned()]) {
            None => Ok(()),
            Some(entry) => Err(Refused(EnrolmentRefusal::Denied, format!("denied by {entry}"))),
        }
    }

    /// Name and key of the certificate that a client has shown.
    fn known_client(&self, peer: &SslRef) -> Result<(ClientName, Vec<u8>), Refused> {
        let refused =
            |cause: String| Refused(EnrolmentRefusal::Unauthenticated, format!("renewal: {cause}"));
        let leaf = peer.peer_certificate().ok_or_else(|| refused("no certificate".to_owned()))?;
        let chain = Stack::new().map_err(|error| refused(error.to_string()))?;
        self.verifier.verify(&leaf, &chain, None).map_err(|error| {
            let reason = match &error {
                CertificateRefusal::Denied(_) => EnrolmentRefusal::Denied,
                _ => EnrolmentRefusal::Unauthenticated,
            };
            Refused(reason, format!("renewal: {error}"))
        })?;
        let mut names = leaf.subject_name().entries_by_nid(Nid::COMMONNAME);
        let name = names.next().and_then(|entry| entry.data().as_utf8().ok()?.parse().ok());
        let name =
            name.ok_or_else(|| refused("the certificate has no client's name".to_owned()))?;
        let key = leaf.public_key().ok().filter(|key| signing_request::is_p256(key));
        let key = key.and_then(|key| key.public_key_to_der().ok());
        Ok((name, key.ok_or_else(|| refused("the key is not on P-256".to_owned()))?))
    }

    fn issue(
        &self,
        name: &ClientName,
        public_key: &[u8],
        now: OffsetDateTime,
    ) -> Result<EnrolmentResponse, Refused> {
        let failed = |error: String| Refused(EnrolmentRefusal::Unavailable, error);
        let identity = Identity::Client { name: name.as_str().to_owned() };
        let validity = self.validity(now).map_err(failed)?;
        let certificate = self.authority.certify(&identity, &validity, public_key);
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        // Before the client has it: none may exist that the list does not have.
        certificates::record(&self.settings.authority_dir, name.as_str(), &certificate)
            .map_err(|error| failed(error.to_string()))?;
        tracing::info!(name = name.as_str(), until = %validity.not_after.date(), "certificate issued");
        let der = X509::from_pem(certificate.as_bytes()).and_then(|it| it.to_der());
        Ok(EnrolmentResponse::Issued(der.map_err(|error| failed(error.to_string()))?))
    }

    fn validity(&self, now: OffsetDateTime) -> Result<Validity, String> {
        let authority = self.authority.certificate().map_err(|error| error.to_string())?;
        validity(&self.settings, &authority, now)
    }
}

/// How a request is counted.
fn result_of(request: &EnrolmentRequest, response: &EnrolmentResponse) -> EnrolmentResult {
    match (response, request) {
        (EnrolmentResponse::Issued(_), EnrolmentRequest::Enrol { .. }) => EnrolmentResult::Joined,
        (EnrolmentResponse::Issued(_), EnrolmentRequest::Renew) => EnrolmentResult::Renewed,
        (EnrolmentResponse::Refused(refusal), _) => match refusal {
            EnrolmentRefusal::Invite => EnrolmentResult::InvalidInvitation,
            EnrolmentRefusal::SigningRequest => EnrolmentResult::InvalidSigningRequest,
            EnrolmentRefusal::Denied => EnrolmentResult::ClientDenied,
            EnrolmentRefusal::Unauthenticated => EnrolmentResult::Unauthenticated,
            EnrolmentRefusal::Unavailable => EnrolmentResult::Unavailable,
        },
    }
}

/// As long as configured, and not longer than the authority.
pub(crate) fn validity(
    settings: &ServerEnrolment,
    authority: &X509,
    now: OffsetDateTime,
) -> Result<Validity, String> {
    let lifetime = time::Duration::try_from(settings.certificate_lifetime);
    let validity = Validity::lasting(now, lifetime.map_err(|error| error.to_string())?);
    let end = unix_time(authority.not_after()).map_err(|error| error.to_string())?;
    let end = OffsetDateTime::from_unix_timestamp(end).map_err(|error| error.to_string())?;
    match end > now {
        true => Ok(Validity { not_after: validity.not_after.min(end), ..validity }),
        false => Err("the authority has expired; make a new one in another directory".to_owned()),
    }
}

fn context(
    config: &ServerConfig,
    authority: X509,
) -> Result<SslContext, boring::error::ErrorStack> {
    let credentials = &config.tunnel.credentials;
    let mut context = SslContext::builder(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_certificate_chain_file(&credentials.certificate)?;
    context.set_private_key_file(&credentials.private_key, SslFiletype::PEM)?;
    // New clients know the authority by its fingerprint only.
    context.add_extra_chain_cert(authority.clone())?;
    // New clients have no certificate yet.
    context.set_verify(SslVerifyMode::PEER);
    let mut store = X509StoreBuilder::new()?;
    store.add_cert(&authority)?;
    context.set_verify_cert_store(store.build())?;
    // Certificates are verified in each handshake.
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_options(SslOptions::NO_TICKET);
    Ok(context.build())
}
