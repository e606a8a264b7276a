//! Common Media Client Data (CTA-5004, September 2020, and version 2, CTA-5004-B, April 2026): the reports of DASH and
//! HLS players in the query or in header fields of HTTP/1.1 requests.
//!
//! The data is a hint. A malformed key is ignored, and no other key with it; a request is never refused.

mod data;
mod members;
mod report;
mod value;

use crate::Parsed;
use data::Data;
pub use report::{
    Ignored, IgnoredReason, MAX_DATA_BYTES, MAX_KEYS, MAX_SESSION_BYTES, MAX_VERSION, PlayerReport,
    SessionId,
};

/// Longest request head that is looked at, with its empty line, in bytes.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Most header fields in a request head.
pub const MAX_FIELDS: usize = 64;

/// The header fields (CTA-5004-B, Section 3.1), in the order in which they are read.
pub(crate) const FIELDS: [&str; 4] = ["cmcd-object", "cmcd-request", "cmcd-session", "cmcd-status"];

/// A request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Bytes of content that follow.
    pub content_bytes: u64,
    /// What the player said, if it said anything.
    pub report: Option<PlayerReport>,
    /// What it said and was not used, at most two for each of [`MAX_KEYS`] in each field.
    pub ignored: Vec<Ignored>,
}

/// Why nothing can be read of a connection any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CmcdError {
    /// No HTTP/1.1 request: TLS, for example.
    #[error("not HTTP/1")]
    NotHttp,
    /// The head is longer than [`MAX_HEAD_BYTES`], or has more than [`MAX_FIELDS`] fields.
    #[error("the request head is too large")]
    TooLarge,
    /// What follows the head can't be told: chunked content, a tunnel, another protocol.
    #[error("the next request can't be found")]
    Opaque,
}

/// Parses a request's head, up to and with its empty line.
///
/// # Errors
/// No further request can be read: not HTTP/1, too large, or without a known end.
pub fn parse(buf: &[u8]) -> Result<Parsed<Request>, CmcdError> {
    let window = &buf[..buf.len().min(MAX_HEAD_BYTES)];
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let consumed = match head.parse(window) {
        Ok(httparse::Status::Complete(consumed)) => consumed,
        Ok(httparse::Status::Partial) if window.len() == MAX_HEAD_BYTES => {
            return Err(CmcdError::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(Parsed::Incomplete),
        Err(httparse::Error::TooManyHeaders) => return Err(CmcdError::TooLarge),
        Err(_) => return Err(CmcdError::NotHttp),
    };
    if head.method == Some("CONNECT") {
        return Err(CmcdError::Opaque);
    }
    let mut content_bytes = None;
    for field in head.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") || is("upgrade") {
            return Err(CmcdError::Opaque);
        }
        if is("content-length") {
            let bytes = str::from_utf8(field.value).ok().and_then(|text| digits(text.trim()));
            // Two of them, or none that is a number: readers may differ in where the next request is.
            content_bytes = match (content_bytes, bytes) {
                (None, Some(bytes)) => Some(bytes),
                _ => return Err(CmcdError::Opaque),
            };
        }
    }
    let data = data_of(head.path.unwrap_or_default(), head.headers);
    let (report, ignored) = data.finish();
    let content_bytes = content_bytes.unwrap_or(0);
    Ok(Parsed::Complete { value: Request { content_bytes, report, ignored }, consumed })
}

/// A number without a sign (RFC 9110, Section 8.6).
fn digits(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Of the header fields or of the query: with any of the fields, the query does not count (CTA-5004-B, Section 6).
fn data_of(target: &str, fields: &[httparse::Header<'_>]) -> Data {
    let mut data = Data::default();
    let mut has_fields = false;
    for name in FIELDS {
        for field in fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)) {
            has_fields = true;
            data.read(field.value);
        }
    }
    if let Some(value) = query_argument(target).filter(|_| !has_fields) {
        data.read_encoded(value);
    }
    data
}

