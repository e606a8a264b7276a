//! Why a connection ended, for logs and metrics.

use boring::ssl::SslRef;
use boring::x509::X509VerifyError;

use crate::h3_errors::H3_NO_ERROR;
use crate::metrics::HandshakeFailure;
use crate::tls_words;

/// TLS alerts are QUIC errors from here on (RFC 9001, Section 4.8).
const CRYPTO_ERROR: u64 = 0x100;
/// RFC 9000, Section 10.2.3: what an application's code becomes during the handshake.
const APPLICATION_ERROR: u64 = 0xc;
/// RFC 8446, Section 6.2: the peer was asked for a certificate and sent none.
const CERTIFICATE_REQUIRED: u64 = 116;

/// Why a handshake failed.
pub fn handshake_failure(quic: &mut quiche::Connection) -> HandshakeFailure {
    if quic.is_timed_out() {
        return HandshakeFailure::Timeout;
    }
    let Some(error) = quic.local_error() else {
        return match quic.peer_error() {
            Some(_) => HandshakeFailure::RefusedByPeer,
            None => HandshakeFailure::Timeout,
        };
    };
    // Given up by us: before a handshake's end there is nothing else to say with an HTTP/3 code.
    if matches!((error.is_app, error.error_code), (true, H3_NO_ERROR) | (false, APPLICATION_ERROR))
    {
        return HandshakeFailure::Timeout;
    }
    if !error.is_app && error.error_code == CRYPTO_ERROR + CERTIFICATE_REQUIRED {
        return HandshakeFailure::NoCertificate;
    }
    match verify_error(quic) {
        Some(X509VerifyError::CERT_HAS_EXPIRED | X509VerifyError::CERT_NOT_YET_VALID) => {
            HandshakeFailure::Expired
        }
        Some(X509VerifyError::CERT_REVOKED) => HandshakeFailure::Denied,
        Some(
            X509VerifyError::UNABLE_TO_GET_ISSUER_CERT
            | X509VerifyError::UNABLE_TO_GET_ISSUER_CERT_LOCALLY
            | X509VerifyError::UNABLE_TO_VERIFY_LEAF_SIGNATURE
            | X509VerifyError::DEPTH_ZERO_SELF_SIGNED_CERT
            | X509VerifyError::SELF_SIGNED_CERT_IN_CHAIN
            | X509VerifyError::CERT_SIGNATURE_FAILURE,
        ) => HandshakeFailure::UnknownAuthority,
        Some(
            X509VerifyError::HOSTNAME_MISMATCH
            | X509VerifyError::IP_ADDRESS_MISMATCH
            | X509VerifyError::INVALID_PURPOSE,
        ) => HandshakeFailure::WrongName,
        _ => HandshakeFailure::Other,
    }
}

/// The reason why a connection ended, as text.
pub fn close_reason(quic: &mut quiche::Connection) -> String {
    if quic.is_timed_out() {
        return "no answer in time".to_owned();
    }
    let verify = verify_error(quic);
    match (quic.local_error(), quic.peer_error()) {
        (Some(error), _) => match verify.filter(|_| is_tls(error)) {
            Some(verify) => {
                format!("{}: {}", describe("this side", error), tls_words::refusal(verify))
            }
            None => describe("this side", error),
        },
        (None, Some(error)) => describe("the peer", error),
        (None, None) if quic.is_established() => "reset: the peer has lost its state".to_owned(),
        (None, None) => "handshake aborted".to_owned(),
    }
}

/// The TLS alert with which the peer ended it.
pub fn peer_alert(quic: &quiche::Connection) -> Option<u64> {
    let error = quic.peer_error().filter(|error| is_tls(error))?;
    Some(error.error_code - CRYPTO_ERROR)
}

/// Whether TLS ended it; only then has it come to judge the peer's certificate.
fn is_tls(error: &quiche::ConnectionError) -> bool {
    !error.is_app && (CRYPTO_ERROR..=CRYPTO_ERROR + 0xff).contains(&error.error_code)
}

fn describe(side: &str, error: &quiche::ConnectionError) -> String {
    let what = match (error.is_app, error.error_code) {
        (false, code @ 0x100..=0x1ff) => {
            let alert = code - CRYPTO_ERROR;
            format!("TLS alert {alert} ({})", tls_words::alert(alert))
        }
        (false, code) => format!("QUIC error {code:#x}"),
        (true, H3_NO_ERROR) => "closed".to_owned(),
        (true, code) => format!("HTTP/3 error {code:#x}"),
    };
    let reason = String::from_utf8_lossy(&error.reason);
    format!("{what} by {side}{}{reason}", if reason.is_empty() { "" } else { ": " })
}

/// What BoringSSL disliked about the peer's certificate.
fn verify_error(quic: &mut quiche::Connection) -> Option<X509VerifyError> {
    let tls: &mut SslRef = quic.as_mut();
    tls.verify_result().err()
}
