//! RTSP as it passes by: the incremental contract and the caps, and a Transport field that is written
//! as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::Parsed;
use millrace_wire::rtsp::{MAX_HEAD_BYTES, Transport, Unit, parse, with_transport};

fuzz_target!(|input: &[u8]| {
    let parsed = parse(input);
    let Ok(parsed) = parsed else { return };
    let Parsed::Complete { value, consumed } = &parsed else {
        return assert!(input.len() < MAX_HEAD_BYTES);
    };
    assert!((1..=input.len().min(MAX_HEAD_BYTES)).contains(consumed));
    assert_eq!(parse(&input[..*consumed]).as_ref(), Ok(&parsed));
    assert_eq!(parse(&input[..consumed - 1]), Ok(Parsed::Incomplete));
    assert_eq!(parse(&input[..consumed / 2]), Ok(Parsed::Incomplete));
    let Unit::Message(head) = value else { return };
    let Some(range) = head.transport.clone() else { return };
    let bytes = &input[..*consumed];
    let text = std::str::from_utf8(&bytes[range.clone()]).expect("it is UTF-8");
    let mut transport = Transport::parse(text);
    assert_eq!(transport.to_string(), text);
    assert_eq!(with_transport(bytes, range.clone(), text), bytes);
    let Some(way) = transport.unicast_udp() else { return };
    way.set("client_port", "6970-6971");
    way.set("x-mark", "");
    assert_eq!(way.ports("client_port").map(|it| it.to_string()).as_deref(), Some("6970-6971"));
    let written = with_transport(bytes, range, &transport.to_string());
    if written.len() > MAX_HEAD_BYTES {
        return;
    }
    let Ok(Parsed::Complete { value: Unit::Message(again), consumed }) = parse(&written) else {
        panic!("what was written is not read");
    };
    assert_eq!(consumed, written.len());
    assert_eq!((again.start, again.cseq, again.session), (head.start.clone(), head.cseq, head.session.clone()));
    let way = Transport::parse(std::str::from_utf8(&written[again.transport.unwrap()]).unwrap());
    assert_eq!(way, transport);
});
