use super::*;
use crate::test_support::assert_incremental;

const SETUP: &str = "SETUP rtsp://cam.example/live/trackID=1 RTSP/1.0\r\nCSeq: 4\r\n\
    User-Agent: x\r\ntransport :  RTP/AVP;unicast;client_port=5000-5001 \r\nSession: 47;timeout=60\r\n\r\n";

fn message(text: &str) -> Head {
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
    let head = Head {
        start: Start::Request {
            method: "SETUP".into(),
            uri: "rtsp://cam.example/live/trackID=1".into(),
        },
        cseq: Some(4),
        session: Some("47".into()),
        transport: Some(begin..begin + value.len()),
        content_bytes: 0,
    };
    assert_incremental(parse, SETUP.as_bytes(), &Unit::Message(head));
    let content = "RTSP/1.0 200 OK\nCSeq:7\nContent-Length: 300\n\n";
    let head = Head {
        start: Start::Response { status: 200 },
        cseq: Some(7),
        session: None,
        transport: None,
        content_bytes: 300,
    };
    assert_incremental(parse, content.as_bytes(), &Unit::Message(head));
    assert_incremental(parse, b"$\x01\x05\xdc", &Unit::Frame { content_bytes: 1500 });
    assert_incremental(parse, b"\r\n", &Unit::Blank);
    assert_incremental(parse, b"\n", &Unit::Blank);
}

#[test]
fn what_is_not_rtsp_is_known_at_once() {
    for (input, error) in [
        ("\x16\x03\x01\x02\x00", Error::NotRtsp),
        ("GET / HTTP/1.1\r\n", Error::NotRtsp),
        ("RTSP/1.0 2000 OK\r\n", Error::NotRtsp),
        ("RTSP/1.0 +20 OK\r\n", Error::NotRtsp),
        ("SETUP  RTSP/1.0\r\n", Error::NotRtsp),
        ("SETUP a RTSP/1.0 \r\n", Error::NotRtsp),
        ("OPTIONS * RTSP/1.0\r\nno colon\r\n", Error::NotRtsp),
        ("OPTIONS * RTSP/1.0\r\nA: b\r\n c\r\n", Error::Opaque),
        ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nCSeq: 2\r\n", Error::Opaque),
        ("OPTIONS * RTSP/1.0\r\nContent-Length: -1\r\n", Error::Opaque),
        ("OPTIONS * RTSP/1.0\r\nTransfer-Encoding: chunked\r\n", Error::Opaque),
    ] {
        assert_eq!(parse(input.as_bytes()), Err(error), "{input:?}");
    }
    let long = format!("OPTIONS {}", "a".repeat(MAX_HEAD_BYTES));
    assert_eq!(parse(&long.as_bytes()[..MAX_HEAD_BYTES - 1]), Ok(Parsed::Incomplete));
    assert_eq!(parse(long.as_bytes()), Err(Error::TooLong));
}

#[test]
fn of_two_transport_fields_neither_is_taken() {
    let twice = SETUP.replace("User-Agent: x", "Transport: RTP/AVP/TCP;interleaved=0-1");
    assert_eq!(message(&twice).transport, None);
}

#[test]
fn only_what_is_changed_changes() {
    let head = message(SETUP);
    let range = head.transport.unwrap();
    let mut transport = Transport::parse(&SETUP[range.clone()]);
    assert_eq!(transport.to_string(), SETUP[range.clone()]);
    let way = transport.unicast_udp().unwrap();
    assert_eq!(way.ports("client_port"), Some(PortPair { rtp: 5000, rtcp: 5001 }));
    way.set("client_port", "6970-6971");
    way.set("x-new", "");
    let written = with_transport(SETUP.as_bytes(), range, &transport.to_string());
    let want = SETUP.replace("5000-5001", "6970-6971;x-new");
    assert_eq!(String::from_utf8(written).unwrap(), want);
}

#[test]
fn parameters() {
    let value = "RTP/AVP/UDP; Unicast ;mode=\"PLAY,a;b\";DESTINATION = 198.18.0.9;";
    let mut transport = Transport::parse(value);
    assert_eq!(transport.to_string(), value);
    let way = transport.chosen_udp().unwrap();
    assert_eq!((way.get("unicast"), way.get("destination")), (Some(""), Some("198.18.0.9")));
    assert_eq!(way.get("mode"), Some("\"PLAY,a;b\""));
    way.remove("destination");
    way.set("source", "198.18.0.1");
    way.set("MODE", "PLAY");
    assert_eq!(transport.to_string(), "RTP/AVP/UDP; Unicast ;MODE=PLAY;source=198.18.0.1;");
}

#[test]
fn ways_that_are_udp_to_one_receiver() {
    for (value, is) in [
        ("RTP/AVP;unicast;client_port=1-2", true),
        ("rtp/avpf/udp;unicast", true),
        ("RTP/SAVP", true),
        ("RTP/AVP/TCP;unicast;interleaved=0-1", false),
        ("RTP/AVP;interleaved=0-1", false),
        ("RTP/AVP;multicast;port=1-2", false),
        ("RAW/RAW/UDP;unicast", false),
        ("", false),
        ("RTP/AVP;unicast;mode=\"PLAY", false),
        ("RTP/AVP/TCP,RTP/AVP;unicast", true),
        ("RTP/AVP;unicast,RTP/AVPF;unicast", false),
    ] {
        assert_eq!(Transport::parse(value).unicast_udp().is_some(), is, "{value}");
    }
    assert!(Transport::parse("RTP/AVP/TCP,RTP/AVP").chosen_udp().is_none());
}

#[test]
fn port_pairs() {
    let pair = |rtp, rtcp| Some(PortPair { rtp, rtcp });
    for (text, want) in [
        ("5000-5001", pair(5000, 5001)),
        (" 5000 - 5003 ", pair(5000, 5003)),
        ("5000", pair(5000, 5001)),
        ("65535", None),
        ("5000-5000", None),
        ("0-1", None),
        ("5000-", None),
        ("+5000-5001", None),
        ("5000-65536", None),
    ] {
        assert_eq!(PortPair::parse(text), want, "{text:?}");
    }
}
