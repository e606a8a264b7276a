//! RTSP as it passes by: the incremental contract and the caps, and a Transport field that is written
//! as it was read.
#![no_main]

use std::ops::Range;

use libfuzzer_sys::fuzz_target;
use millrace_wire::Parsed;
use millrace_wire::rtsp::{MAX_HEAD_BYTES, TransportHeader, Unit, parse, with_transport};

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
    let bytes = &input[..*consumed];
    let text = |head: &[u8], range: &Range<usize>| {
        std::str::from_utf8(&head[range.clone()]).expect("it is UTF-8").to_owned()
    };
    if let [range] = &head.transports[..] {
        let text = text(bytes, range);
        assert_eq!(with_transport(bytes, &head.transports, &text), bytes);
    }
    let fields = head.transports.iter().map(|range| TransportHeader::parse(&text(bytes, range)));
    let mut transport = TransportHeader::join(fields);
    let Some(spec) = transport.first_mut() else { return };
    spec.set("client_port", "6970-6971");
    spec.set("x-mark", "");
    assert_eq!(spec.ports("client_port").map(|it| it.to_string()).as_deref(), Some("6970-6971"));
    let written = with_transport(bytes, &head.transports, &transport.to_string());
    if written.len() > MAX_HEAD_BYTES {
        return;
    }
    let Ok(Parsed::Complete { value: Unit::Message(again), consumed }) = parse(&written) else {
        panic!("what was written is not read");
    };
    assert_eq!(consumed, written.len());
    assert_eq!(
        (again.start, again.cseq, again.session),
        (head.start.clone(), head.cseq, head.session.clone())
    );
    // What comes behind a quote that does not end belongs to the quoted text.
    if transport.to_string().contains('"') {
        return;
    }
    let [range] = &again.transports[..] else { panic!("one field remains") };
    assert_eq!(
        TransportHeader::parse(&text(&written, range)).to_string().trim(),
        transport.to_string().trim()
    );
});
