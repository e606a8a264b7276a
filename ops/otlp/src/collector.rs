//! Requests to the collector: HTTP/1.1, one connection each.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use millrace_config::{CollectorUrl, HeaderFields};
use tokio::net::TcpStream;

/// Time for a whole request, the name of the collector included.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes that are read of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Why an export was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout,
    #[error("can't connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("answered {0}")]
    Status(u16),
}

/// The collector.
#[derive(Debug)]
pub(crate) struct Collector {
    url: CollectorUrl,
    headers: HeaderFields,
}

impl Collector {
    pub(crate) fn new(url: CollectorUrl, headers: HeaderFields) -> Self {
        Self { url, headers }
    }

    /// Posts a message to `path`. Returns the answer's body.
    pub(crate) async fn post(&self, path: &str, message: Vec<u8>) -> Result<Bytes, ExportError> {
        tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(path, message))
            .await
            .unwrap_or(Err(ExportError::Timeout))
    }

    async fn exchange(&self, path: &str, message: Vec<u8>) -> Result<Bytes, ExportError> {
        let stream = TcpStream::connect(self.url.authority().to_string()).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = self.request(path, message)?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
            match status.is_success() {
                // The rest of a body that is too long or breaks off says nothing that is of use.
                true => Ok(body.map_or_else(|_| Bytes::new(), |body| body.to_bytes())),
                false => Err(ExportError::Status(status.as_u16())),
            }
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // It ends with the answer at the latest, which is then there.
            _ = connection => exchange.await,
        }
    }

    fn request(
        &self,
        path: &str,
        message: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::post(path)
            .header(HOST, self.url.authority().to_string())
            .header(USER_AGENT, concat!("millrace/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in self.headers.iter() {
            request = request.header(name, value);
        }
        request.body(Full::new(Bytes::from(message)))
    }
}