/// The first `CMCD` in the query; its name is case-sensitive (CTA-5004-B, Section 3.2).
fn query_argument(target: &str) -> Option<&str> {
    let (_, query) = target.split_once('?')?;
    query.split('&').find_map(|argument| argument.strip_prefix("CMCD="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::assert_incremental;

    fn expected() -> PlayerReport {
        PlayerReport {
            buffer_ms: Some(21_300),
            bitrate_kbps: Some(3200),
            top_bitrate_kbps: Some(6000),
            throughput_kbps: Some(25_400),
            requested_kbps: Some(15_000),
            starved: true,
            urgent: false,
            live: true,
            session: SessionId::new("6e2f"),
        }
    }

    fn report(head: &str) -> Option<PlayerReport> {
        match parse(head.as_bytes()) {
            Ok(Parsed::Complete { value, .. }) => value.report,
            other => panic!("{head:?}: {other:?}"),
        }
    }

    /// As dash.js sends it, and as CTA-5004 has it in fields.
    #[test]
    fn both_forms_are_read() {
        let query = "GET /media/seg-1.m4s?a=b&CMCD=bl%3D21300%2Cbr%3D3200%2Cbs%2Ccid%3D%22a%2Cbl%3D9%22%2C\
             mtp%3D25400%2Cnor%3D%22seg-2.m4s%22%2Cot%3Dv%2Cpr%3D1.08%2Crtp%3D15000%2Csf%3Dd%2Csid%3D%226e2f%22%2Cst%3Dl%2Ctb%3D6000 \
             HTTP/1.1\r\nHost: a\r\n\r\n";
        let fields = "GET /seg HTTP/1.1\r\nHost: a\r\nCMCD-Request: mtp=25400,bl=21300\r\n\
             CMCD-Object: br=3200,d=4004,ot=v,tb=6000\r\nCMCD-Status: bs,rtp=15000\r\n\
             CMCD-Session: sid=\"6e2f\",st=ll\r\n\r\n";
        for head in [query, fields] {
            let value = Request { content_bytes: 0, report: Some(expected()), ignored: Vec::new() };
            assert_incremental(parse, head.as_bytes(), &value);
        }
    }

    #[test]
    fn data_without_anything_of_use_is_no_report_and_never_an_error() {
        for target in
            ["/seg", "/seg?CMCD=", "/seg?CMCD=bl%3D%3D", "/seg?CMCD=%ff", "/seg?CMCD=bs%3D%3F0"]
        {
            assert_eq!(
                report(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")),
                None,
                "{target}"
            );
        }
        let long =
            format!("GET /seg?CMCD=bl%3D{} HTTP/1.1\r\n\r\n", "1".repeat(3 * MAX_DATA_BYTES));
        assert_eq!(report(&long), None);
    }

    #[test]
    fn a_session_is_named_as_specified_or_not_at_all() {
        let session = |sid: &str| {
            report(&format!("GET / HTTP/1.1\r\nCMCD-Session: su,sid={sid}\r\n\r\n"))
                .unwrap()
                .session
        };
        let longest = "a".repeat(MAX_SESSION_BYTES);
        for name in ["6e2fb550-c457-11e9-bb97-0800200c9a66", &longest] {
            let session = session(&format!("\"{name}\"")).unwrap();
            assert_eq!((session.as_str(), format!("{session:?}")), (name, format!("{name:?}")));
        }
        for sid in ["\"\"", &format!("\"{longest}a\""), "6", "a", "?1"] {
            assert_eq!(session(sid), None, "{sid}");
        }
    }

    #[test]
    fn the_next_request_is_where_the_content_ends_or_nowhere() {
        let content = "POST /beacon HTTP/1.1\r\nContent-Length: 12\r\n\r\n";
        let Ok(Parsed::Complete { value, .. }) = parse(content.as_bytes()) else { panic!() };
        assert_eq!(value.content_bytes, 12);
        for field in [
            "Transfer-Encoding: chunked",
            "Upgrade: h2c",
            "Content-Length: 1x",
            "Content-Length: +1",
            "Content-Length: ",
            "Content-Length: 1, 1",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
        ] {
            let head = format!("POST / HTTP/1.1\r\n{field}\r\n\r\n");
            assert_eq!(parse(head.as_bytes()), Err(CmcdError::Opaque), "{field}");
        }
        assert_eq!(parse(b"CONNECT a:1 HTTP/1.1\r\n\r\n"), Err(CmcdError::Opaque));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01"), Err(CmcdError::NotHttp));
        let long = [b"GET /".as_slice(), &[b'a'; MAX_HEAD_BYTES]].concat();
        assert_eq!(parse(&long), Err(CmcdError::TooLarge));
        let with_fields = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert_eq!(report(&with_fields(MAX_FIELDS)), None);
        let many = with_fields(MAX_FIELDS + 1);
        assert_eq!(parse(many.as_bytes()), Err(CmcdError::TooLarge));
    }

    /// Each byte of it may be encoded in three.
    #[test]
    fn a_query_argument_may_be_as_long_as_a_field() {
        let request = |bytes: usize| {
            let data = format!("bl=5,x={}", "a".repeat(bytes - 7));
            let encoded: String = data.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let head = format!("GET /?CMCD={encoded} HTTP/1.1\r\n\r\n");
            match parse(head.as_bytes()) {
                Ok(Parsed::Complete { value, .. }) => value,
                other => panic!("{other:?}"),
            }
        };
        let longest = request(MAX_DATA_BYTES);
        assert_eq!(longest.report.and_then(|it| it.buffer_ms), Some(5));
        assert_eq!(longest.ignored, []);
        let longer = request(MAX_DATA_BYTES + 1);
        assert_eq!(longer.report, None);
        assert_eq!(longer.ignored, [Ignored { key: "", reason: IgnoredReason::TooLong }]);
    }
}
