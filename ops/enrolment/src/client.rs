//! The client's side: a first certificate by a token, and renewals.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use boring::error::ErrorStack;
use boring::pkey::{PKey, Private};
use boring::ssl::{
    Ssl, SslAlert, SslContext, SslMethod, SslStream, SslVerifyError, SslVerifyMode, SslVersion,
};
use boring::x509::X509;
use millrace_config::{ClientConfig, Host, HostPort};
use millrace_ops::certificates;
use millrace_wire::enrolment::{
    EnrolmentRefusal, EnrolmentRequest, EnrolmentResponse, InviteToken,
    MAX_ENROLMENT_RESPONSE_BYTES, parse_response,
};
use socket2::{Domain, Socket, Type};

use crate::deadline_stream::DeadlineStream;
use crate::exchange;
use crate::pinned::ServerTrust;
use crate::signing_request::SigningKey;

/// Time to connect to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the handshake, the request and the response.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(15);
/// Addresses of a name that are tried, at most.
const MAX_ADDRESSES: usize = 8;

/// Why a client gets no certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentFailure {
    /// The server can't be reached.
    #[error("can't connect to {server} on TCP: {error}")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why not.
        error: io::Error,
    },
    /// It is not the server that the client knows.
    #[error("{0}")]
    Untrusted(String),
    /// TLS or the connection fails.
    #[error("the connection to the server failed: {0}; its log may have the reason")]
    Connection(String),
    /// The server refuses.
    #[error("the server refuses: {0}")]
    Refused(EnrolmentRefusal),
    /// The certificate that came can't be used.
    #[error("the certificate that the server sent can't be used: {0}")]
    Certificate(String),
    /// TLS can't be set up, or a request can't be made.
    #[error("can't make the request: {0}")]
    Request(String),
}

/// What a new client gets, PEM.
#[derive(Clone, Debug)]
pub struct EnrolledClient {
    /// Its certificate.
    pub certificate: String,
    /// The certificate of the authority that signed it, and the server's.
    pub authority: String,
}

/// A client's connection to the enrolment listener of a server.
#[derive(Clone, Debug)]
pub struct ClientSide {
    /// The listener.
    pub server: HostPort,
    /// The name that its certificate must be for.
    pub server_name: Host,
    /// Mark of the socket (SO_MARK), where it can be set.
    pub mark: Option<u32>,
}

/// A certificate and its key, for the handshake.
struct ClientIdentity {
    certificate: X509,
    private_key: PKey<Private>,
}

/// Gets the first certificate of a client, for `key`.
///
/// # Errors
/// The server can't be reached, is not the one that the token names, or refuses. A token may be spent even then.
pub fn enrol(
    side: &ClientSide,
    token: &InviteToken,
    key: &SigningKey,
) -> Result<EnrolledClient, EnrolmentFailure> {
    let request = |error: rcgen::Error| EnrolmentFailure::Request(error.to_string());
    let signing_request = key.request().map_err(request)?;
    let request =
        EnrolmentRequest::Enrol { invite: token.invite, secret: token.secret, signing_request };
    let trust = ServerTrust::Fingerprint(token.authority);
    let (certificate, authority) = side.exchange(&request, trust, None)?;
    let authority = authority.ok_or_else(|| unusable("its authority is unknown"))?;
    let private_key = PKey::private_key_from_pem(key.to_pem().as_bytes()).map_err(unusable)?;
    check_issued(&certificate, &private_key, std::slice::from_ref(&authority))?;
    Ok(EnrolledClient { certificate: pem(&certificate)?, authority: pem(&authority)? })
}

/// Renews the certificate of a client: replaces its file. The key stays.
///
/// # Errors
/// The configuration has no `enrolment.server`, files can't be read or written, or there is no certificate.
pub fn renew(config: &ClientConfig) -> anyhow::Result<()> {
    let enrolment = config.enrolment.as_ref().context(
        "the configuration has no enrolment.server; `millrace-client join` writes one that has",
    )?;
    let credentials = &config.tunnel.credentials;
    let read = |path: &std::path::Path| {
        std::fs::read(path).with_context(|| format!("can't read {}", path.display()))
    };
    let authorities = X509::stack_from_pem(&read(&credentials.ca)?)?;
    let identity = ClientIdentity {
        certificate: X509::from_pem(&read(&credentials.certificate)?)?,
        private_key: PKey::private_key_from_pem(&read(&credentials.private_key)?)?,
    };
    let side = ClientSide {
        server: enrolment.server.clone(),
        server_name: enrolment.server_name.clone(),
        mark: config.tunnel.mark,
    };
    let trust = ServerTrust::Authorities(authorities.clone());
    let (certificate, _) = side.exchange(&EnrolmentRequest::Renew, trust, Some(&identity))?;
    check_issued(&certificate, &identity.private_key, &authorities)?;
    certificates::write_file(&credentials.certificate, &pem(&certificate)?, 0o644, true)?;
    Ok(())
}

