//! HTTP/3 CONNECT (RFC 9114 §4.4) and CONNECT-UDP (RFC 9298): field lists of the tunnel's requests
//! and responses.
//!
//! The HTTP/3 layer has decoded the field section; what it must still refuse as malformed
//! (RFC 9114 §4.1.2, §4.2, §4.3) is refused here.

use std::net::SocketAddr;

use crate::connect_udp::{self, PathError};
use crate::repair::{self, RepairMethods};
use crate::traceparent::{TRACE_PARENT_FIELD, TraceParent};
use crate::{AuthorityError, ConnectFailure, Destination, parse_authority};

/// Largest field section, in bytes as RFC 9114 §4.2.2 counts them (name, value and 32 a field). To
/// be announced as `SETTINGS_MAX_FIELD_SECTION_SIZE`.
pub const MAX_FIELD_SECTION_BYTES: usize = 16 * 1024;

/// Most fields in a section, pseudo-header fields included.
pub const MAX_FIELDS: usize = 64;

/// Longest name of a class or an algorithm, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// The request field that names the flow's class.
pub const CLASS_FIELD: &str = "millrace-class";

/// The request field that names the congestion control that the flow requests of the server.
pub const CONGESTION_CONTROL_FIELD: &str = "millrace-congestion-control";

/// The request field with the address of the client's client.
pub const CLIENT_ADDRESS_FIELD: &str = "millrace-client-address";

/// In a request for a UDP flow: the number of the stream whose RTSP connection has set the flow up,
/// and so has its port at the server. In the answer to a TCP flow, with [`RTSP_FOLLOWED`]: the
/// server follows the SETUP requests in it that are marked with [`crate::rtsp::MARK`].
pub const RTSP_FIELD: &str = "millrace-rtsp";

/// The value of [`RTSP_FIELD`] in an answer: the server follows RTSP.
pub const RTSP_FOLLOWED: &str = "?1";

/// RFC 9114 §8.1: the error that a malformed message's stream is reset with.
pub const H3_MESSAGE_ERROR: u64 = 0x10e;

/// A request to connect a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// What it is to carry.
    pub carries: Carries,
    /// Where to.
    pub destination: Destination,
    /// The flow's class (`millrace-class`): letters, digits, `-`, `_` and `.`, at most
    /// [`MAX_NAME_BYTES`]. Trusted only from an authenticated peer.
    pub class: Option<String>,
    /// The congestion control that it requests of the server (`millrace-congestion-control`): a
    /// name as for the class. The server decides.
    pub congestion_control: Option<String>,
    /// The address that opened the flow (`millrace-client-address`). Trusted only from an
    /// authenticated peer.
    pub client_address: Option<SocketAddr>,
    /// The client's span of the request, if it records one ([`TRACE_PARENT_FIELD`]). Trusted only from an authenticated
    /// peer.
    pub trace_parent: Option<TraceParent>,
}

/// What a request's stream is to carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carries {
    /// The bytes of a TCP connection.
    Tcp,
    /// Capsules, beside datagrams.
    Udp {
        /// `:authority`: the proxy itself, as host and port.
        proxy: String,
        /// The stream of the RTSP flow that has set it up ([`RTSP_FIELD`]).
        rtsp_stream: Option<u64>,
        /// The methods of repair that it offers ([`crate::repair::FIELD`]).
        repair: RepairMethods,
    },
}

/// What a server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// 2xx: the tunnel is open.
    Established,
    /// 1xx: another response follows.
    Interim,
    /// Anything else, with the status as sent.
    Failed {
        /// The HTTP status, 300 to 599.
        status: u16,
        /// What it means for the flow.
        failure: ConnectFailure,
    },
}

