//! Answers of HTTP/1.1 that a proxy sends itself, always the last on their connection.

/// A whole answer with `text` as its content; `fields` are more field lines, each with its end.
pub(crate) fn encode(status: u16, fields: &str, text: &str) -> Vec<u8> {
    let reason = reason(status);
    format!(
        "HTTP/1.1 {status} {reason}\r\n{fields}Content-Type: text/plain\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}\n",
        text.len() + 1
    )
    .into_bytes()
}

/// An answer as it is sent to a HEAD request: without its content (RFC 9110 §9.3.2).
pub fn without_content(mut answer: Vec<u8>) -> Vec<u8> {
    const END: &[u8] = b"\r\n\r\n";
    if let Some(at) = answer.windows(END.len()).position(|window| window == END) {
        answer.truncate(at + END.len());
    }
    answer
}

/// The reason phrase (RFC 9110 §15) of a status that this crate sends.
fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_to_a_head_request_ends_with_its_head() {
        let whole = encode(502, "Proxy-Status: x\r\n", "no");
        let head = without_content(whole.clone());
        assert!(head.ends_with(b"\r\n\r\n"));
        assert_eq!(whole, [&head[..], b"no\n"].concat());
        assert!(head.starts_with(b"HTTP/1.1 502 Bad Gateway\r\nProxy-Status: x\r\n"));
        assert_eq!(without_content(head.clone()), head);
    }
}
