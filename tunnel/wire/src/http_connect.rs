//! HTTP/1.1 CONNECT (RFC 9110 §9.3.6, RFC 9112 §3.2.3), proxy side.

use crate::request_head::{self, RequestHeadError};
use crate::{AuthorityError, ConnectFailure, Destination, Parsed, http_reply, parse_authority};

pub use crate::request_head::{MAX_FIELDS, MAX_HEAD_BYTES};

/// The answer that begins the tunnel (RFC 9110 §9.3.6: no content and no framing fields).
pub const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";

/// Why a head is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpConnectError {
    /// Not HTTP/1.x at all, or bytes that HTTP does not allow.
    #[error("the request head is not HTTP/1: {0}")]
    Malformed(httparse::Error),
    /// HTTP, but neither version 1.0 nor 1.1.
    #[error("the request is not HTTP/1.0 or HTTP/1.1")]
    UnsupportedVersion,
    /// A method other than CONNECT.
    #[error("the request's method is not CONNECT")]
    MethodNotAllowed,
    /// The target is no `host:port`.
    #[error("the CONNECT target is not usable: {0}")]
    BadAuthority(#[from] AuthorityError),
    /// No Host field in HTTP/1.1, more than one, or not text (RFC 9112 §3.2).
    #[error("the request has no Host field, or more than one")]
    BadHost,
    /// The request announces content, which a CONNECT request does not have (RFC 9110 §9.3.6).
    /// Refused, because two parsers might disagree about where the tunnel begins.
    #[error("the CONNECT request announces content (Content-Length or Transfer-Encoding)")]
    HasContent,
    /// No end of the head within [`MAX_HEAD_BYTES`].
    #[error("the request head is longer than {MAX_HEAD_BYTES} bytes")]
    HeadTooLarge,
    /// More than [`MAX_FIELDS`] fields.
    #[error("the request head has more than {MAX_FIELDS} fields")]
    TooManyFields,
}

impl From<RequestHeadError> for HttpConnectError {
    fn from(error: RequestHeadError) -> Self {
        match error {
            RequestHeadError::Malformed(error) => Self::Malformed(error),
            RequestHeadError::UnsupportedVersion => Self::UnsupportedVersion,
            RequestHeadError::TooLarge => Self::HeadTooLarge,
            RequestHeadError::TooManyFields => Self::TooManyFields,
        }
    }
}

impl HttpConnectError {
    /// The status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) | Self::BadAuthority(_) | Self::BadHost | Self::HasContent => 400,
            Self::MethodNotAllowed => 405,
            Self::HeadTooLarge | Self::TooManyFields => 431,
            Self::UnsupportedVersion => 505,
        }
    }

    /// The whole answer to send before closing, with the reason as text.
    pub fn response(&self) -> Vec<u8> {
        let field = match self {
            // RFC 9110 §15.5.6: a 405 names the methods that are allowed.
            Self::MethodNotAllowed => "Allow: CONNECT\r\n",
            _ => "Proxy-Status: millrace; error=http_request_error\r\n",
        };
        http_reply::encode(self.status(), field, &self.to_string())
    }
}

/// Parses a whole CONNECT head, up to and with its empty line. HTTP/1.0 and 1.1 are taken; header
/// fields are checked for form and otherwise ignored.
///
/// # Errors
/// The head is malformed, too large or not a CONNECT request; [`HttpConnectError::response`] is the answer to
/// send.
pub fn parse(buf: &[u8]) -> Result<Parsed<Destination>, HttpConnectError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let Some(consumed) = request_head::parse(&mut request, buf)? else {
        return Ok(Parsed::Incomplete);
    };
    if request.method != Some("CONNECT") {
        return Err(HttpConnectError::MethodNotAllowed);
    }
    let value = parse_authority(request.path.unwrap_or_default())?;
    let hosts = request.headers.iter().filter(|f| f.name.eq_ignore_ascii_case("host")).count();
    // RFC 9112 §3.2 wants 400 for both. What the field says is not compared: clients differ in
    // whether they add the port, and the target alone decides.
    if hosts > 1 || (hosts == 0 && request.version == Some(1)) {
        return Err(HttpConnectError::BadHost);
    }
    let announces_content = request.headers.iter().any(|field| {
        field.name.eq_ignore_ascii_case("transfer-encoding")
            || (field.name.eq_ignore_ascii_case("content-length") && field.value != b"0")
    });
    if announces_content {
        return Err(HttpConnectError::HasContent);
    }
    Ok(Parsed::Complete { value, consumed })
}

