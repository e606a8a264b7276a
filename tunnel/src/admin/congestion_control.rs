//! `/congestion_control/CONNECTION`: the algorithm of a connection that runs. `GET` says what the rules that
//! select it are told and what they choose. `PUT` with `?algorithm=NAME` changes and pins it, with `?share=S` or
//! `?yield_above_mbps=R` asks that of the algorithm that there is; `DELETE` leaves it to the flows and rules
//! again. Both methods make a browser ask first whether it may, so that no web page can use them.

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{Bandwidth, Tuning};
use serde::Serialize;

use super::Content;
use super::http::{TEXT, failed, is_connection, response};

pub(super) const PREFIX: &str = "/congestion_control/";
const USAGE: &str = "PUT /congestion_control/CONNECTION with ?algorithm=NAME, ?share=S or ?yield_above_mbps=R; GET \
                     and DELETE without";

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
    /// What drives it has no such thing.
    #[error("{algorithm} does not take {asked}, or not with this value; {able} does")]
    Untunable {
        /// What drives it.
        algorithm: &'static str,
        /// What was asked of it.
        asked: &'static str,
        /// What would take it.
        able: &'static str,
    },
    /// The worker that has the connection did not answer.
    #[error("no answer in time; try again")]
    NoAnswer,
}

/// What is to become of a connection's congestion control.
#[derive(Clone, Debug)]
pub enum Steering {
    /// This one, whatever flows begin on it and whatever rules say.
    Pin(Algorithm),
    /// What flows and rules want again.
    Release,
    /// The one that there is, with something asked of it.
    Tune(Tuning),
}

impl Steering {
    /// Why `algorithm` does not do what is asked of it.
    pub(crate) fn untunable(tuning: Tuning, algorithm: &'static str) -> SteerError {
        let (asked, able) = match tuning {
            Tuning::Share(_) => ("share", "vivace-weighted, above 0 and at most 1,"),
            Tuning::YieldAbove(_) => ("yield_above_mbps", "proteus-h, from 0 on,"),
        };
        SteerError::Untunable { algorithm, asked, able }
    }

    /// As a `PUT` says it.
    fn parse(query: &str) -> Result<Self, String> {
        let number = |value: &str| -> Result<f64, String> {
            let parsed = value.parse().ok().filter(|number: &f64| number.is_finite());
            parsed.ok_or_else(|| format!("{value:?} is no number"))
        };
        match query.split_once('=') {
            Some(("algorithm", name)) => {
                registry::find(&Spec::named(name)).map(Self::Pin).map_err(|error| error.to_string())
            }
            Some(("share", value)) => Ok(Self::Tune(Tuning::Share(number(value)?))),
            Some(("yield_above_mbps", value)) => {
                Ok(Self::Tune(Tuning::YieldAbove(Bandwidth::from_mbps(number(value)?.max(0.0)))))
            }
            _ => Err(USAGE.to_owned()),
        }
    }
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
    if request.method() == Method::GET && query.is_none() {
        return explain(content, name).await;
    }
    let steering = match (request.method(), query) {
        (&Method::PUT, Some(query)) => match Steering::parse(query) {
            Ok(steering) => steering,
            Err(problem) => {
                return response(StatusCode::BAD_REQUEST, TEXT, format!("{problem}\n"));
            }
        },
        (&Method::DELETE, None) => Steering::Release,
        _ => {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("{USAGE}\n"));
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, PUT, DELETE"));
            return refused;
        }
    };
    let done = tokio::task::spawn_blocking(move || content.flows.steer(&name, &steering));
    match done.await {
        Ok(Ok(steered)) => match serde_json::to_vec(&steered) {
            Ok(json) => response(StatusCode::OK, "application/json", json),
            Err(error) => failed(&error),
        },
        Ok(Err(error)) => response(status(&error), TEXT, format!("{error}\n")),
        Err(error) => failed(&error),
    }
}

async fn explain(content: Arc<Content>, name: String) -> Response<Full<Bytes>> {
    match tokio::task::spawn_blocking(move || content.flows.explain(&name)).await {
        Ok(Some(explained)) => match serde_json::to_vec(&explained) {
            Ok(json) => response(StatusCode::OK, "application/json", json),
            Err(error) => failed(&error),
        },
        Ok(None) => {
            let text = "no rules select the congestion control of such a connection\n";
            response(StatusCode::NOT_FOUND, TEXT, text)
        }
        Err(error) => failed(&error),
    }
}

fn status(error: &SteerError) -> StatusCode {
    match error {
        SteerError::NoConnection => StatusCode::NOT_FOUND,
        SteerError::Irreplaceable { .. } | SteerError::Untunable { .. } => StatusCode::CONFLICT,
        SteerError::NoAnswer => StatusCode::SERVICE_UNAVAILABLE,
    }
}
