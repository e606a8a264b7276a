use proptest::prelude::*;

use super::*;

const PACKET: [u8; 16] =
    [0x80, 0xe0, 0x12, 0x34, 0, 1, 2, 3, 0xde, 0xad, 0xbe, 0xef, 0x65, 1, 2, 3];

#[test]
fn fields_of_a_plain_packet() {
    let header = RtpHeader {
        marker: true,
        payload_type: 96,
        sequence: 0x1234,
        timestamp: 0x0001_0203,
        ssrc: 0xdead_beef,
        payload: 12..16,
    };
    assert_eq!(parse(&PACKET), Some(header));
    assert_eq!(&PACKET[SEQUENCE], [0x12, 0x34]);
}

#[test]
fn sources_extension_and_padding_are_no_payload() {
    let mut packet = PACKET.to_vec();
    packet[0] = 0x80 | 0x20 | 0x10 | 2;
    // Two sources, an extension of one word, four bytes of payload, three of padding.
    packet.splice(12..12, [[1; 4], [2; 4], [0xbe, 0xde, 0, 1], [9; 4]].concat());
    packet.extend([0, 0, 3]);
    assert_eq!(parse(&packet).map(|it| it.payload), Some(28..32));
}

#[test]
fn what_is_no_rtp_is_none() {
    assert_eq!(parse(&PACKET[..11]), None, "too short");
    let with_first = |first: u8| [&[first], &PACKET[1..]].concat();
    assert_eq!(parse(&with_first(0x40)), None, "version 1");
    assert_eq!(parse(&with_first(0x8f)), None, "more sources than bytes");
    assert_eq!(parse(&with_first(0xa0)).map(|it| it.payload), Some(12..13), "padding of 3 bytes");
    let padded = [&with_first(0xa0)[..], &[200]].concat();
    assert_eq!(parse(&padded), None, "more padding than bytes");
    for packet_type in [192, 200, 204, 223] {
        let mut report = PACKET;
        report[1] = packet_type;
        assert!(is_rtcp(&report) && parse(&report).is_none(), "RTCP {packet_type}");
    }
    assert!(!is_rtcp(&PACKET) && !is_rtcp(&[0x80]));
}

proptest! {
    #[test]
    fn the_payload_is_in_the_packet(packet in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Some(header) = parse(&packet) {
            let payload = &packet[header.payload];
            h264(payload);
            h265(payload);
        }
    }
}
