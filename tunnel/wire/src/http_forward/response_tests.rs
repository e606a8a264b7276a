use super::*;
use crate::test_support::assert_incremental;

fn parsed(head: &str, to_http_10: bool) -> Result<(String, ResponseKind), HttpResponseError> {
    match parse_response(head.as_bytes(), to_http_10)? {
        Parsed::Complete { value, consumed } => {
            assert_eq!(consumed, head.len(), "{head:?}");
            Ok((String::from_utf8(value.head).unwrap(), value.kind))
        }
        Parsed::Incomplete => panic!("incomplete: {head:?}"),
    }
}

const CLOSE: &str = "Via: 1.1 millrace\r\nConnection: close\r\n\r\n";

#[test]
fn response_keeps_its_fields_and_closes() {
    let head = "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\nConnection: keep-alive, x-own\r\n\
                X-Own: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\n\
                Set-Cookie: a\r\nSet-Cookie: b\r\n\r\n";
    let to_client = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n{CLOSE}"
    );
    let value = ForwardedResponse { head: to_client.into(), kind: ResponseKind::Plain };
    assert_incremental(|bytes| parse_response(bytes, false), head.as_bytes(), &value);
}

#[test]
fn interim_response_is_followed_by_another_head() {
    let (head, kind) = parsed("HTTP/1.1 100 Continue\r\n\r\n", false).unwrap();
    assert_eq!((head.as_str(), kind), ("HTTP/1.1 100 Continue\r\n\r\n", ResponseKind::Interim));
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    assert_eq!(parsed(early, false), Ok((early.into(), ResponseKind::Interim)));
}

#[test]
fn client_of_http_10_gets_no_chunks() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n";
    let kept = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{CLOSE}");
    assert_eq!(parsed(head, false), Ok((kept, ResponseKind::Plain)));
    let taken_off = format!("HTTP/1.1 200 OK\r\n{CLOSE}");
    assert_eq!(parsed(head, true), Ok((taken_off, ResponseKind::Chunked)));
    let not_modified = "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parsed(not_modified, true).unwrap().1, ResponseKind::Plain);
    let zipped = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    assert!(parsed(zipped, false).unwrap().0.contains("gzip, chunked"));
    assert_eq!(parsed(zipped, true), Err(HttpResponseError::UnsupportedCoding));
}

#[test]
fn origin_of_http_10_is_named_in_via() {
    let (head, _) = parsed("HTTP/1.0 200 OK\r\nX : y\r\n\r\n", false).unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK\r\nX: y\r\nVia: 1.0 millrace\r\nConnection: close\r\n\r\n");
}

#[test]
fn refused() {
    use HttpResponseError as E;
    let many = "X: y\r\n".repeat(MAX_RESPONSE_FIELDS + 1);
    let long = "x".repeat(MAX_RESPONSE_HEAD_BYTES);
    for (head, error) in [
        ("SSH-2.0-x\r\n".to_owned(), E::Malformed(httparse::Error::Version)),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n".to_owned(), E::Malformed(httparse::Error::Version)),
        ("HTTP/1.1 099 X\r\n\r\n".to_owned(), E::Malformed(httparse::Error::Status)),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(), E::Switched),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n".to_owned(),
            E::BadContentLength,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n".to_owned(), E::BadContentLength),
        (format!("HTTP/1.1 200 OK\r\n{many}\r\n"), E::HeadTooLarge),
        (format!("HTTP/1.1 200 OK\r\nX: {long}"), E::HeadTooLarge),
    ] {
        assert_eq!(parsed(&head, false), Err(error.clone()), "{:?}", &head[..40.min(head.len())]);
        let answer = String::from_utf8(error.response()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
    }
    let same = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n";
    assert!(
        parsed(same, false).unwrap().0.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nVia")
    );
}