/// The whole answer for a destination that could not be connected, with `Proxy-Status` (RFC 9209).
pub fn encode_failure(failure: ConnectFailure) -> Vec<u8> {
    let field = format!("Proxy-Status: {}\r\n", failure.proxy_status());
    http_reply::encode(failure.status(), &field, &failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::assert_incremental;

    fn connect(target: &str) -> String {
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
    }

    #[test]
    fn accepted() {
        let many = "X-Filler: yes\r\n".repeat(MAX_FIELDS - 1);
        for (head, authority) in [
            (connect("origin.example:443"), "origin.example:443"),
            (connect("192.0.2.1:80"), "192.0.2.1:80"),
            (connect("[2001:db8::1]:554"), "[2001:db8::1]:554"),
            (connect("127.1:80"), "127.1:80"),
            ("CONNECT a:1 HTTP/1.0\r\n\r\n".into(), "a:1"),
            (
                "CONNECT a:1 HTTP/1.1\r\nhOST: b\r\nContent-Length: 0\r\n\
                 Proxy-Connection: Keep-Alive\r\nUser-Agent: curl/8\r\n\r\n"
                    .into(),
                "a:1",
            ),
            (format!("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n{many}\r\n"), "a:1"),
        ] {
            assert_incremental(parse, head.as_bytes(), &authority.parse().unwrap());
        }
    }

    #[test]
    fn refused() {
        use AuthorityError as A;
        let too_many = "X-Filler: yes\r\n".repeat(MAX_FIELDS + 1);
        for (head, error) in [
            (connect("origin.example"), HttpConnectError::BadAuthority(A::MissingPort)),
            (connect("origin.example:0"), HttpConnectError::BadAuthority(A::BadPort)),
            (connect("user@origin.example:80"), HttpConnectError::BadAuthority(A::UserInfo)),
            (connect("http://origin.example:80"), HttpConnectError::BadAuthority(A::BadByte(b':'))),
            (connect("/"), HttpConnectError::BadAuthority(A::MissingPort)),
            (connect("*"), HttpConnectError::BadAuthority(A::MissingPort)),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), HttpConnectError::MethodNotAllowed),
            ("connect a:1 HTTP/1.1\r\nHost: a\r\n\r\n".into(), HttpConnectError::MethodNotAllowed),
            ("CONNECT a:1 HTTP/1.1\r\n\r\n".into(), HttpConnectError::BadHost),
            (
                "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(),
                HttpConnectError::BadHost,
            ),
            (
                "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
                HttpConnectError::HasContent,
            ),
            (
                "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n".into(),
                HttpConnectError::HasContent,
            ),
            (format!("CONNECT a:1 HTTP/1.1\r\n{too_many}\r\n"), HttpConnectError::TooManyFields),
            ("CONNECT a:1 HTTP/2.0\r\n\r\n".into(), HttpConnectError::UnsupportedVersion),
            (
                "CONNECT a:1 HTTP/1.1\r\nHost : a\r\n\r\n".into(),
                HttpConnectError::Malformed(httparse::Error::HeaderName),
            ),
            (
                "CONNECT a:1 HTTP/1.1\r\nHost: a\0\r\n\r\n".into(),
                HttpConnectError::Malformed(httparse::Error::HeaderValue),
            ),
            ("\u{16}\u{3}\u{1}".into(), HttpConnectError::Malformed(httparse::Error::Token)),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), HttpConnectError::UnsupportedVersion),
        ] {
            assert_eq!(parse(head.as_bytes()), Err(error), "{head:?}");
        }
    }

    #[test]
    fn bounded() {
        let start = "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nX: ";
        let fill = |total: usize| {
            format!("{start}{}\r\n\r\n", "x".repeat(total - start.len() - 4)).into_bytes()
        };
        assert_eq!(MAX_HEAD_BYTES, 16_384);
        let largest = fill(MAX_HEAD_BYTES);
        assert_eq!(largest.len(), MAX_HEAD_BYTES);
        let value = "a:1".parse().unwrap();
        assert_eq!(parse(&largest), Ok(Parsed::Complete { value, consumed: MAX_HEAD_BYTES }));
        assert_eq!(parse(&fill(MAX_HEAD_BYTES + 1)), Err(HttpConnectError::HeadTooLarge));
        assert_eq!(parse(&[b'A'; MAX_HEAD_BYTES - 1]), Ok(Parsed::Incomplete));
        assert_eq!(parse(&[b'A'; MAX_HEAD_BYTES]), Err(HttpConnectError::HeadTooLarge));
    }

    /// Splits an answer into its head's lines and content, checking its framing.
    fn answer(bytes: &[u8]) -> (Vec<String>, String) {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, content) = text.split_once("\r\n\r\n").unwrap();
        let lines: Vec<_> = head.split("\r\n").map(str::to_owned).collect();
        assert!(lines.contains(&format!("Content-Length: {}", content.len())), "{text}");
        assert!(lines.contains(&"Connection: close".to_owned()), "{text}");
        (lines, content.into())
    }

    #[test]
    fn answers_to_refused_heads() {
        for (error, line) in [
            (HttpConnectError::MethodNotAllowed, "HTTP/1.1 405 Method Not Allowed"),
            (HttpConnectError::BadAuthority(AuthorityError::BadPort), "HTTP/1.1 400 Bad Request"),
            (HttpConnectError::HeadTooLarge, "HTTP/1.1 431 Request Header Fields Too Large"),
            (HttpConnectError::UnsupportedVersion, "HTTP/1.1 505 HTTP Version Not Supported"),
        ] {
            let (lines, content) = answer(&error.response());
            assert_eq!(lines[0], line);
            assert_eq!(content, format!("{error}\n"));
            let allow = lines.contains(&"Allow: CONNECT".to_owned());
            assert_eq!(allow, error == HttpConnectError::MethodNotAllowed);
        }
    }

    #[test]
    fn answers_to_failures() {
        for failure in ConnectFailure::ALL {
            let (lines, _) = answer(&encode_failure(failure));
            assert!(lines[0].starts_with(&format!("HTTP/1.1 {} ", failure.status())), "{lines:?}");
            let no_phrase = format!("HTTP/1.1 {} Error", failure.status());
            assert_ne!(lines[0], no_phrase, "every status has its phrase");
            let value = lines.iter().find_map(|l| l.strip_prefix("Proxy-Status: ")).unwrap();
            let back = ConnectFailure::from_response(failure.status(), Some(value.as_bytes()));
            assert_eq!(back, failure);
        }
        let refused = answer(&encode_failure(ConnectFailure::Refused)).0;
        assert_eq!(refused[0], "HTTP/1.1 502 Bad Gateway");
        assert_eq!(refused[1], "Proxy-Status: millrace; error=connection_refused");
    }
}
