//! Requests and responses of enrolment.

use crate::Parsed;

use super::token::{INVITE_ID_BYTES, INVITE_SECRET_BYTES, InviteId, InviteSecret};

/// Version of the messages.
pub const ENROLMENT_VERSION: u8 = 1;
/// Version, kind and length of the body.
const HEADER_BYTES: usize = 4;
/// Longest certificate signing request, in DER. One with a key on P-256 and no names has about 200 bytes.
pub const MAX_SIGNING_REQUEST_BYTES: usize = 1024;
/// Longest certificate, in DER. One with a key on P-256 and the longest name has about 700 bytes.
pub const MAX_CERTIFICATE_BYTES: usize = 4096;
/// Longest request.
pub const MAX_ENROLMENT_REQUEST_BYTES: usize =
    HEADER_BYTES + INVITE_ID_BYTES + INVITE_SECRET_BYTES + MAX_SIGNING_REQUEST_BYTES;
/// Longest response.
pub const MAX_ENROLMENT_RESPONSE_BYTES: usize = HEADER_BYTES + MAX_CERTIFICATE_BYTES;

const ENROL: u8 = 1;
const RENEW: u8 = 2;
const ISSUED: u8 = 3;
const REFUSED: u8 = 4;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnrolmentRequest {
    /// A first certificate, by an invitation.
    Enrol {
        /// The invitation.
        invite: InviteId,
        /// Its secret.
        secret: InviteSecret,
        /// A certificate signing request (PKCS #10, RFC 2986) in DER, 1 to [`MAX_SIGNING_REQUEST_BYTES`] bytes. Only its
        /// public key counts.
        signing_request: Vec<u8>,
    },
    /// A new certificate for the name and key of the one that the client shows in the TLS handshake.
    Renew,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnrolmentResponse {
    /// The certificate, in DER, 1 to [`MAX_CERTIFICATE_BYTES`] bytes.
    Issued(Vec<u8>),
    /// No certificate.
    Refused(EnrolmentRefusal),
}

/// Why a server issues no certificate. Does not tell a wrong secret from an unknown invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum EnrolmentRefusal {
    /// No such invitation is open.
    #[error("the invitation is unknown, was used already or has expired")]
    Invite = 1,
    /// The signing request can't be used.
    #[error("the certificate signing request is not valid, or its key is not on P-256")]
    SigningRequest = 2,
    /// The client is on the deny-list.
    #[error("the client is denied (tunnel.denied_clients)")]
    Denied = 3,
    /// A renewal without a certificate, or with one that is not accepted.
    #[error("the client shows no certificate that the server accepts")]
    Unauthenticated = 4,
    /// The server can't issue certificates now; its log says why.
    #[error("the server can't issue a certificate; its log has the reason")]
    Unavailable = 5,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolmentError {
    /// Another version.
    #[error("enrolment message of version {0}; this program has version {ENROLMENT_VERSION}")]
    Version(u8),
    /// No kind that is expected here.
    #[error("unknown enrolment message {0}")]
    Kind(u8),
    /// A length that no message of the kind has.
    #[error("enrolment message {kind} with a body of {length} bytes")]
    Length {
        /// Kind of the message.
        kind: u8,
        /// Length of its body, in bytes.
        length: usize,
    },
    /// A code for no refusal.
    #[error("unknown reason {0} of a refusal")]
    Reason(u8),
}

/// Parses a request from all bytes so far, at most [`MAX_ENROLMENT_REQUEST_BYTES`] of them.
///
/// # Errors
/// The bytes begin no request.
pub fn parse_request(bytes: &[u8]) -> Result<Parsed<EnrolmentRequest>, EnrolmentError> {
    let fixed = INVITE_ID_BYTES + INVITE_SECRET_BYTES;
    let lengths = |kind| match kind {
        ENROL => Some(fixed + 1..=fixed + MAX_SIGNING_REQUEST_BYTES),
        RENEW => Some(0..=0),
        _ => None,
    };
    parse(bytes, lengths, |kind, body| {
        let invalid = EnrolmentError::Length { kind, length: body.len() };
        if kind == RENEW {
            return Ok(EnrolmentRequest::Renew);
        }
        let (invite, rest) = body.split_first_chunk().ok_or(invalid)?;
        let (secret, rest) = rest.split_first_chunk().ok_or(invalid)?;
        let (invite, secret) = (InviteId(*invite), InviteSecret(*secret));
        Ok(EnrolmentRequest::Enrol { invite, secret, signing_request: rest.to_vec() })
    })
}

/// Parses a response from all bytes so far, at most [`MAX_ENROLMENT_RESPONSE_BYTES`] of them.
///
/// # Errors
/// The bytes begin no response.
pub fn parse_response(bytes: &[u8]) -> Result<Parsed<EnrolmentResponse>, EnrolmentError> {
    let lengths = |kind| match kind {
        ISSUED => Some(1..=MAX_CERTIFICATE_BYTES),
        REFUSED => Some(1..=1),
        _ => None,
    };
    parse(bytes, lengths, |kind, body| match (kind, body) {
        (REFUSED, [code, ..]) => Ok(EnrolmentResponse::Refused(EnrolmentRefusal::of(*code)?)),
        _ => Ok(EnrolmentResponse::Issued(body.to_vec())),
    })
}

/// `lengths` are those of the body of each kind, `value` makes a message of a whole body.
fn parse<T>(
    bytes: &[u8],
    lengths: impl Fn(u8) -> Option<std::ops::RangeInclusive<usize>>,
    value: impl Fn(u8, &[u8]) -> Result<T, EnrolmentError>,
) -> Result<Parsed<T>, EnrolmentError> {
    match bytes.first() {
        Some(&ENROLMENT_VERSION) | None => {}
        Some(other) => return Err(EnrolmentError::Version(*other)),
    }
    let Some(&kind) = bytes.get(1) else { return Ok(Parsed::Incomplete) };
    let lengths = lengths(kind).ok_or(EnrolmentError::Kind(kind))?;
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(Parsed::Incomplete);
    };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if !lengths.contains(&length) {
        return Err(EnrolmentError::Length { kind, length });
    }
    let Some(body) = rest.get(..length) else { return Ok(Parsed::Incomplete) };
    Ok(Parsed::Complete { value: value(kind, body)?, consumed: HEADER_BYTES + length })
}