/// Why a field list is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum H3ConnectError {
    /// Above [`MAX_FIELD_SECTION_BYTES`] or [`MAX_FIELDS`].
    #[error(
        "the field section has more than {MAX_FIELDS} fields or {MAX_FIELD_SECTION_BYTES} bytes"
    )]
    TooLarge,
    /// A name that is empty, in upper case or not a token.
    #[error("a field name is empty, not in lower case, or no HTTP token")]
    BadName,
    /// A value with NUL, CR or LF, or with space around it (RFC 9110 §5.5).
    #[error("the value of the field {0} has NUL, CR or LF in it, or space around it")]
    BadValue(String),
    /// A pseudo-header field after a regular one.
    #[error("the pseudo-header field {0} comes after a regular field")]
    PseudoAfterRegular(String),
    /// A pseudo-header field that does not exist, or not in this message.
    #[error("the pseudo-header field {0} is unknown or not allowed here")]
    UnexpectedPseudo(String),
    /// A field that may be there once.
    #[error("the field {0} is repeated")]
    Repeated(&'static str),
    /// A pseudo-header field that must be there.
    #[error("the pseudo-header field {0} is missing")]
    Missing(&'static str),
    /// A field that speaks of the connection, which HTTP/3 does not have (RFC 9114 §4.2).
    #[error("the connection-specific field {0} is not allowed in HTTP/3")]
    ConnectionSpecific(String),
    /// Content-Length: a tunnel has no length.
    #[error("content-length is not allowed with CONNECT")]
    HasContent,
    /// `:authority` is no `host:port`, or the Host field says otherwise.
    #[error("the :authority of the request is not usable: {0}")]
    BadAuthority(#[from] AuthorityError),
    /// The Host field differs from `:authority` (RFC 9114 §4.3.1).
    #[error("the host field differs from :authority")]
    HostDiffers,
    /// `:method` is not CONNECT.
    #[error("the method is not CONNECT")]
    MethodNotAllowed,
    /// Extended CONNECT (RFC 9220) of a protocol that is not offered.
    #[error("extended CONNECT with the protocol {0} is not implemented")]
    ExtendedConnect(String),
    /// The :path of a CONNECT-UDP request.
    #[error(transparent)]
    BadPath(#[from] PathError),
    /// `:authority` or `:scheme` of an extended CONNECT is empty (RFC 9298 §3.4).
    #[error("the pseudo-header field {0} is empty")]
    Empty(&'static str),
    /// A class or an algorithm's name that is empty, too long or has other bytes.
    #[error("{0} is not 1 to {MAX_NAME_BYTES} letters, digits, '-', '_' and '.'")]
    BadToken(&'static str),
    /// A client address that is no `IP:port`.
    #[error("millrace-client-address is not an IP address with a port")]
    BadClientAddress,
    /// An RTSP stream that is no number, or in a request that is not for UDP.
    #[error("millrace-rtsp is not the number of a stream, or the request is not for UDP")]
    BadRtspStream,
    /// A `:status` that is not 100 to 599.
    #[error("the :status of the response is not a number from 100 to 599")]
    BadStatus,
}

impl H3ConnectError {
    /// The status to answer a request with. A malformed one ([`H3ConnectError::is_malformed`]) may be
    /// answered so before its stream is reset (RFC 9114 §4.1.2).
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 431,
            Self::MethodNotAllowed => 405,
            Self::BadPath(PathError::OtherPath) => 404,
            Self::ExtendedConnect(_) => 501,
            _ => 400,
        }
    }

    /// Whether RFC 9114 calls the message malformed, so that its stream is to be reset with
    /// [`H3_MESSAGE_ERROR`]. Otherwise it is well-formed but not served.
    pub fn is_malformed(&self) -> bool {
        !matches!(
            self,
            Self::TooLarge
                | Self::MethodNotAllowed
                | Self::ExtendedConnect(_)
                | Self::BadPath(_)
                | Self::BadToken(_)
                | Self::BadClientAddress
                | Self::BadRtspStream
        )
    }
}

/// Reads a CONNECT request from its fields, in their order.
///
/// # Errors
/// The fields are malformed, or the request is not served.
pub fn parse_request<'a>(
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<ConnectRequest, H3ConnectError> {
    let [mut method, mut authority, mut protocol, mut scheme, mut path] = [None; 5];
    let [mut class, mut congestion_control, mut client_address, mut host] = [None; 4];
    let [mut rtsp_stream, mut repair] = [None; 2];
    let (mut trace_parent, mut trace_parents) = (None, 0);
    for field in Checked::new(fields) {
        let (name, value) = field?;
        match name {
            b":method" => once(&mut method, value, ":method")?,
            b":authority" => once(&mut authority, value, ":authority")?,
            b":protocol" => once(&mut protocol, value, ":protocol")?,
            b":scheme" => once(&mut scheme, value, ":scheme")?,
            b":path" => once(&mut path, value, ":path")?,
            [b':', ..] => return Err(H3ConnectError::UnexpectedPseudo(lossy(name))),
            b"host" => once(&mut host, value, "host")?,
            b"content-length" => return Err(H3ConnectError::HasContent),
            _ if name == CLASS_FIELD.as_bytes() => once(&mut class, value, CLASS_FIELD)?,
            _ if name == CONGESTION_CONTROL_FIELD.as_bytes() => {
                once(&mut congestion_control, value, CONGESTION_CONTROL_FIELD)?;
            }
            _ if name == CLIENT_ADDRESS_FIELD.as_bytes() => {
                once(&mut client_address, value, CLIENT_ADDRESS_FIELD)?;
            }
            _ if name == RTSP_FIELD.as_bytes() => once(&mut rtsp_stream, value, RTSP_FIELD)?,
            _ if name == repair::FIELD.as_bytes() => once(&mut repair, value, repair::FIELD)?,
            _ if name == TRACE_PARENT_FIELD.as_bytes() => {
                trace_parents += 1;
                trace_parent = TraceParent::parse(value);
            }
            _ => {}
        }
    }
    if method.ok_or(H3ConnectError::Missing(":method"))? != b"CONNECT" {
        return Err(H3ConnectError::MethodNotAllowed);
    }
    if let Some(other) = protocol.filter(|it| *it != connect_udp::PROTOCOL.as_bytes()) {
        return Err(H3ConnectError::ExtendedConnect(lossy(other)));
    }
    for (unwanted, name) in [(scheme, ":scheme"), (path, ":path")] {
        if unwanted.is_some() && protocol.is_none() {
            return Err(H3ConnectError::UnexpectedPseudo(name.into()));
        }
    }
    let authority = authority.ok_or(H3ConnectError::Missing(":authority"))?;
    if host.is_some_and(|host| host != authority) {
        return Err(H3ConnectError::HostDiffers);
    }
    let (carries, destination) = match protocol {
        None if rtsp_stream.is_some() => return Err(H3ConnectError::BadRtspStream),
        None => (Carries::Tcp, parse_authority(&lossy(authority))?),
        Some(_) => {
            for (field, name) in [(Some(authority), ":authority"), (scheme, ":scheme")] {
                if field.ok_or(H3ConnectError::Missing(name))?.is_empty() {
                    return Err(H3ConnectError::Empty(name));
                }
            }
            let path = path.ok_or(H3ConnectError::Missing(":path"))?;
            let destination = connect_udp::parse_path(path)?;
            let rtsp_stream = rtsp_stream.map(parse_stream).transpose()?;
            let repair = repair.map_or(RepairMethods::default(), RepairMethods::parse);
            (Carries::Udp { proxy: lossy(authority), rtsp_stream, repair }, destination)
        }
    };
    Ok(ConnectRequest {
        carries,
        destination,
        class: class.map(|name| parse_name(name, CLASS_FIELD)).transpose()?,
        congestion_control: congestion_control
            .map(|name| parse_name(name, CONGESTION_CONTROL_FIELD))
            .transpose()?,
        client_address: client_address.map(parse_client_address).transpose()?,
        // A malformed field, or several, never fail a request (W3C Trace Context, Section 3.2).
        trace_parent: trace_parent.filter(|_| trace_parents == 1),
    })
}

/// Reads a response from its fields, in their order.
///
/// # Errors
/// The fields are too large, or the response is malformed (all errors but [`H3ConnectError::TooLarge`]).
pub fn parse_response<'a>(
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Response, H3ConnectError> {
    let [mut status, mut proxy_status] = [None; 2];
    for field in Checked::new(fields) {
        let (name, value) = field?;
        match name {
            b":status" => once(&mut status, value, ":status")?,
            [b':', ..] => return Err(H3ConnectError::UnexpectedPseudo(lossy(name))),
            // A list field; of several lines the first is nearest the origin, and enough.
            b"proxy-status" => proxy_status = proxy_status.or(Some(value)),
            _ => {}
        }
    }
    let status = match status.ok_or(H3ConnectError::Missing(":status"))? {
        [hundreds @ b'1'..=b'5', rest @ ..]
            if rest.len() == 2 && rest.iter().all(u8::is_ascii_digit) =>
        {
            rest.iter().fold(u16::from(hundreds - b'0'), |n, b| n * 10 + u16::from(b - b'0'))
        }
        _ => return Err(H3ConnectError::BadStatus),
    };
    Ok(match status {
        100..200 => Response::Interim,
        200..300 => Response::Established,
        _ => {
            let failure = ConnectFailure::from_response(status, proxy_status);
            Response::Failed { status, failure }
        }
    })
}

/// Whether a response says that the server follows RTSP ([`RTSP_FIELD`]).
pub fn follows_rtsp<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> bool {
    fields.into_iter().any(|it| it == (RTSP_FIELD.as_bytes(), RTSP_FOLLOWED.as_bytes()))
}

impl ConnectRequest {
    /// The request's fields, in the order to send them.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![(":method", "CONNECT".into())];
        match &self.carries {
            Carries::Tcp => fields.push((":authority", self.destination.to_string())),
            Carries::Udp { proxy, .. } => fields.extend([
                (":protocol", connect_udp::PROTOCOL.into()),
                (":scheme", "https".into()),
                (":authority", proxy.clone()),
                (":path", connect_udp::path(&self.destination)),
                (connect_udp::CAPSULE_PROTOCOL.0, connect_udp::CAPSULE_PROTOCOL.1.into()),
            ]),
        }
        if let Some(class) = &self.class {
            fields.push((CLASS_FIELD, class.clone()));
        }
        if let Some(name) = &self.congestion_control {
            fields.push((CONGESTION_CONTROL_FIELD, name.clone()));
        }
        if let Some(address) = self.client_address {
            fields.push((CLIENT_ADDRESS_FIELD, address.to_string()));
        }
        if let Some(parent) = self.trace_parent {
            fields.push((TRACE_PARENT_FIELD, parent.to_string()));
        }
        if let Carries::Udp { rtsp_stream: Some(stream), .. } = self.carries {
            fields.push((RTSP_FIELD, stream.to_string()));
        }
        if let Carries::Udp { repair, .. } = self.carries
            && !repair.is_empty()
        {
            fields.push((repair::FIELD, repair.to_string()));
        }
        fields
    }
}

/// The fields of a response to a flow that could not be connected, in the order to send them.
pub fn failure_fields(failure: ConnectFailure) -> [(&'static str, String); 2] {
    [(":status", failure.status().to_string()), ("proxy-status", failure.proxy_status().into())]
}

/// Passes fields on after the checks that every HTTP/3 message is subject to; ends at the first
/// error.
struct Checked<I> {
    fields: I,
    count: usize,
    section_bytes: usize,
    regular_seen: bool,
}

impl<I> Checked<I> {
    fn new<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8]), IntoIter = I>) -> Self {
        let fields = fields.into_iter();
        Self { fields, count: 0, section_bytes: 0, regular_seen: false }
    }

    fn check(&mut self, name: &[u8], value: &[u8]) -> Result<(), H3ConnectError> {
        self.count += 1;
        self.section_bytes =
            self.section_bytes.saturating_add(name.len()).saturating_add(value.len() + 32);
        if self.count > MAX_FIELDS || self.section_bytes > MAX_FIELD_SECTION_BYTES {
            return Err(H3ConnectError::TooLarge);
        }
        let (pseudo, token) = match name.strip_prefix(b":") {
            Some(token) => (true, token),
            None => (false, name),
        };
        if token.is_empty() || !token.iter().copied().all(is_lower_token) {
            return Err(H3ConnectError::BadName);
        }
        if pseudo && self.regular_seen {
            return Err(H3ConnectError::PseudoAfterRegular(lossy(name)));
        }
        self.regular_seen |= !pseudo;
        let space = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
        if value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'))
            || space(value.first())
            || space(value.last())
        {
            return Err(H3ConnectError::BadValue(lossy(name)));
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Err(H3ConnectError::ConnectionSpecific(lossy(name))),
            b"te" if value != b"trailers" => Err(H3ConnectError::ConnectionSpecific(lossy(name))),
            _ => Ok(()),
        }
    }
}

