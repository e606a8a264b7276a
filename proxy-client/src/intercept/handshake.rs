//! The handshake of an accepted connection before it becomes a flow.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use millrace_tunnel::http_exchange::HttpExchange;
use millrace_wire::http_connect::HttpConnectError;
use millrace_wire::http_forward::HttpForwardError;
use millrace_wire::http_reply::without_content;
use millrace_wire::proxy_authorization::{self, ProxyAuthorization};
use millrace_wire::{
    AuthorityError, ConnectFailure, Destination, Parsed, http_connect, http_forward,
    proxy_protocol, socks5,
};

use super::mode::Mode;
use super::original::{KernelInterception, OriginalDestinationError, original_destination};
use crate::proxy_credentials::ProxyCredentials;

/// The most bytes a handshake may take, and the size of buffer that suffices for every mode.
pub const MAX_HANDSHAKE_BYTES: usize = http_connect::MAX_HEAD_BYTES;

/// The handshake of one accepted connection. Does no I/O: the event loop brings the bytes and
/// watches the time.
#[derive(Debug)]
pub struct Handshake {
    state: HandshakeState,
    /// What the client must show, if anything.
    credentials: Option<Arc<ProxyCredentials>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HandshakeState {
    /// Transparent and static modes: there is no handshake.
    Known(Destination),
    ProxyProtocol,
    HttpConnect,
    /// A request in absolute form has been read.
    HttpForward(Destination, Box<HttpExchange>),
    SocksGreeting,
    SocksPassword,
    SocksRequest,
}

/// The next step for the event loop.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more, then call again with all bytes that have not been consumed, old and new.
    NeedMore,
    /// Drop `consumed` bytes from the front of the buffer, send `bytes` to the client, and call
    /// again with the rest at once (it may be empty).
    Reply {
        /// What to send.
        bytes: Vec<u8>,
        /// Bytes of the buffer that are done with.
        consumed: usize,
    },
    /// Put `bytes` in place of `consumed` bytes at the front of the buffer, and call again with it at once.
    Replace {
        /// What the flow begins with.
        bytes: Vec<u8>,
        /// Bytes of the buffer that are done with.
        consumed: usize,
    },
    /// The handshake is over: drop `consumed` bytes from the front of the buffer. What follows them
    /// is the flow's first data.
    Ready {
        /// Where the flow goes.
        destination: Destination,
        /// The flow's client, if the handshake named one other than the connection's peer.
        client: Option<SocketAddr>,
        /// Bytes of the buffer that are done with.
        consumed: usize,
    },
}

/// The connection is refused: send `reply`, if there is any, and close.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Reject {
    /// What to send before closing; empty for a reset.
    pub reply: Vec<u8>,
    /// Reason for the log and a counter.
    pub reason: RejectReason,
}

