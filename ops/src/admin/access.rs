//! Access control of the admin listener.
//!
//! The `Host` field must name this machine: otherwise any web page could read from here, through a DNS name
//! of its own that leads to this address (DNS rebinding). An IP address in it can't be such a name. Where
//! there is a token, everything but health checks and the files of the page asks for it.

use std::net::IpAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::uri::Authority;
use hyper::{Request, Response, StatusCode, Version};
use millrace_config::{AdminToken, WebOrigin};

use super::dashboard;
use super::responses::{TEXT, response};

/// What is asked for without a token.
pub(super) const HEALTH_PATHS: [&str; 2] = ["/healthz", "/livez"];

/// The access rules of the admin listener.
#[derive(Debug, Default)]
pub struct Access {
    /// Pages from there may read `/flows`.
    pub origins: Vec<WebOrigin>,
    /// Names that this machine is called by, beside its addresses.
    pub allowed_hosts: Vec<String>,
    /// What requests have to show.
    pub token: Option<AdminToken>,
}

impl Access {
    /// The answer to a request that came to `local` and may not be served; `None` for one that may.
    pub(super) fn refusal(
        &self,
        request: &Request<Incoming>,
        local: IpAddr,
    ) -> Option<Response<Full<Bytes>>> {
        self.wrong_host(request, local).or_else(|| self.missing_token(request))
    }

    fn wrong_host(
        &self,
        request: &Request<Incoming>,
        local: IpAddr,
    ) -> Option<Response<Full<Bytes>>> {
        let mut fields = request.headers().get_all(HOST).iter();
        let field = match (fields.next(), fields.next()) {
            (Some(field), None) => field,
            // HTTP/1.0 has no such field; a browser always sends it.
            (None, _) if request.version() == Version::HTTP_10 && is_loopback(local) => {
                return None;
            }
            // RFC 9112, Section 3.2.
            _ => {
                let text = "a request needs exactly one Host field\n";
                return Some(response(StatusCode::BAD_REQUEST, TEXT, text));
            }
        };
        let named = field.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
        // An absolute request target replaces the field (RFC 9112, Section 3.2.2).
        let target = request.uri().authority().cloned();
        let is_ours = |it: &Authority| self.names_this_machine(it.host(), local);
        if named.as_ref().is_some_and(is_ours) && target.as_ref().is_none_or(is_ours) {
            return None;
        }
        let text = match is_loopback(local) {
            true => {
                "the Host field must be an IP address, localhost or one of admin.allowed_hosts\n"
            }
            false => {
                "the Host field must be this machine's address or one of admin.allowed_hosts\n"
            }
        };
        Some(response(StatusCode::MISDIRECTED_REQUEST, TEXT, text))
    }

    fn names_this_machine(&self, host: &str, local: IpAddr) -> bool {
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let by_address = match name.parse::<IpAddr>() {
            Ok(ip) => is_loopback(local) || ip.to_canonical() == local.to_canonical(),
            Err(_) => is_loopback(local) && name.eq_ignore_ascii_case("localhost"),
        };
        by_address || self.allowed_hosts.iter().any(|it| it.eq_ignore_ascii_case(name))
    }

    fn missing_token(&self, request: &Request<Incoming>) -> Option<Response<Full<Bytes>>> {
        let token = self.token.as_ref()?;
        let path = request.uri().path();
        if HEALTH_PATHS.contains(&path) || dashboard::is_file(path) {
            return None;
        }
        let mut fields = request.headers().get_all(AUTHORIZATION).iter();
        let shown = fields.next().filter(|_| fields.next().is_none());
        // RFC 6750, Section 2.1; the scheme's case does not matter (RFC 9110, Section 11.1).
        let shown = shown.and_then(|it| it.as_bytes().split_at_checked("Bearer ".len()));
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
        if shown.is_some_and(|(_, shown)| is_equal(shown, token.as_bytes())) {
            return None;
        }
        let text = "this needs the token of admin.token_file: Authorization: Bearer TOKEN\n";
        let mut refused = response(StatusCode::UNAUTHORIZED, TEXT, text);
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Some(refused)
    }
}

fn is_loopback(local: IpAddr) -> bool {
    local.to_canonical().is_loopback()
}

/// In a time that does not depend on where they differ.
fn is_equal(shown: &[u8], token: &[u8]) -> bool {
    shown.len() == token.len() && boring::memcmp::eq(shown, token)
}
