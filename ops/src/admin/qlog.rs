//! `/qlog`: traces that run. `PUT /qlog/CONNECTION` begins one, `DELETE` ends it. Browsers send a preflight request
//! (CORS) for both methods, so that no web page can use them.

use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use super::content::AdminContent;
use super::responses::{TEXT, failed, is_connection, response};
use millrace_tunnel::qlog::{QlogError, TraceInfo};

/// Answer to `GET /qlog`.
#[derive(Serialize)]
struct TracesResponse {
    /// Running traces.
    traces: Vec<TraceInfo>,
}

/// Answer to `PUT` and `DELETE`.
#[derive(Serialize)]
struct Changed {
    /// File of the trace.
    file: PathBuf,
}

pub(super) async fn answer(
    request: &Request<Incoming>,
    content: Arc<AdminContent>,
) -> Response<Full<Bytes>> {
    let name = request.uri().path().strip_prefix("/qlog/").unwrap_or_default().to_owned();
    let is_name = is_connection(&name);
    let (method, allowed) = (request.method().clone(), if is_name { "PUT, DELETE" } else { "GET" });
    if !name.is_empty() && !is_name {
        let text = "a connection is named by its ID in hexadecimal, as /flows shows it\n";
        return response(StatusCode::BAD_REQUEST, TEXT, text);
    }
    let on = match (method, is_name) {
        (Method::GET, false) => None,
        (Method::PUT, true) => Some(true),
        (Method::DELETE, true) => Some(false),
        _ => {
            let text = "GET /qlog, PUT and DELETE /qlog/CONNECTION\n";
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            return refused;
        }
    };
    let done = tokio::task::spawn_blocking(move || match on {
        None => to_json(content.flows.traces().map(|traces| TracesResponse { traces })),
        Some(on) => to_json(content.flows.trace(&name, on).map(|file| Changed { file })),
    });
    match done.await {
        Ok(Ok(json)) => response(StatusCode::OK, "application/json", json),
        Ok(Err(error)) => response(status(&error), TEXT, format!("{error}\n")),
        Err(error) => failed(&error),
    }
}

fn to_json(answer: Result<impl Serialize, QlogError>) -> Result<Vec<u8>, QlogError> {
    serde_json::to_vec(&answer?).map_err(|error| QlogError::File(error.to_string()))
}

fn status(error: &QlogError) -> StatusCode {
    match error {
        QlogError::NotConfigured => StatusCode::FORBIDDEN,
        QlogError::NoConnection | QlogError::NotRunning => StatusCode::NOT_FOUND,
        QlogError::Running => StatusCode::CONFLICT,
        QlogError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        QlogError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
        QlogError::NoAnswer => StatusCode::SERVICE_UNAVAILABLE,
    }
}
