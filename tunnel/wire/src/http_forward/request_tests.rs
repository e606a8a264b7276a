use super::*;
use crate::AuthorityError;
use crate::request_head::MAX_HEAD_BYTES;
use crate::test_support::assert_incremental;

fn parsed(head: &str) -> Result<ForwardedRequest, HttpForwardError> {
    match parse_request(head.as_bytes())? {
        Parsed::Complete { value, consumed } => {
            assert_eq!(consumed, head.len(), "{head:?}");
            Ok(value)
        }
        Parsed::Incomplete => panic!("incomplete: {head:?}"),
    }
}

fn forwarded(head: &str) -> String {
    String::from_utf8(parsed(head).unwrap().head).unwrap()
}

#[test]
fn request_in_absolute_form_becomes_one_in_origin_form() {
    let head = "GET http://Origin.Example:8080/a/b?c=d%20e HTTP/1.1\r\nHost: elsewhere\r\n\
                User-Agent: x\r\nAccept: */*\r\n\r\n";
    let origin = "GET /a/b?c=d%20e HTTP/1.1\r\nHost: Origin.Example:8080\r\nUser-Agent: x\r\n\
                  Accept: */*\r\nVia: 1.1 millrace\r\nConnection: close\r\n\r\n";
    let value = ForwardedRequest {
        destination: "origin.example:8080".parse().unwrap(),
        head: origin.into(),
        framing: BodyFraming::Empty,
        is_head: false,
        is_http_10: false,
    };
    assert_incremental(parse_request, head.as_bytes(), &value);
}

#[test]
fn targets() {
    for (method, target, destination, host, origin_form) in [
        ("GET", "http://a", "a:80", "a", "/"),
        ("GET", "HTTP://a/", "a:80", "a", "/"),
        ("GET", "http://a:80/", "a:80", "a:80", "/"),
        ("GET", "http://a?b", "a:80", "a", "/?b"),
        ("GET", "http://a/http://b/", "a:80", "a", "/http://b/"),
        ("PUT", "http://192.0.2.1:8000/x;y", "192.0.2.1:8000", "192.0.2.1:8000", "/x;y"),
        ("GET", "http://[2001:db8::1]/x", "[2001:db8::1]:80", "[2001:db8::1]", "/x"),
        ("GET", "http://[2001:db8::1]:8080", "[2001:db8::1]:8080", "[2001:db8::1]:8080", "/"),
        ("OPTIONS", "http://a", "a:80", "a", "*"),
        ("OPTIONS", "http://a/", "a:80", "a", "/"),
        ("PROPFIND", "http://a/x", "a:80", "a", "/x"),
    ] {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        let request = parsed(&head).unwrap();
        assert_eq!(request.destination, destination.parse().unwrap(), "{target}");
        let start = format!("{method} {origin_form} HTTP/1.1\r\nHost: {host}\r\n");
        let text = String::from_utf8(request.head).unwrap();
        assert!(text.starts_with(&start), "{target}: {text}");
    }
}

