//! What a flow carries, by the first bytes that its client sends.
//!
//! The answer for some bytes is the answer for all bytes that begin with them, however they were cut. So both ends of
//! the tunnel come to the same answer.

use crate::cmcd;

/// Longest beginning of a flow that is looked at, in bytes.
pub const MAX_FIRST_BYTES: usize = cmcd::MAX_HEAD_BYTES;

/// Longest request line, its end not counted, in bytes. RFC 9112, Section 3 asks for 8,000 at least.
pub const MAX_REQUEST_LINE_BYTES: usize = 8 * 1024;

/// Methods of HTTP (RFC 9110, Section 9.3, and RFC 5789) and RTSP (RFC 2326, Section 10). Known methods only: a text
/// protocol of another kind is told by its first letters, and need not be waited for.
const METHODS: [&[u8]; 18] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"DESCRIBE",
    b"ANNOUNCE",
    b"SETUP",
    b"PLAY",
    b"PAUSE",
    b"TEARDOWN",
    b"GET_PARAMETER",
    b"SET_PARAMETER",
    b"RECORD",
];

/// Endings of paths that name DASH manifests and segments (ISO/IEC 23009-1) and HLS playlists (RFC 8216, Section 4).
/// Only players ask for these; what ends with `.mp4`, `.ts` or `.aac` is often a download.
const MEDIA_ENDINGS: [&str; 3] = [".mpd", ".m3u8", ".m4s"];

/// What a version looks like; `9` stands for a digit.
const RTSP_VERSION: &[u8] = b"RTSP/9.9";
const HTTP_VERSION: &[u8] = b"HTTP/1.9";

/// The first bytes of a TLS record of type handshake (RFC 8446, Section 5.1): the type, and the older half of the
/// version, which is the same in all of them.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// What a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowProtocol {
    /// RTSP (RFC 2326, RFC 7826).
    Rtsp,
    /// RTSP tunnelled in HTTP, by the fields that QuickTime sends: `x-sessioncookie`, or the type
    /// `application/x-rtsp-tunnelled`.
    RtspOverHttp,
    /// HTTP/1 of a player that reports its state (CTA-5004).
    HttpCmcd,
    /// HTTP/1, for a manifest, a playlist or a segment.
    HttpMedia,
    /// Other HTTP/1.
    Http,
    /// TLS.
    Tls,
    /// Anything else.
    Other,
}

/// Recognises what a flow carries by its first bytes; `None` while more are needed. It is never `None` for
/// [`MAX_FIRST_BYTES`].
pub fn recognise(bytes: &[u8]) -> Option<FlowProtocol> {
    if bytes.starts_with(&TLS_HANDSHAKE) {
        return Some(FlowProtocol::Tls);
    }
    if TLS_HANDSHAKE.starts_with(bytes) {
        return None;
    }
    match request_line(bytes) {
        RequestLine::Incomplete => None,
        RequestLine::Other => Some(FlowProtocol::Other),
        RequestLine::Rtsp => Some(FlowProtocol::Rtsp),
        RequestLine::Http { target, .. } if has_cmcd(target) => Some(FlowProtocol::HttpCmcd),
        RequestLine::Http { target, .. } if is_media(target) => Some(FlowProtocol::HttpMedia),
        RequestLine::Http { bytes: line, .. } => of_fields(bytes, line),
    }
}

/// A request line; that of HTTP took `bytes` up to the end of its version.
enum RequestLine<'a> {
    Incomplete,
    Rtsp,
    Http { target: &'a [u8], bytes: usize },
    Other,
}

