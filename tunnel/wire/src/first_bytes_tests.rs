use super::FlowProtocol::{Http, HttpCmcd, HttpMedia, Other, Rtsp, RtspOverHttp, Tls};
use super::*;

/// Beginnings, each with the answer and with the number of bytes after which it is there.
const CASES: [(&str, FlowProtocol, usize); 37] = [
    ("OPTIONS rtsp://198.18.3.2/live RTSP/1.0\r\nCSeq: 1\r\n\r\n", Rtsp, 39),
    ("OPTIONS * RTSP/1.0\r\n", Rtsp, 18),
    ("DESCRIBE rtsp://a/b RTSP/2.0\r\n", Rtsp, 28),
    ("SETUP rtsp://a/b/trackID=1 RTSP/1.0\n", Rtsp, 35),
    ("GET_PARAMETER rtsp://a RTSP/1.0\r\n", Rtsp, 31),
    ("GET /live HTTP/1.0\r\nx-sessioncookie: 1\r\n\r\n", RtspOverHttp, 42),
    ("GET /l HTTP/1.0\r\nAccept: application/x-rtsp-tunnelled\r\n\r\n", RtspOverHttp, 57),
    ("POST /l HTTP/1.0\r\nContent-Type: application/x-rtsp-tunnelled\r\n\r\nxx", RtspOverHttp, 64),
    ("GET /a/seg-1.m4s?x=1&CMCD=bl%3D1 HTTP/1.1\r\n", HttpCmcd, 41),
    ("GET http://a/1?CMCD=br%3D1 HTTP/1.1\r\n", HttpCmcd, 35),
    ("GET /1 HTTP/1.1\r\nHost: a\r\nCMCD-Request: bl=1\r\n\r\n", HttpCmcd, 48),
    ("GET /1 HTTP/1.1\r\ncmcd-session: sid=\"a\"\r\n\r\n", HttpCmcd, 42),
    ("GET /live/manifest.mpd HTTP/1.1\r\n", HttpMedia, 31),
    ("GET /live.M3U8?token=1 HTTP/1.1\r\n", HttpMedia, 31),
    ("GET /live.m4s#x HTTP/1.1\r\n", HttpMedia, 24),
    ("GET /film.mp4 HTTP/1.1\r\nHost: a\r\n\r\n", Http, 35),
    ("GET /?f=a.mpd HTTP/1.1\r\nHost: a\r\n\r\n", Http, 35),
    ("GET /a?xCMCD=1 HTTP/1.1\r\n\r\n", Http, 27),
    ("GET /.mpd/ HTTP/1.1\n\n", Http, 21),
    ("GET / HTTP/1.1\r\nbad field\r\n\r\n", Http, 20),
    ("GET / HTTP/1.1\r\nAccept: */*\r\n\r\n", Http, 31),
    ("GET / HTTP/1.1\r\nX: application/x-rtsp-tunnelled\r\n\r\n", Http, 51),
    ("GET / HTTP/1.1x", Other, 15),
    ("GET / HTTP/2.0\r\n", Other, 12),
    ("GET  / HTTP/1.1\r\n", Other, 5),
    ("GET /a\tb HTTP/1.1\r\n", Other, 7),
    ("GET /a\u{7f}b HTTP/1.1\r\n", Other, 7),
    ("GET / RTSP/1.x\r\n", Other, 14),
    ("PRI * HTTP/2.0\r\n", Other, 2),
    ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}", Tls, 2),
    ("\u{16}\u{2}", Other, 2),
    ("SSH-2.0-OpenSSH_9.2\r\n", Other, 2),
    ("HELO a\r\n", Other, 3),
    ("USER anonymous\r\n", Other, 1),
    ("ping", Other, 1),
    ("\r\nOPTIONS * RTSP/1.0\r\n", Other, 1),
    ("RTSP/1.0 200 OK\r\n", Other, 2),
];

#[test]
fn each_protocol_is_recognised_after_as_few_bytes_as_decide() {
    for (text, protocol, after) in CASES {
        let bytes = text.as_bytes();
        for length in 0..=bytes.len() {
            let expected = (length >= after).then_some(protocol);
            assert_eq!(recognise(&bytes[..length]), expected, "first {length} bytes of {text:?}");
        }
        for tail in [&[0; 64][..], b"\r\n\r\n", &[b'a'; MAX_FIRST_BYTES]] {
            let longer = [&bytes[..after], tail].concat();
            assert_eq!(recognise(&longer), Some(protocol), "{text:?} and {} more", tail.len());
        }
    }
}

#[test]
fn an_endless_beginning_is_not_waited_for() {
    // RFC 9112, Section 3.
    const { assert!(MAX_REQUEST_LINE_BYTES >= 8_000) };
    let target = [b"OPTIONS /".as_slice(), &[b'a'; MAX_REQUEST_LINE_BYTES]].concat();
    let line = |bytes: usize| &target[..bytes];
    assert_eq!(recognise(line(MAX_REQUEST_LINE_BYTES - 1)), None);
    assert_eq!(recognise(line(MAX_REQUEST_LINE_BYTES)), Some(Other));

    let fields = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; MAX_FIRST_BYTES]].concat();
    assert_eq!(recognise(&fields[..MAX_FIRST_BYTES - 1]), None);
    assert_eq!(recognise(&fields[..MAX_FIRST_BYTES]), Some(Http));

    let many = "a: b\r\n".repeat(2 * cmcd::MAX_FIELDS);
    let many = format!("GET / HTTP/1.1\r\n{many}CMCD-Request: bl=1\r\n\r\n");
    assert_eq!(recognise(many.as_bytes()), Some(Http));
}