impl EnrolmentRequest {
    /// The bytes of the request.
    ///
    /// # Errors
    /// The signing request is empty or too long.
    pub fn encode(&self) -> Result<Vec<u8>, EnrolmentError> {
        let (kind, body) = match self {
            Self::Renew => (RENEW, Vec::new()),
            Self::Enrol { invite, secret, signing_request } => {
                (ENROL, [&invite.0[..], &secret.0, signing_request].concat())
            }
        };
        let bytes = encode(kind, &body);
        match parse_request(&bytes)? {
            Parsed::Complete { .. } => Ok(bytes),
            Parsed::Incomplete => Err(EnrolmentError::Length { kind, length: body.len() }),
        }
    }
}

impl EnrolmentResponse {
    /// The bytes of the response.
    ///
    /// # Errors
    /// The certificate is empty or too long.
    pub fn encode(&self) -> Result<Vec<u8>, EnrolmentError> {
        let (kind, body) = match self {
            Self::Issued(certificate) => (ISSUED, certificate.clone()),
            Self::Refused(reason) => (REFUSED, vec![*reason as u8]),
        };
        let bytes = encode(kind, &body);
        match parse_response(&bytes)? {
            Parsed::Complete { .. } => Ok(bytes),
            Parsed::Incomplete => Err(EnrolmentError::Length { kind, length: body.len() }),
        }
    }
}

/// A body that is too long gets a length that its parser refuses.
fn encode(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    [&[ENROLMENT_VERSION, kind][..], &length.to_be_bytes(), body].concat()
}

impl EnrolmentRefusal {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Invite,
        Self::SigningRequest,
        Self::Denied,
        Self::Unauthenticated,
        Self::Unavailable,
    ];

    fn of(code: u8) -> Result<Self, EnrolmentError> {
        let reason = Self::ALL.into_iter().find(|reason| *reason as u8 == code);
        reason.ok_or(EnrolmentError::Reason(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::assert_incremental;

    fn enrol(signing_request: Vec<u8>) -> EnrolmentRequest {
        let (invite, secret) = (InviteId([7; 8]), InviteSecret([9; 16]));
        EnrolmentRequest::Enrol { invite, secret, signing_request }
    }

    #[test]
    fn messages_are_read_from_any_prefix() {
        for request in [enrol(vec![0x30]), enrol(vec![1; 1024]), EnrolmentRequest::Renew] {
            assert_incremental(parse_request, &request.encode().unwrap(), &request);
        }
        let refusals = EnrolmentRefusal::ALL.map(EnrolmentResponse::Refused);
        let issued = [1, MAX_CERTIFICATE_BYTES].map(|it| EnrolmentResponse::Issued(vec![3; it]));
        for response in refusals.into_iter().chain(issued) {
            assert_incremental(parse_response, &response.encode().unwrap(), &response);
        }
    }

    #[test]
    fn malformed_messages_are_refused_at_their_first_wrong_byte() {
        for (bytes, error) in [
            (&[2][..], EnrolmentError::Version(2)),
            (&[1, 3][..], EnrolmentError::Kind(3)),
            (&[1, 2, 0, 1][..], EnrolmentError::Length { kind: 2, length: 1 }),
            (&[1, 1, 0, 24][..], EnrolmentError::Length { kind: 1, length: 24 }),
            (&[1, 1, 4, 25][..], EnrolmentError::Length { kind: 1, length: 1049 }),
            (&[1, 1, 255, 255][..], EnrolmentError::Length { kind: 1, length: 65_535 }),
        ] {
            assert_eq!(parse_request(bytes), Err(error), "{bytes:?}");
        }
        assert_eq!(parse_response(&[1, 4, 0, 1, 0]), Err(EnrolmentError::Reason(0)));
        assert_eq!(parse_response(&[1, 1]), Err(EnrolmentError::Kind(1)));
    }

    #[test]
    fn messages_beyond_the_limits_are_not_written() {
        assert!(enrol(Vec::new()).encode().is_err());
        assert!(enrol(vec![1; MAX_SIGNING_REQUEST_BYTES + 1]).encode().is_err());
        for length in [0, MAX_CERTIFICATE_BYTES + 1, 70_000] {
            assert!(EnrolmentResponse::Issued(vec![0; length]).encode().is_err(), "{length}");
        }
    }
}
