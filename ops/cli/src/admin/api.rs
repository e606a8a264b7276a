//! Requests to an admin listener.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, ToSocketAddrs, lookup_host};
use tokio::runtime::Builder;

use super::endpoint::AdminEndpoint;
use super::error::AdminApiError;
use super::token_users::{LocalListeners, user_name};

/// Time for a request as a whole. An admin listener waits for its workers for up to 0.5 s each.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer: that of `/flows` with about 200,000 flows.
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// Largest part of an answer that an error message shows.
const MAX_SHOWN_CHARS: usize = 500;
/// All but unreserved characters (RFC 3986, Section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `text` as a part of a path or query.
pub(crate) fn path_segment(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The admin API of a running program.
#[derive(Clone, Debug)]
pub(crate) struct AdminApi {
    endpoint: AdminEndpoint,
}

impl AdminApi {
    pub(crate) fn new(endpoint: AdminEndpoint) -> Self {
        Self { endpoint }
    }

    /// The address, as the user gave it.
    pub(crate) fn address(&self) -> String {
        self.endpoint.address.to_string()
    }

    /// The body of the answer to GET.
    pub(crate) fn get(&self, path: &str) -> Result<Bytes, AdminApiError> {
        self.request(Method::GET, path)
    }

    /// The body of the answer.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<Bytes, AdminApiError> {
        let (status, body) = self.exchange(method, path)?;
        if status.is_success() {
            return Ok(body);
        }
        let (at, answer) = (self.endpoint.to_string(), shown(&body));
        Err(match status {
            StatusCode::UNAUTHORIZED if self.endpoint.token.is_none() => {
                AdminApiError::NoToken { at }
            }
            StatusCode::UNAUTHORIZED => AdminApiError::WrongToken { at },
            StatusCode::MISDIRECTED_REQUEST => AdminApiError::WrongName { at, answer },
            _ => AdminApiError::Refused { at, status, answer },
        })
    }

    /// The answer, which must be JSON.
    pub(crate) fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<T, AdminApiError> {
        self.parse(&self.request(method, path)?)
    }

    /// Parses an answer.
    pub(crate) fn parse<T: DeserializeOwned>(&self, answer: &Bytes) -> Result<T, AdminApiError> {
        serde_json::from_slice(answer).map_err(|error| self.other_service(error.to_string()))
    }

    /// The reason for which the program is not healthy; `None` if it is.
    pub(crate) fn health_problem(&self) -> Result<Option<String>, AdminApiError> {
        let (status, body) = self.exchange(Method::GET, "/healthz")?;
        match status {
            StatusCode::OK => Ok(None),
            StatusCode::SERVICE_UNAVAILABLE => Ok(Some(shown(&body))),
            _ => Err(self.other_service(format!("/healthz answers {}", status.as_u16()))),
        }
    }

    fn other_service(&self, problem: String) -> AdminApiError {
        AdminApiError::OtherService { at: self.endpoint.to_string(), problem }
    }

    fn exchange(&self, method: Method, path: &str) -> Result<(StatusCode, Bytes), AdminApiError> {
        let at = || self.endpoint.to_string();
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime
            .map_err(|error| AdminApiError::Unreachable { at: at(), problem: error.to_string() })?;
        let exchange = async {
            let exchange = self.exchange_once(method, path);
            tokio::time::timeout(REQUEST_TIMEOUT, exchange).await.unwrap_or_else(|_| {
                Err(AdminApiError::NoAnswer { at: at(), seconds: REQUEST_TIMEOUT.as_secs() })
            })
        };
        runtime.block_on(exchange)
    }

    async fn exchange_once(
        &self,
        method: Method,
        path: &str,
    ) -> Result<(StatusCode, Bytes), AdminApiError> {
        let stream = match self.endpoint.token {
            Some(_) => self.connect_for_token().await?,
            None => self.connect(self.address()).await?,
        };
        let not_http = |error: hyper::Error| {
            let problem = match error.is_incomplete_message() {
                true => "it closes the connection without an answer".to_owned(),
                false => format!("its answer is not HTTP/1.1 ({error})"),
            };
            self.other_service(problem)
        };
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(not_http)?;
        // Its errors are those of the request below.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.address());
        if let Some(token) = &self.endpoint.token {
            let field = [b"Bearer ", token.as_bytes()].concat();
            // A token has plain characters only.
            let field = HeaderValue::from_bytes(&field);
            request = request.header(AUTHORIZATION, field.expect("a token is a field value"));
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.expect("paths are percent-encoded, addresses are checked");
        let answer = sender.send_request(request).await.map_err(not_http)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| {
            self.other_service(format!("its answer ends early or is too long ({error})"))
        })?;
        Ok((status, body.to_bytes()))
    }
}

impl AdminApi {
    async fn connect(&self, to: impl ToSocketAddrs) -> Result<TcpStream, AdminApiError> {
        TcpStream::connect(to).await.map_err(|error| {
            let at = self.endpoint.to_string();
            match error.kind() {
                io::ErrorKind::ConnectionRefused => AdminApiError::NotListening { at },
                _ => AdminApiError::Unreachable { at, problem: error.to_string() },
            }
        })
    }

    /// A connection that the token may be sent on, to the first address of the endpoint's name that takes one.
    async fn connect_for_token(&self) -> Result<TcpStream, AdminApiError> {
        let at = || self.endpoint.to_string();
        let unreachable = |problem: String| AdminApiError::Unreachable { at: at(), problem };
        let addresses = lookup_host(self.address()).await;
        let addresses = addresses.map_err(|error| unreachable(error.to_string()))?;
        let mut failure = unreachable("its name has no address".to_owned());
        for address in addresses {
            match self.connect_to_listener(address).await {
                Err(
                    error
                    @ (AdminApiError::NotListening { .. } | AdminApiError::Unreachable { .. }),
                ) => failure = error,
                result => return result,
            }
        }
        Err(failure)
    }

    /// On this host, the connection has been taken by a listener that was there before and after, so that it can't have been
    /// taken by another one in between.
    async fn connect_to_listener(&self, address: SocketAddr) -> Result<TcpStream, AdminApiError> {
        let unknown =
            |problem: String| AdminApiError::UnknownUser { at: self.endpoint.to_string(), problem };
        let listeners = || LocalListeners::at(address).map_err(|error| unknown(error.to_string()));
        let before = listeners()?;
        let stream = self.connect(address).await?;
        let own = stream.local_addr().map_err(|error| unknown(error.to_string()))?;
        if !address.ip().to_canonical().is_loopback() && own.ip() != address.ip() {
            return Ok(stream);
        }
        if before.is_empty() {
            return Err(unknown("no listener on this host has that address".to_owned()));
        }
        if listeners()? != before {
            return Err(unknown("the listener has changed meanwhile".to_owned()));
        }
        match before.stranger(&self.endpoint.token_users) {
            None => Ok(stream),
            Some(user) => Err(AdminApiError::OtherUser {
                at: self.endpoint.to_string(),
                user: user_name(user),
            }),
        }
    }
}

/// The first line of an answer.
fn shown(body: &Bytes) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|it| !it.is_control()).take(MAX_SHOWN_CHARS).collect()
}
