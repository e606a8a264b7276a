//! Enrolment of clients: the token that brings an invitation to a new client, and the messages by which a client gets a
//! certificate.
//!
//! A client sends one request over TLS 1.3, and the server answers with one response. Both begin with four bytes: the
//! version, the kind, and the length of the body in network byte order.

mod message;
mod token;

pub use message::{
    ENROLMENT_VERSION, EnrolmentError, EnrolmentRefusal, EnrolmentRequest, EnrolmentResponse,
    MAX_CERTIFICATE_BYTES, MAX_ENROLMENT_REQUEST_BYTES, MAX_ENROLMENT_RESPONSE_BYTES,
    MAX_SIGNING_REQUEST_BYTES, parse_request, parse_response,
};
pub use token::{
    FINGERPRINT_BYTES, INVITE_ID_BYTES, INVITE_SECRET_BYTES, InviteId, InviteSecret, InviteToken,
    InviteTokenError, MAX_TOKEN_CHARS,
};