/// A new certificate must be for the key, and come from an authority that is known.
fn check_issued(
    certificate: &X509,
    key: &PKey<Private>,
    authorities: &[X509],
) -> Result<(), EnrolmentFailure> {
    if !certificate.public_key().is_ok_and(|public| public.public_eq(key)) {
        return Err(unusable("it is for another key"));
    }
    let is_signed = |authority: &X509| {
        authority.public_key().is_ok_and(|key| certificate.verify(&key).unwrap_or(false))
    };
    match authorities.iter().any(is_signed) {
        true => Ok(()),
        false => Err(unusable("it does not come from the server's authority")),
    }
}

fn unusable(problem: impl ToString) -> EnrolmentFailure {
    EnrolmentFailure::Certificate(problem.to_string())
}

fn pem(certificate: &X509) -> Result<String, EnrolmentFailure> {
    let pem = certificate.to_pem().map_err(unusable)?;
    String::from_utf8(pem).map_err(unusable)
}

impl ClientSide {
    /// Checks that the server takes a connection.
    ///
    /// # Errors
    /// It does not.
    pub fn reach(&self) -> Result<(), EnrolmentFailure> {
        self.connect().map(drop)
    }

    /// Sends a request, and returns the certificate that comes, and the authority that was known by its fingerprint.
    fn exchange(
        &self,
        request: &EnrolmentRequest,
        trust: ServerTrust,
        identity: Option<&ClientIdentity>,
    ) -> Result<(X509, Option<X509>), EnrolmentFailure> {
        let request =
            request.encode().map_err(|error| EnrolmentFailure::Request(error.to_string()))?;
        let stream = self.connect()?;
        let stream = DeadlineStream::new(stream, Instant::now() + EXCHANGE_TIMEOUT);
        let (mut stream, authority) = self.handshake(stream, trust, identity)?;
        let broken = |error: io::Error| EnrolmentFailure::Connection(error.to_string());
        stream.write_all(&request).map_err(broken)?;
        let max = MAX_ENROLMENT_RESPONSE_BYTES;
        match exchange::receive(&mut stream, max, parse_response).map_err(broken)? {
            EnrolmentResponse::Refused(reason) => Err(EnrolmentFailure::Refused(reason)),
            EnrolmentResponse::Issued(der) => {
                Ok((X509::from_der(&der).map_err(unusable)?, authority))
            }
        }
    }

    fn connect(&self) -> Result<TcpStream, EnrolmentFailure> {
        let failed =
            |error| EnrolmentFailure::Unreachable { server: self.server.to_string(), error };
        let addresses: Vec<_> = match &self.server.host {
            Host::Ip(ip) => vec![SocketAddr::new(*ip, self.server.port)],
            Host::Name(name) => {
                let found = (name.as_str(), self.server.port).to_socket_addrs().map_err(failed)?;
                found.take(MAX_ADDRESSES).collect()
            }
        };
        let mut result = Err(io::ErrorKind::NotFound.into());
        for address in addresses {
            result = self.connect_to(address);
            if result.is_ok() {
                break;
            }
        }
        result.map_err(failed)
    }

    fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if let Some(mark) = self.mark {
            // Without CAP_NET_ADMIN it can't be set, and only matters where flows are intercepted.
            let _ = socket.set_mark(mark);
        }
        socket.connect_timeout(&address.into(), CONNECT_TIMEOUT)?;
        socket.set_tcp_nodelay(true)?;
        Ok(socket.into())
    }

    fn handshake(
        &self,
        stream: DeadlineStream,
        trust: ServerTrust,
        identity: Option<&ClientIdentity>,
    ) -> Result<(SslStream<DeadlineStream>, Option<X509>), EnrolmentFailure> {
        let verdict = Arc::new(Mutex::new(Ok(None)));
        let (verified, name) = (verdict.clone(), self.server_name.clone());
        let context = || -> Result<Ssl, ErrorStack> {
            let mut context = SslContext::builder(SslMethod::tls())?;
            context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
            if let Some(identity) = identity {
                context.set_certificate(&identity.certificate)?;
                context.set_private_key(&identity.private_key)?;
            }
            context.set_custom_verify_callback(SslVerifyMode::PEER, move |ssl| {
                let result = trust.verify(ssl, &name);
                let refused = result.is_err();
                *verified.lock().unwrap_or_else(PoisonError::into_inner) = result;
                match refused {
                    true => Err(SslVerifyError::Invalid(SslAlert::BAD_CERTIFICATE)),
                    false => Ok(()),
                }
            });
            let mut ssl = Ssl::new(&context.build())?;
            if let Host::Name(name) = &self.server_name {
                ssl.set_hostname(name)?;
            }
            Ok(ssl)
        };
        let ssl = context().map_err(|error| EnrolmentFailure::Request(error.to_string()))?;
        let connected = ssl.connect(stream);
        let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let authority = verdict.map_err(EnrolmentFailure::Untrusted)?;
        let stream = connected.map_err(|error| EnrolmentFailure::Connection(error.to_string()))?;
        Ok((stream, authority))
    }
}
