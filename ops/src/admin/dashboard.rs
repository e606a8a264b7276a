//! The live dashboard: a page that asks `/flows` once a second. It needs nothing from elsewhere.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};

use super::responses::response;

/// Its files: path, type and content.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("dashboard/index.html")),
    ("/dashboard.css", "text/css; charset=utf-8", include_str!("dashboard/dashboard.css")),
    ("/dashboard.js", "text/javascript; charset=utf-8", include_str!("dashboard/dashboard.js")),
];

/// Names in `/flows` come from clients: nothing of them may become script, and no other page may hold
/// this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether there is a file of this path.
pub(super) fn is_file(path: &str) -> bool {
    FILES.iter().any(|(name, ..)| *name == path)
}

/// The file of this path, if there is one.
pub(super) fn file(path: &str) -> Option<Response<Full<Bytes>>> {
    let (_, content_type, text) = FILES.into_iter().find(|(name, ..)| *name == path)?;
    let mut found = response(StatusCode::OK, content_type, text);
    let headers = found.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Some(found)
}