#[test]
fn fields_of_one_connection_stay_behind() {
    let head = "POST http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close, X-Own , te\r\n\
                connection: Cookie\r\nX-Own: 1\r\nX-Kept: 2\r\nCookie: 3\r\nTE: trailers\r\n\
                Trailer: X\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
                Upgrade: h2c\r\nProxy-Authorization: Basic eDp5\r\nVia: 1.1 other\r\n\
                Expect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(
        forwarded(head),
        "POST / HTTP/1.1\r\nHost: a\r\nX-Kept: 2\r\nVia: 1.1 other\r\nExpect: 100-continue\r\n\
         Content-Length: 5\r\nVia: 1.1 millrace\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn connection_can_not_take_the_framing_away() {
    let head = "POST http://a/ HTTP/1.1\r\nHost: a\r\nConnection: content-length, host, via\r\n\
                Content-Length: 5\r\n\r\n";
    assert_eq!(
        forwarded(head),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nVia: 1.1 millrace\r\n\
         Connection: close\r\n\r\n"
    );
}

#[test]
fn http_10_has_no_expectation_and_needs_no_host() {
    let request = parsed("GET http://a/ HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").unwrap();
    assert!(request.is_http_10);
    assert_eq!(
        request.head,
        b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 millrace\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn framings() {
    for (fields, framing) in [
        ("", BodyFraming::Empty),
        ("Content-Length: 0\r\n", BodyFraming::Length(0)),
        ("Content-Length:  42 \r\n", BodyFraming::Length(42)),
        ("content-length: 18446744073709551615\r\n", BodyFraming::Length(u64::MAX)),
        ("Transfer-Encoding: chunked\r\n", BodyFraming::Chunked),
        ("transfer-encoding: CHUNKED \r\n", BodyFraming::Chunked),
    ] {
        let head = format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(parsed(&head).unwrap().framing, framing, "{fields:?}");
    }
    assert!(parsed("HEAD http://a/ HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().is_head);
}

/// Heads that two parsers may read differently: request smuggling (RFC 9112 §11.2).
#[test]
fn ambiguous_lengths_are_refused() {
    use HttpForwardError as E;
    for (fields, error) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", E::TwoFramings),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", E::TwoFramings),
        ("Transfer-Encoding: x\r\nContent-Length: 0\r\n", E::TwoFramings),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", E::BadContentLength),
        ("Content-Length: 5\r\ncontent-length: 5\r\n", E::BadContentLength),
        ("Content-Length: 5, 5\r\n", E::BadContentLength),
        ("Content-Length: +5\r\n", E::BadContentLength),
        ("Content-Length: -5\r\n", E::BadContentLength),
        ("Content-Length: 0x5\r\n", E::BadContentLength),
        ("Content-Length: 5 5\r\n", E::BadContentLength),
        ("Content-Length: \r\n", E::BadContentLength),
        ("Content-Length: 18446744073709551616\r\n", E::BadContentLength),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding: identity\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding: gzip, chunked\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding: chunked, identity\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding: xchunked\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding: \"chunked\"\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding:\r\n", E::UnsupportedCoding),
        ("Transfer-Encoding: \x0bchunked\r\n", E::Malformed(httparse::Error::HeaderValue)),
        ("Transfer-Encoding : chunked\r\n", E::Malformed(httparse::Error::HeaderName)),
        ("Transfer-Encoding\x0b: chunked\r\n", E::Malformed(httparse::Error::HeaderName)),
        (" Transfer-Encoding: chunked\r\n", E::Malformed(httparse::Error::HeaderName)),
        ("X: y\r\n Transfer-Encoding: chunked\r\n", E::Malformed(httparse::Error::HeaderName)),
        ("X: y\nTransfer-Encoding: chunked\r\n", E::BareLineFeed),
        ("X: y\rTransfer-Encoding: chunked\r\n", E::Malformed(httparse::Error::HeaderValue)),
        ("X: y\0\r\n", E::Malformed(httparse::Error::HeaderValue)),
        ("Host: b\r\n", E::BadHost),
    ] {
        let head = format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(parsed(&head), Err(error), "{fields:?}");
    }
    let head = "POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parsed(head), Err(E::EncodedHttp10));
}

#[test]
fn refused() {
    use HttpForwardError as E;
    let many = "X: y\r\n".repeat(MAX_FIELDS);
    for (head, error, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::NotAbsolute, 400),
        ("GET /?a=http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::NotAbsolute, 400),
        ("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::NotAbsolute, 400),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::NotAbsolute, 400),
        ("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::HttpsTarget, 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::UnsupportedScheme, 400),
        ("GET http://a/#b HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::BadTarget, 400),
        ("GET http://a/\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n".into(), E::BadTarget, 400),
        ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n".into(), AuthorityError::EmptyHost.into(), 400),
        (
            "GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            AuthorityError::UserInfo.into(),
            400,
        ),
        ("GET http://a:0/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), AuthorityError::BadPort.into(), 400),
        ("GET http://[a]/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), AuthorityError::BadIpv6.into(), 400),
        ("GET http://a/ HTTP/1.1\r\n\r\n".into(), E::BadHost, 400),
        ("GET http://a/ HTTP/2.0\r\n\r\n".into(), E::UnsupportedVersion, 505),
        ("GET http://a/ HTTP/1.1\nHost: a\n\n".into(), E::BareLineFeed, 400),
        (format!("GET http://a/ HTTP/1.1\r\nHost: a\r\n{many}\r\n"), E::TooManyFields, 431),
        (
            "TRACE http://a/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n".into(),
            E::NoMoreForwards,
            501,
        ),
        (
            "OPTIONS http://a/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: x\r\n\r\n".into(),
            E::NoMoreForwards,
            501,
        ),
    ] {
        let result = parsed(&head);
        assert_eq!(result, Err(error.clone()), "{head:?}");
        let answer = String::from_utf8(error.response()).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{error}\n")), "{answer}");
    }
    let https = HttpForwardError::HttpsTarget.to_string();
    assert!(https.contains("CONNECT"), "{https}");
}

#[test]
fn max_forwards_counts_down_for_trace_and_options_only() {
    let head =
        |method: &str| format!("{method} http://a/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 3\r\n\r\n");
    assert!(forwarded(&head("TRACE")).contains("\r\nMax-Forwards: 2\r\n"));
    assert!(forwarded(&head("OPTIONS")).contains("\r\nMax-Forwards: 2\r\n"));
    assert!(forwarded(&head("GET")).contains("\r\nMax-Forwards: 3\r\n"));
}

#[test]
fn bounded() {
    let start = "GET http://a/ HTTP/1.1\r\nHost: a\r\nX: ";
    let fill = |total: usize| {
        format!("{start}{}\r\n\r\n", "x".repeat(total - start.len() - 4)).into_bytes()
    };
    let largest = fill(MAX_HEAD_BYTES);
    assert!(matches!(
        parse_request(&largest),
        Ok(Parsed::Complete { consumed: MAX_HEAD_BYTES, .. })
    ));
    let too_large = parse_request(&fill(MAX_HEAD_BYTES + 1));
    assert_eq!(too_large, Err(HttpForwardError::HeadTooLarge));
}
