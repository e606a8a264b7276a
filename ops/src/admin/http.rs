//! One connection of the admin listener.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, HeaderValue, ORIGIN, VARY};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::access::HEALTH_PATHS;
use super::connections::ConnectionPermit;
use super::content::{AdminContent, Health, HealthSource};
use super::flows_query::FlowsQuery;
use super::resources::ADMIN_RESOURCES;
use super::responses::{TEXT, failed, response};
use super::status::StatusResponse;
use super::{congestion_control, dashboard, qlog};

/// Time for a request's head.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Size of a request's head.
pub(super) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Fields of a request's head.
pub(super) const MAX_HEAD_FIELDS: usize = 64;

pub(super) async fn serve_connection(
    stream: TcpStream,
    content: Arc<AdminContent>,
    place: ConnectionPermit,
) -> Result<(), hyper::Error> {
    let local = stream.local_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |it| it.ip());
    // Held until the answer has been taken.
    let served = Arc::new(Mutex::new(None));
    let service = service_fn(move |request: Request<Incoming>| {
        let (content, served) = (Arc::clone(&content), Arc::clone(&served));
        place.on_head();
        let permit = place.serve();
        async move {
            let is_health_check = HEALTH_PATHS.contains(&request.uri().path());
            if let Some(refused) = content.access.refusal(&request, local) {
                return Ok::<_, Infallible>(refused);
            }
            if permit.is_none() && !is_health_check {
                let text = "too many requests at a time\n";
                return Ok(response(StatusCode::SERVICE_UNAVAILABLE, TEXT, text));
            }
            if !is_health_check {
                *served.lock().unwrap_or_else(PoisonError::into_inner) = permit;
            }
            Ok(answer(&request, content).await)
        }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEAD_FIELDS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer(request: &Request<Incoming>, content: Arc<AdminContent>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if path == "/qlog" || path.starts_with("/qlog/") {
        return qlog::answer(request, content).await;
    }
    if path.starts_with(congestion_control::PREFIX) {
        return congestion_control::answer(request, content).await;
    }
    let page = dashboard::file(path);
    if page.is_none() && !ADMIN_RESOURCES.iter().any(|resource| resource.path == path) {
        let text = "there are / (a page for people), /metrics, /flows, /status, /healthz, /livez, /qlog and \
                    /congestion_control\n";
        return response(StatusCode::NOT_FOUND, TEXT, text);
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET and HEAD only\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    if let Some(page) = page {
        return page;
    }
    match path {
        "/metrics" => match content.metrics.render() {
            Ok(text) => response(StatusCode::OK, prometheus::TEXT_FORMAT, text),
            Err(error) => failed(&error),
        },
        "/flows" => {
            let mut answer = match FlowsQuery::parse(request.uri().query()) {
                Ok(query) => flows(Arc::clone(&content), query).await,
                Err(text) => response(StatusCode::BAD_REQUEST, TEXT, text),
            };
            share(request, &content, &mut answer);
            answer
        }
        "/status" => match serde_json::to_vec(&StatusResponse::new(&content)) {
            Ok(json) => response(StatusCode::OK, "application/json", json),
            Err(error) => failed(&error),
        },
        "/livez" => health(&content.checks.liveness),
        _ => health(&content.checks.health),
    }
}

fn health(check: &HealthSource) -> Response<Full<Bytes>> {
    match check() {
        Health::Healthy => response(StatusCode::OK, TEXT, "ok\n"),
        Health::Unhealthy(reason) => {
            response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{reason}\n"))
        }
    }
}

async fn flows(content: Arc<AdminContent>, query: FlowsQuery) -> Response<Full<Bytes>> {
    let collected = tokio::task::spawn_blocking(move || {
        serde_json::to_vec(&query.select(content.flows.flows()))
    });
    match collected.await {
        Ok(Ok(json)) => response(StatusCode::OK, "application/json", json),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

/// Lets a page from elsewhere read the answer, if its origin is listed (CORS; WHATWG Fetch, Section
/// 3.3). Without these fields the browser keeps the answer from the page.
fn share(request: &Request<Incoming>, content: &AdminContent, answer: &mut Response<Full<Bytes>>) {
    if content.access.origins.is_empty() || request.method() != Method::GET {
        return;
    }
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Origin"));
    let mut sent = request.headers().get_all(ORIGIN).iter();
    let (Some(origin), None) = (sent.next(), sent.next()) else { return };
    if content.access.origins.iter().any(|listed| listed.as_str().as_bytes() == origin.as_bytes()) {
        answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
}