/// Why a connection was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// See [`proxy_protocol::ProxyProtocolError`].
    #[error("bad PROXY header: {0}")]
    ProxyProtocol(#[from] proxy_protocol::ProxyProtocolError),
    /// A good PROXY header without a TCP destination (`LOCAL` or `UNKNOWN`): a load balancer's health
    /// check.
    #[error("the PROXY header names no TCP destination")]
    NoDestination,
    /// A good PROXY header with destination port 0.
    #[error("the PROXY header's destination is not usable: {0}")]
    BadDestination(AuthorityError),
    /// See [`http_connect::HttpConnectError`].
    #[error("bad HTTP CONNECT request: {0}")]
    HttpConnect(#[from] HttpConnectError),
    /// See [`HttpForwardError`].
    #[error("bad HTTP request: {0}")]
    HttpForward(#[from] HttpForwardError),
    /// See [`socks5::Socks5Error`].
    #[error("bad SOCKS5 request: {0}")]
    Socks5(#[from] socks5::Socks5Error),
    /// The SOCKS5 client insists on authentication.
    #[error("the SOCKS5 client does not offer to go without authentication, the only method here")]
    NoAcceptableMethod,
    /// The client shows no credentials, or offers none, where they are needed.
    #[error("the client shows no user name and password")]
    MissingCredentials,
    /// The client shows credentials of no user.
    #[error("the client shows a wrong user name or password")]
    WrongCredentials,
}

impl RejectReason {
    /// Value of a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::ProxyProtocol(_) | Self::BadDestination(_) => "proxy_protocol",
            Self::NoDestination => "no_destination",
            Self::HttpConnect(_) | Self::HttpForward(_) => "http_connect",
            Self::Socks5(_) | Self::NoAcceptableMethod => "socks5",
            Self::MissingCredentials | Self::WrongCredentials => "credentials",
        }
    }
}

impl Handshake {
    /// Begins the handshake of a connection that a listener with this mode accepted. `listening` is
    /// the listener's own address, `None` for a Unix socket.
    ///
    /// Call [`Handshake::on_bytes`] at once with an empty buffer: modes without a handshake are ready
    /// then.
    ///
    /// # Errors
    /// In the transparent modes, if the connection was not intercepted but made to the listener
    /// itself, or came over a Unix socket.
    pub fn begin(
        mode: &Mode,
        accepted: &impl AsFd,
        listening: Option<SocketAddr>,
    ) -> Result<Self, OriginalDestinationError> {
        let original = |interception| {
            let listening = listening.ok_or_else(|| OriginalDestinationError::Unknown {
                step: "Unix socket",
                error: std::io::ErrorKind::Unsupported.into(),
            })?;
            let address = original_destination(interception, accepted, listening)?;
            Ok(HandshakeState::Known(Destination::Address(address)))
        };
        let state = match mode {
            Mode::Tproxy => original(KernelInterception::Tproxy)?,
            Mode::Redirect => original(KernelInterception::Redirect)?,
            Mode::ProxyProtocol => HandshakeState::ProxyProtocol,
            Mode::HttpConnect => HandshakeState::HttpConnect,
            Mode::Socks5 => HandshakeState::SocksGreeting,
            Mode::Static(destination) => HandshakeState::Known(destination.clone()),
        };
        Ok(Self { state, credentials: None })
    }

    /// Asks the client of an explicit proxy for credentials.
    pub fn with_credentials(self, credentials: Option<Arc<ProxyCredentials>>) -> Self {
        Self { credentials, ..self }
    }

    /// The finished handshake of a connection whose client gets no reply.
    pub fn over(destination: Destination) -> Self {
        Self { state: HandshakeState::Known(destination), credentials: None }
    }

    /// The handshake of a client that waits for the response to a request in absolute form.
    pub fn forwarding(destination: Destination, exchange: Box<HttpExchange>) -> Self {
        Self { state: HandshakeState::HttpForward(destination, exchange), credentials: None }
    }

    /// Whether the client has sent a request in absolute form.
    pub fn is_forwarding(&self) -> bool {
        matches!(self.state, HandshakeState::HttpForward(..))
    }

    /// The exchange that the flow carries, if the client has sent a request in absolute form.
    pub fn into_exchange(self) -> Option<Box<HttpExchange>> {
        match self.state {
            HandshakeState::HttpForward(_, exchange) => Some(exchange),
            _ => None,
        }
    }

    /// Looks at the client's bytes: all that were received and not consumed yet. A buffer of
    /// [`MAX_HANDSHAKE_BYTES`] never fills without an answer other than [`Step::NeedMore`].
    ///
    /// # Errors
    /// [`Reject`] for bytes that no client of this mode may send.
    pub fn on_bytes(&mut self, buf: &[u8]) -> Result<Step, Reject> {
        match &self.state {
            HandshakeState::Known(destination) | HandshakeState::HttpForward(destination, _) => {
                Ok(Step::Ready { destination: destination.clone(), client: None, consumed: 0 })
            }
            HandshakeState::ProxyProtocol => on_proxy_header(buf),
            HandshakeState::HttpConnect => self.on_http_request(buf),
            HandshakeState::SocksGreeting => self.on_socks_greeting(buf),
            HandshakeState::SocksPassword => self.on_socks_password(buf),
            HandshakeState::SocksRequest => {
                let parsed = socks5::parse_request(buf).map_err(reject_socks)?;
                Ok(ready(parsed))
            }
        }
    }

    /// Whether a part of the handshake has been completed.
    pub fn has_begun(&self) -> bool {
        matches!(self.state, HandshakeState::SocksPassword | HandshakeState::SocksRequest)
    }

    /// What to send to the client once the flow is connected, before the flow's own bytes; empty
    /// in modes without a success reply.
    pub fn success_reply(&self) -> Vec<u8> {
        match self.state {
            HandshakeState::HttpConnect => http_connect::ESTABLISHED.to_vec(),
            HandshakeState::SocksRequest => socks5::encode_reply(socks5::Reply::Succeeded, None),
            HandshakeState::Known(_)
            | HandshakeState::ProxyProtocol
            | HandshakeState::HttpForward(..)
            | HandshakeState::SocksGreeting
            | HandshakeState::SocksPassword => Vec::new(),
        }
    }

    /// What to send to the client, before closing, if the flow cannot be connected. `None` if the
    /// protocol has no failure reply: then close with a reset, as the destination would have.
    pub fn failure_reply(&self, failure: ConnectFailure) -> Option<Vec<u8>> {
        match &self.state {
            HandshakeState::HttpConnect => Some(http_connect::encode_failure(failure)),
            HandshakeState::HttpForward(_, exchange) => Some(exchange.answer(failure)),
            HandshakeState::SocksRequest => Some(socks5::encode_reply(failure.into(), None)),
            HandshakeState::Known(_)
            | HandshakeState::ProxyProtocol
            | HandshakeState::SocksGreeting
            | HandshakeState::SocksPassword => None,
        }
    }

    /// CONNECT, or a request in absolute form.
    fn on_http_request(&mut self, buf: &[u8]) -> Result<Step, Reject> {
        match http_connect::parse(buf) {
            Ok(Parsed::Incomplete) => Ok(Step::NeedMore),
            Ok(Parsed::Complete { value, consumed }) => {
                self.check_head(&buf[..consumed])?;
                Ok(Step::Ready { destination: value, client: None, consumed })
            }
            Err(HttpConnectError::MethodNotAllowed) => self.on_forwarded_request(buf),
            Err(error) => Err(Reject { reply: error.response(), reason: error.into() }),
        }
    }

    fn on_forwarded_request(&mut self, buf: &[u8]) -> Result<Step, Reject> {
        let parsed = http_forward::parse_request(buf)
            .map_err(|error| Reject { reply: error.response(), reason: error.into() })?;
        let Parsed::Complete { value: request, consumed } = parsed else {
            return Ok(Step::NeedMore);
        };
        self.check_head(&buf[..consumed])?;
        let exchange = Box::new(HttpExchange::new(&request));
        self.state = HandshakeState::HttpForward(request.destination, exchange);
        Ok(Step::Replace { bytes: request.head, consumed })
    }

    /// Whether a request head shows the credentials that are needed.
    fn check_head(&self, head: &[u8]) -> Result<(), Reject> {
        let Some(credentials) = &self.credentials else { return Ok(()) };
        let reason = match proxy_authorization::of_request(head) {
            ProxyAuthorization::Basic(shown) if credentials.admit_basic(shown) => return Ok(()),
            ProxyAuthorization::Missing => RejectReason::MissingCredentials,
            _ => RejectReason::WrongCredentials,
        };
        let challenge = proxy_authorization::challenge();
        let reply = match head.starts_with(b"HEAD ") {
            true => without_content(challenge),
            false => challenge,
        };
        Err(Reject { reply, reason })
    }

    fn on_socks_greeting(&mut self, buf: &[u8]) -> Result<Step, Reject> {
        match socks5::parse_greeting(buf).map_err(reject_socks)? {
            Parsed::Incomplete => Ok(Step::NeedMore),
            Parsed::Complete { value, consumed } if self.credentials.is_some() => {
                if !value.offers_password {
                    let reply = socks5::METHOD_UNACCEPTABLE.to_vec();
                    return Err(Reject { reply, reason: RejectReason::MissingCredentials });
                }
                self.state = HandshakeState::SocksPassword;
                Ok(Step::Reply { bytes: socks5::METHOD_PASSWORD.to_vec(), consumed })
            }
            Parsed::Complete { value, consumed } if value.offers_no_authentication => {
                self.state = HandshakeState::SocksRequest;
                Ok(Step::Reply { bytes: socks5::METHOD_NO_AUTHENTICATION.to_vec(), consumed })
            }
            Parsed::Complete { .. } => Err(Reject {
                reply: socks5::METHOD_UNACCEPTABLE.to_vec(),
                reason: RejectReason::NoAcceptableMethod,
            }),
        }
    }

    fn on_socks_password(&mut self, buf: &[u8]) -> Result<Step, Reject> {
        match socks5::parse_password(buf).map_err(reject_socks)? {
            Parsed::Incomplete => Ok(Step::NeedMore),
            Parsed::Complete { value, consumed } => {
                let users = self.credentials.as_ref();
                if !users.is_some_and(|users| users.admit(&value.name, &value.password)) {
                    let reply = socks5::PASSWORD_REFUSED.to_vec();
                    return Err(Reject { reply, reason: RejectReason::WrongCredentials });
                }
                self.state = HandshakeState::SocksRequest;
                Ok(Step::Reply { bytes: socks5::PASSWORD_ACCEPTED.to_vec(), consumed })
            }
        }
    }
}

fn on_proxy_header(buf: &[u8]) -> Result<Step, Reject> {
    let reject = |reason| Reject { reply: Vec::new(), reason };
    match proxy_protocol::parse(buf).map_err(|error| reject(error.into()))? {
        Parsed::Incomplete => Ok(Step::NeedMore),
        Parsed::Complete {
            value: proxy_protocol::Header::Proxied { source, destination },
            consumed,
        } => {
            let destination = Destination::from_address(destination)
                .map_err(|error| reject(RejectReason::BadDestination(error)))?;
            Ok(Step::Ready { destination, client: Some(source), consumed })
        }
        Parsed::Complete { .. } => Err(reject(RejectReason::NoDestination)),
    }
}

fn ready(parsed: Parsed<Destination>) -> Step {
    match parsed {
        Parsed::Incomplete => Step::NeedMore,
        Parsed::Complete { value, consumed } => {
            Step::Ready { destination: value, client: None, consumed }
        }
    }
}

fn reject_socks(error: socks5::Socks5Error) -> Reject {
    let reply = error.reply().map(|reply| socks5::encode_reply(reply, None)).unwrap_or_default();
    Reject { reply, reason: error.into() }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
