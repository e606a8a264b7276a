//! `/congestion_control/CONNECTION`: the algorithm of a connection that runs, by hand. `PUT` with
//! `?algorithm=NAME` changes and pins it, `DELETE` leaves it to the flows again. Both methods make a browser
//! ask first whether it may, so that no web page can use them.

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use millrace_cc::registry::{self, Spec};
use serde::Serialize;

use super::Content;
use super::http::{TEXT, failed, is_connection, response};

pub(super) const PREFIX: &str = "/congestion_control/";

/// Why the algorithm of a connection was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// No connection has the identifier.
    #[error("there is no such connection; /flows shows the connections of flows")]
    NoConnection,
    /// One of the two is the QUIC stack's own, and it can't be replaced while it runs.
    #[error("{from} can't be replaced by {to} in a connection that runs")]
    Irreplaceable {
        /// What drives it.
        from: &'static str,
        /// What was to take over.
        to: &'static str,
    },
    /// The worker that has the connection did not answer.
    #[error("no answer in time; try again")]
    NoAnswer,
}

/// What drives a connection now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Steered {
    /// Its algorithm.
    pub algorithm: &'static str,
    /// Whether it stays, whatever flows begin on the connection.
    pub pinned: bool,
}

pub(super) async fn answer(
    request: &Request<Incoming>,
    content: Arc<Content>,
) -> Response<Full<Bytes>> {
    let name = request.uri().path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    if !is_connection(&name) {
        let text = "a connection is named by its ID in hexadecimal, as /flows shows it\n";
        return response(StatusCode::BAD_REQUEST, TEXT, text);
    }
    let query = request.uri().query();
    let algorithm = match (request.method(), query.and_then(|it| it.strip_prefix("algorithm="))) {
        (&Method::PUT, Some(wanted)) => match registry::find(&Spec::named(wanted)) {
            Ok(algorithm) => Some(algorithm),
            Err(error) => {
                return response(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n"));
            }
        },
        (&Method::DELETE, None) if query.is_none() => None,
        _ => {
            let text = "PUT /congestion_control/CONNECTION?algorithm=NAME, and DELETE without it\n";
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("PUT, DELETE"));
            return refused;
        }
    };
    let done = tokio::task::spawn_blocking(move || content.flows.steer(&name, algorithm.as_ref()));
    match done.await {
        Ok(Ok(steered)) => match serde_json::to_vec(&steered) {
            Ok(json) => response(StatusCode::OK, "application/json", json),
            Err(error) => failed(&error),
        },
        Ok(Err(error)) => response(status(&error), TEXT, format!("{error}\n")),
        Err(error) => failed(&error),
    }
}

fn status(error: &SteerError) -> StatusCode {
    match error {
        SteerError::NoConnection => StatusCode::NOT_FOUND,
        SteerError::Irreplaceable { .. } => StatusCode::CONFLICT,
        SteerError::NoAnswer => StatusCode::SERVICE_UNAVAILABLE,
    }
}
