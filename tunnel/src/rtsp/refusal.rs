//! What the player and the origin are told of media over UDP that are not carried.

/// The answer to a SETUP that can't be carried (RFC 2326, Section 11.3.14). Players then ask for RTP in the connection.
pub(super) fn answer(cseq: Option<u32>) -> Vec<u8> {
    let cseq = cseq.map_or_else(String::new, |cseq| format!("CSeq: {cseq}\r\n"));
    format!("RTSP/1.0 461 Unsupported Transport\r\n{cseq}\r\n").into_bytes()
}

/// The request that ends a medium of which the player does not know.
pub(super) fn teardown(
    uri: &str,
    cseq: u32,
    session: &str,
    authorization: Option<&[u8]>,
) -> Vec<u8> {
    let mut request =
        format!("TEARDOWN {uri} RTSP/1.0\r\nCSeq: {cseq}\r\nSession: {session}\r\n").into_bytes();
    if let Some(value) = authorization {
        request.extend_from_slice(b"Authorization: ");
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}
