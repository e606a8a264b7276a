//! The target of a request in absolute form (RFC 9112 §3.2.2).

use super::error::HttpForwardError;
use crate::{AuthorityError, Destination, parse_authority};

/// The port of `http` URIs that name none (RFC 9110 §4.2.1).
const HTTP_PORT: u16 = 80;

/// What a target in absolute form says.
pub(super) struct AbsoluteTarget<'a> {
    pub(super) destination: Destination,
    /// As the target has it, for the Host field.
    pub(super) authority: &'a str,
    /// The target for the origin.
    pub(super) origin_form: String,
}

pub(super) fn parse<'a>(
    target: &'a str,
    method: &str,
) -> Result<AbsoluteTarget<'a>, HttpForwardError> {
    let (scheme, rest) = target.split_once("://").ok_or(HttpForwardError::NotAbsolute)?;
    let is_scheme = scheme.starts_with(|it: char| it.is_ascii_alphabetic())
        && scheme.bytes().all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it));
    match scheme.to_ascii_lowercase().as_str() {
        "http" => {}
        "https" => return Err(HttpForwardError::HttpsTarget),
        _ if is_scheme => return Err(HttpForwardError::UnsupportedScheme),
        _ => return Err(HttpForwardError::NotAbsolute),
    }
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(HttpForwardError::BadTarget);
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let origin_form = match path {
        // RFC 9112 §3.2.4: a request for the server as a whole.
        "" if method == "OPTIONS" => "*".to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("/{path}"),
    };
    Ok(AbsoluteTarget { destination: destination(authority)?, authority, origin_form })
}

fn destination(authority: &str) -> Result<Destination, AuthorityError> {
    let after_address = authority.rsplit(']').next().unwrap_or(authority);
    match after_address.contains(':') {
        true => parse_authority(authority),
        false if authority.is_empty() => Err(AuthorityError::EmptyHost),
        false => parse_authority(&format!("{authority}:{HTTP_PORT}")),
    }
}