fn request_line(bytes: &[u8]) -> RequestLine<'_> {
    let window = &bytes[..bytes.len().min(MAX_REQUEST_LINE_BYTES)];
    let incomplete = match window.len() < MAX_REQUEST_LINE_BYTES {
        true => RequestLine::Incomplete,
        false => RequestLine::Other,
    };
    let Some(method) = window.iter().position(|byte| *byte == b' ') else {
        return match METHODS.iter().any(|method| method.starts_with(window)) {
            true => incomplete,
            false => RequestLine::Other,
        };
    };
    if !METHODS.contains(&&window[..method]) {
        return RequestLine::Other;
    }
    let rest = &window[method + 1..];
    let Some(end) = rest.iter().position(|byte| *byte <= b' ' || *byte == 0x7f) else {
        return incomplete;
    };
    if end == 0 || rest[end] != b' ' {
        return RequestLine::Other;
    }
    let (target, version) = (&rest[..end], &rest[end + 1..]);
    let bytes = method + 1 + end + 1 + HTTP_VERSION.len();
    match (matches(version, RTSP_VERSION), matches(version, HTTP_VERSION)) {
        (Some(true), _) => RequestLine::Rtsp,
        (_, Some(true)) => RequestLine::Http { target, bytes },
        (Some(false), Some(false)) => RequestLine::Other,
        _ => incomplete,
    }
}

/// Whether bytes begin as `pattern` says; `None` while that is open.
fn matches(bytes: &[u8], pattern: &[u8]) -> Option<bool> {
    let fits = |(byte, wanted): (&u8, &u8)| match wanted {
        b'9' => byte.is_ascii_digit(),
        wanted => byte == wanted,
    };
    match std::iter::zip(bytes, pattern).all(fits) {
        false => Some(false),
        true => (bytes.len() >= pattern.len()).then_some(true),
    }
}

/// Whether a request target has a report in its query (CTA-5004, Section 2).
fn has_cmcd(target: &[u8]) -> bool {
    let query = target.iter().position(|byte| *byte == b'?').map(|at| &target[at + 1..]);
    query.is_some_and(|query| query.split(|byte| *byte == b'&').any(|it| it.starts_with(b"CMCD=")))
}

fn is_media(target: &[u8]) -> bool {
    let path = target.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    MEDIA_ENDINGS.iter().any(|ending| {
        let start = path.len().checked_sub(ending.len());
        start.is_some_and(|start| path[start..].eq_ignore_ascii_case(ending.as_bytes()))
    })
}

/// Of the fields of an HTTP request, whose line takes `line` bytes to the end of its version.
fn of_fields(bytes: &[u8], line: usize) -> Option<FlowProtocol> {
    let window = &bytes[..bytes.len().min(MAX_FIRST_BYTES)];
    let incomplete = (window.len() == MAX_FIRST_BYTES).then_some(FlowProtocol::Http);
    let fields = match &window[line..] {
        [] | [b'\r'] => return incomplete,
        [b'\n', fields @ ..] | [b'\r', b'\n', fields @ ..] => fields,
        _ => return Some(FlowProtocol::Other),
    };
    let mut headers = [httparse::EMPTY_HEADER; cmcd::MAX_FIELDS];
    let headers = match httparse::parse_headers(fields, &mut headers) {
        Ok(httparse::Status::Complete((_, headers))) => headers,
        Ok(httparse::Status::Partial) => return incomplete,
        Err(_) => return Some(FlowProtocol::Http),
    };
    let any = |is: fn(&httparse::Header<'_>) -> bool| headers.iter().any(is);
    Some(match (any(is_rtsp_tunnel), any(is_cmcd)) {
        (true, _) => FlowProtocol::RtspOverHttp,
        (false, true) => FlowProtocol::HttpCmcd,
        (false, false) => FlowProtocol::Http,
    })
}

fn is_rtsp_tunnel(field: &httparse::Header<'_>) -> bool {
    const TYPE: &[u8] = b"application/x-rtsp-tunnelled";
    let is = |name: &str| field.name.eq_ignore_ascii_case(name);
    let has_type = || field.value.trim_ascii().eq_ignore_ascii_case(TYPE);
    is("x-sessioncookie") || (is("accept") || is("content-type")) && has_type()
}

fn is_cmcd(field: &httparse::Header<'_>) -> bool {
    cmcd::FIELDS.iter().any(|name| field.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
#[path = "first_bytes_tests.rs"]
mod tests;