impl<'a, I: Iterator<Item = (&'a [u8], &'a [u8])>> Iterator for Checked<I> {
    type Item = Result<(&'a [u8], &'a [u8]), H3ConnectError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.fields.next()?;
        Some(self.check(name, value).map(|()| (name, value)))
    }
}

/// RFC 9110 §5.6.2 without upper case (RFC 9114 §4.2).
fn is_lower_token(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn once<'a>(
    slot: &mut Option<&'a [u8]>,
    value: &'a [u8],
    name: &'static str,
) -> Result<(), H3ConnectError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(H3ConnectError::Repeated(name)),
    }
}

fn parse_name(value: &[u8], field: &'static str) -> Result<String, H3ConnectError> {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if (1..=MAX_NAME_BYTES).contains(&value.len()) && value.iter().all(allowed) {
        Ok(lossy(value))
    } else {
        Err(H3ConnectError::BadToken(field))
    }
}

fn parse_client_address(value: &[u8]) -> Result<SocketAddr, H3ConnectError> {
    let address: SocketAddr = lossy(value).parse().map_err(|_| H3ConnectError::BadClientAddress)?;
    // A zone means nothing on another machine.
    Ok((address.ip(), address.port()).into())
}

/// A stream's number (RFC 9000, Section 2.1), which a peer opened.
fn parse_stream(value: &[u8]) -> Result<u64, H3ConnectError> {
    let digits = value.iter().all(u8::is_ascii_digit);
    let number = digits.then(|| lossy(value).parse().ok()).flatten();
    number.filter(|number| *number < 1 << 62).ok_or(H3ConnectError::BadRtspStream)
}

/// Text of bytes; what is not UTF-8 becomes U+FFFD, which no parser here accepts.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[path = "h3_connect_tests.rs"]
mod tests;
