//! `/congestion_control/CONNECTION`: the algorithm of a connection. `GET` shows the input and the choice of the rules.
//! `PUT` with `?algorithm=NAME` changes and pins it; with `?share=S` or `?yield_above_mbps=R` it changes a setting of
//! the current algorithm. `DELETE` returns the choice to flows and rules. Browsers send a preflight request (CORS) for
//! both methods, so that no web page can use them.

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use millrace_cc::registry::{self, Spec};
use millrace_cc::{Bandwidth, Tuning};
use millrace_tunnel::cc_override::{CcOverride, CcOverrideError};

use super::content::AdminContent;
use super::responses::{TEXT, failed, is_connection, response};

pub(super) const PREFIX: &str = "/congestion_control/";
const USAGE: &str = "PUT /congestion_control/CONNECTION with ?algorithm=NAME, ?share=S or ?yield_above_mbps=R; GET \
                     and DELETE without";

pub(super) async fn answer(
    request: &Request<Incoming>,
    content: Arc<AdminContent>,
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
    let change = match (request.method(), query) {
        (&Method::PUT, Some(query)) => match parse_override(query) {
            Ok(change) => change,
            Err(problem) => {
                return response(StatusCode::BAD_REQUEST, TEXT, format!("{problem}\n"));
            }
        },
        (&Method::DELETE, None) => CcOverride::Clear,
        _ => {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("{USAGE}\n"));
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, PUT, DELETE"));
            return refused;
        }
    };
    let done = tokio::task::spawn_blocking(move || content.flows.override_cc(&name, &change));
    match done.await {
        Ok(Ok(steered)) => match serde_json::to_vec(&steered) {
            Ok(json) => response(StatusCode::OK, "application/json", json),
            Err(error) => failed(&error),
        },
        Ok(Err(error)) => response(status(&error), TEXT, format!("{error}\n")),
        Err(error) => failed(&error),
    }
}

async fn explain(content: Arc<AdminContent>, name: String) -> Response<Full<Bytes>> {
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

fn status(error: &CcOverrideError) -> StatusCode {
    match error {
        CcOverrideError::NoConnection => StatusCode::NOT_FOUND,
        CcOverrideError::Irreplaceable { .. } | CcOverrideError::Untunable { .. } => {
            StatusCode::CONFLICT
        }
        CcOverrideError::NoAnswer => StatusCode::SERVICE_UNAVAILABLE,
    }
}
/// What a `PUT` asks for.
fn parse_override(query: &str) -> Result<CcOverride, String> {
    let number = |value: &str| -> Result<f64, String> {
        let parsed = value.parse().ok().filter(|number: &f64| number.is_finite());
        parsed.ok_or_else(|| format!("{value:?} is no number"))
    };
    match query.split_once('=') {
        Some(("algorithm", name)) => registry::find(&Spec::named(name))
            .map(CcOverride::Set)
            .map_err(|error| error.to_string()),
        Some(("share", value)) => Ok(CcOverride::Tune(Tuning::Share(number(value)?))),
        Some(("yield_above_mbps", value)) => {
            Ok(CcOverride::Tune(Tuning::YieldAbove(Bandwidth::from_mbps(number(value)?.max(0.0)))))
        }
        _ => Err(USAGE.to_owned()),
    }
}
