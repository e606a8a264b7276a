//! The live page: it asks `/flows` and `/status` once a second, and needs nothing from elsewhere. The player page has
//! its style sheet `theme.css` and `figures.js` too.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};

use super::responses::response;

/// Its files: path, type and content.
const FILES: [(&str, &str, &str); 11] = [
    ("/", HTML, include_str!("dashboard/index.html")),
    ("/api.js", SCRIPT, include_str!("dashboard/api.js")),
    ("/change.js", SCRIPT, include_str!("dashboard/change.js")),
    ("/curve.js", SCRIPT, include_str!("dashboard/curve.js")),
    ("/dashboard.css", STYLE, include_str!("dashboard/dashboard.css")),
    ("/dashboard.js", SCRIPT, include_str!("dashboard/dashboard.js")),
    ("/ended.js", SCRIPT, include_str!("dashboard/ended.js")),
    ("/figures.js", SCRIPT, include_str!("dashboard/figures.js")),
    ("/flows.js", SCRIPT, include_str!("dashboard/flows.js")),
    ("/sort.js", SCRIPT, include_str!("dashboard/sort.js")),
    ("/theme.css", STYLE, include_str!("dashboard/theme.css")),
];
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

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
