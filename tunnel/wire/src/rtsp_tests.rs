use super::*;
use crate::test_support::assert_incremental;

const SETUP: &str = "SETUP rtsp://cam.example/live/trackID=1 RTSP/1.0\r\nCSeq: 4\r\n\
    User-Agent: x\r\ntransport :  RTP/AVP;unicast;client_port=5000-5001 \r\nSession: 47;timeout=60\r\n\r\n";

fn message(text: &str) -> MessageHead {
    match parse(text.as_bytes()) {
        Ok(Parsed::Complete { value: Unit::Message(head), consumed }) => {
            assert_eq!(consumed, text.len(), "{text:?}");
            head
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn requests_responses_frames_and_blank_lines() {
    let value = "RTP/AVP;unicast;client_port=5000-5001";
    let begin = SETUP.find(value).unwrap();
    let range = begin..begin + value.len();
    let head = MessageHead {
        start: Start::Request {
            method: "SETUP".into(),
            uri: "rtsp://cam.example/live/trackID=1".into(),
        },
        cseq: Some(4),
        session: Some("47".into()),
        transports: Vec::from([range]),
        authorization: None,
        content_bytes: 0,
    };
    assert_incremental(parse, SETUP.as_bytes(), &Unit::Message(head));
    let content = "RTSP/1.0 200 OK\nCSeq:7\nContent-Length: 300\n\n";
    let head = MessageHead {
        start: Start::Response { status: 200 },
        cseq: Some(7),
        session: None,
        transports: Vec::new(),
        authorization: None,
        content_bytes: 300,
    };
    assert_incremental(parse, content.as_bytes(), &Unit::Message(head));
    assert_incremental(parse, b"$\x01\x05\xdc", &Unit::Frame { content_bytes: 1500 });
    assert_incremental(parse, b"\r\n", &Unit::Blank);
    assert_incremental(parse, b"\n", &Unit::Blank);
}

#[test]
fn other_protocols_are_recognised_at_once() {
    for (input, error) in [
        ("\x16\x03\x01\x02\x00", RtspError::NotRtsp),
        ("GET / HTTP/1.1\r\n", RtspError::NotRtsp),
        ("RTSP/1.0 2000 OK\r\n", RtspError::NotRtsp),
        ("RTSP/1.0 +20 OK\r\n", RtspError::NotRtsp),
        ("SETUP  RTSP/1.0\r\n", RtspError::NotRtsp),
        ("SETUP a RTSP/1\r\n", RtspError::NotRtsp),
        ("SETUP a RTSP/1.x\r\n", RtspError::NotRtsp),
        ("SETUP a RTSP/x.0\r\n", RtspError::NotRtsp),
        ("SET{UP a RTSP/1.0\r\n", RtspError::NotRtsp),
        (" a RTSP/1.0\r\n", RtspError::NotRtsp),
        ("SETUP a\0b RTSP/1.0\r\n", RtspError::NotRtsp),
        ("RTSP/1.0 200 O\x1bK\r\n", RtspError::NotRtsp),
        ("RTSP/1.x 200 OK\r\n", RtspError::NotRtsp),
    ] {
        assert_eq!(parse(input.as_bytes()), Err(error), "{input:?}");
    }
    let long = format!("OPTIONS {}", "a".repeat(MAX_HEAD_BYTES));
    assert_eq!(parse(&long.as_bytes()[..MAX_HEAD_BYTES - 1]), Ok(Parsed::Incomplete));
    assert_eq!(parse(long.as_bytes()), Err(RtspError::TooLong));
}

#[test]
fn longest_head_is_16_kib() {
    let with_line =
        |bytes: usize| format!("OPTIONS * RTSP/1.0\r\nX: {}\r\n\r\n", "a".repeat(bytes));
    let rest_bytes = with_line(0).len();
    let longest = with_line(16_384 - rest_bytes);
    assert_eq!(message(&longest).content_bytes, 0);
    let longer = with_line(16_385 - rest_bytes);
    assert_eq!(parse(longer.as_bytes()), Err(RtspError::TooLong));
    let content = format!("{longest}{}", "a".repeat(16_384));
    assert!(matches!(parse(content.as_bytes()), Ok(Parsed::Complete { consumed: 16_384, .. })));
}

/// What cameras and players send, and their peers accept.
#[test]
fn deviations_are_read() {
    let with = |line: &str| message(&SETUP.replace("User-Agent: x", line));
    for line in [
        "Public: OPTIONS,\r\n DESCRIBE",
        "no colon",
        "Transfer-Encoding: chunked",
        ": x",
        "X: \u{e9}",
    ] {
        assert_eq!(with(line).cseq, Some(4), "{line:?}");
    }
    assert_eq!(with("CSeq: 9").cseq, Some(4), "the first of several");
    assert_eq!(message("RTSP/1.0 200 OK\r\nCSeq: 04x\r\n\r\n").cseq, Some(4));
    assert_eq!(message("RTSP/1.0 200 OK\r\nCSeq: x\r\n\r\n").cseq, None);
    for (length, bytes) in
        [("3", 3), ("3 ", 3), ("3x", 3), ("-1", 0), ("x", 0), ("", 0), ("99999999999999999999", 0)]
    {
        assert_eq!(with(&format!("Content-Length: {length}")).content_bytes, bytes, "{length:?}");
    }
    assert_eq!(
        with("Content-Length: 3\r\nContent-Length: 4").content_bytes,
        4,
        "the last of several"
    );
    assert_eq!(message("RTSP/1.0  200 OK\r\n\r\n").start, Start::Response { status: 200 });
    let spaces = Start::Request { method: "PLAY".into(), uri: "rtsp://a/b c".into() };
    assert_eq!(message("PLAY  rtsp://a/b c  RTSP/1.0 \r\n\r\n").start, spaces);
    let parameter = Start::Request { method: "GET_PARAMETER".into(), uri: "*".into() };
    assert_eq!(message("GET_PARAMETER * RTSP/2.0\r\n\r\n").start, parameter);
    for (value, want) in [("47;timeout=60", "47"), ("47 ; Timeout = 5", "47"), ("", "")] {
        let head = message(&format!("RTSP/1.0 200 OK\r\nSession: {value}\r\n\r\n"));
        assert_eq!(head.session.as_deref(), Some(want), "{value:?}");
    }
}

#[test]
fn authorization_that_fits_any_request_is_told_from_others() {
    let of = |value: &str| {
        let text = format!("SETUP a RTSP/1.0\r\nAuthorization: {value}\r\n\r\n");
        message(&text).authorization.map(|it| match it {
            Authorization::Basic(range) => text[range].to_owned(),
            Authorization::OfRequest => String::new(),
        })
    };
    assert_eq!(of("basic YTpi").as_deref(), Some("basic YTpi"));
    assert_eq!(of("Digest username=\"a\"").as_deref(), Some(""));
    // A folded value can't be repeated in one line.
    assert_eq!(of("Basic\r\n YTpi").as_deref(), Some(""));
    assert_eq!(message(SETUP).authorization, None);
}

#[test]
fn several_and_folded_transport_fields_become_one() {
    let head = SETUP.replace(
        "User-Agent: x",
        "Transport: RTP/AVP/TCP;\r\n\tinterleaved=0-1\r\nUser-Agent: x\r\nTransport:\r\n MP2T/RTP/UDP",
    );
    let transports = message(&head).transports;
    let values: Vec<_> =
        transports.iter().map(|range| TransportHeader::parse(&head[range.clone()])).collect();
    let joined = TransportHeader::join(values).to_string();
    assert_eq!(
        joined,
        "RTP/AVP/TCP;   interleaved=0-1,MP2T/RTP/UDP,RTP/AVP;unicast;client_port=5000-5001"
            .replace("   ", "  \t")
    );
    let written = with_transport(head.as_bytes(), &transports, "NEW");
    let want = "SETUP rtsp://cam.example/live/trackID=1 RTSP/1.0\r\nCSeq: 4\r\nTransport: NEW\r\nUser-Agent: x\r\n\
        Session: 47;timeout=60\r\n\r\n";
    assert_eq!(String::from_utf8(written).unwrap(), want);
    let without = b"RTSP/1.0 200 OK\r\nCSeq: 4\r\n\r\n";
    let written = with_transport(without, &[], "NEW");
    assert_eq!(written, b"RTSP/1.0 200 OK\r\nCSeq: 4\r\nTransport: NEW\r\n\r\n");
    let written = with_transport(b"RTSP/1.0 200 OK\nCSeq: 4\n\n", &[], "NEW");
    assert_eq!(written, b"RTSP/1.0 200 OK\nCSeq: 4\nTransport: NEW\r\n\n");
}

#[test]
fn only_the_transport_changes() {
    let head = message(SETUP);
    let range = head.transports[0].clone();
    let mut transport = TransportHeader::parse(&SETUP[range.clone()]);
    assert_eq!(transport.to_string(), SETUP[range.clone()]);
    let spec = transport.first_mut().unwrap();
    assert_eq!(spec.ports("client_port"), Some(PortPair { rtp: 5000, rtcp: 5001 }));
    spec.set("client_port", "6970-6971");
    spec.set("x-new", "");
    let written = with_transport(SETUP.as_bytes(), &[range], &transport.to_string());
    let want = SETUP.replace("5000-5001", "6970-6971;x-new");
    assert_eq!(String::from_utf8(written).unwrap(), want);
}
