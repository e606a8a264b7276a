//! Credentials for a proxy in a request head (RFC 9110 §11.7, RFC 7617), and the challenge.

use crate::http_connect::MAX_FIELDS;
use crate::http_reply;

/// What a request shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyAuthorization<'a> {
    /// No field `Proxy-Authorization`.
    Missing,
    /// One field of scheme `Basic`: name and password, still encoded (RFC 7617 §2).
    Basic(&'a str),
    /// Another scheme, or more than one field.
    Other,
}

/// What a request with the whole head `head` shows to the proxy.
pub fn of_request(head: &[u8]) -> ProxyAuthorization<'_> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    if request.parse(head).is_err() {
        return ProxyAuthorization::Other;
    }
    let is_named =
        |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("proxy-authorization");
    let mut shown = fields.iter().filter(is_named);
    match (shown.next(), shown.next()) {
        (None, _) => ProxyAuthorization::Missing,
        (Some(field), None) => {
            basic(field.value).map_or(ProxyAuthorization::Other, ProxyAuthorization::Basic)
        }
        (Some(_), Some(_)) => ProxyAuthorization::Other,
    }
}

/// The credentials of scheme `Basic`, whose case does not matter (RFC 9110 §11.1).
fn basic(value: &[u8]) -> Option<&str> {
    let (scheme, encoded) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("basic").then(|| encoded.trim_matches(' '))
}

/// The whole answer to a request that does not show the right credentials: the client may try again on another
/// connection.
pub fn challenge() -> Vec<u8> {
    let fields = "Proxy-Authenticate: Basic realm=\"millrace\", charset=\"UTF-8\"\r\n";
    http_reply::encode(407, fields, "this proxy needs a user name and a password")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(fields: &str) -> ProxyAuthorization<'static> {
        let head = format!("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        of_request(head.leak().as_bytes())
    }

    #[test]
    fn one_field_of_scheme_basic_is_taken() {
        use ProxyAuthorization::*;
        for (fields, expected) in [
            ("", Missing),
            ("Authorization: Basic YTpi\r\n", Missing),
            ("Proxy-Authorization: Basic YTpi\r\n", Basic("YTpi")),
            ("proxy-authorization: bASIC  YTpi \r\n", Basic("YTpi")),
            ("Proxy-Authorization: Basic\r\n", Other),
            ("Proxy-Authorization: Bearer YTpi\r\n", Other),
            ("Proxy-Authorization: \u{e9} YTpi\r\n", Other),
            ("Proxy-Authorization: Basic YTpi\r\nProxy-Authorization: Basic YTpi\r\n", Other),
        ] {
            assert_eq!(shown(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn challenge_names_the_scheme() {
        let challenge = String::from_utf8(challenge()).unwrap();
        assert!(challenge.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"));
        assert!(challenge.contains("\r\nProxy-Authenticate: Basic realm=\"millrace\""));
        assert!(challenge.contains("\r\nConnection: close\r\n"));
    }
}
