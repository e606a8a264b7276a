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

/// What a packet is made of.
#[derive(Debug, Clone)]
struct Parts {
    marker: bool,
    /// Not one of RTCP with the marker.
    payload_type: u8,
    sequence: u16,
    timestamp: u32,
    ssrc: u32,
    sources: Vec<[u8; 4]>,
    extension: Option<Vec<[u8; 4]>>,
    payload: Vec<u8>,
    padding_bytes: u8,
}

impl Parts {
    /// As in RFC 3550, Sections 5.1 and 5.3.1.
    fn to_packet(&self) -> Vec<u8> {
        let bit = |is_set: bool, at: u8| u8::from(is_set) << at;
        let first = 2 << 6
            | bit(self.padding_bytes > 0, 5)
            | bit(self.extension.is_some(), 4)
            | self.sources.len() as u8;
        let mut packet = vec![first, bit(self.marker, 7) | self.payload_type];
        packet.extend(self.sequence.to_be_bytes());
        packet.extend(self.timestamp.to_be_bytes());
        packet.extend(self.ssrc.to_be_bytes());
        packet.extend(self.sources.concat());
        if let Some(words) = &self.extension {
            packet.extend([0xbe, 0xde, 0, words.len() as u8]);
            packet.extend(words.concat());
        }
        packet.extend(&self.payload);
        if let Some(zeros) = self.padding_bytes.checked_sub(1) {
            packet.extend(vec![0; zeros.into()]);
            packet.push(self.padding_bytes);
        }
        packet
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let words = |most: usize| proptest::collection::vec(any::<[u8; 4]>(), 0..=most);
    let payload = proptest::collection::vec(any::<u8>(), 0..40);
    let payload_type = prop_oneof![0..64_u8, 96..128_u8];
    (
        any::<(bool, u16, u32, u32, u8)>(),
        payload_type,
        words(15),
        proptest::option::of(words(4)),
        payload,
    )
        .prop_map(
            |(
                (marker, sequence, timestamp, ssrc, padding_bytes),
                payload_type,
                sources,
                extension,
                payload,
            )| Parts {
                marker,
                payload_type,
                sequence,
                timestamp,
                ssrc,
                sources,
                extension,
                payload,
                padding_bytes,
            },
        )
}

#[test]
fn sources_extension_and_padding_are_no_payload() {
    let mut packet = PACKET.to_vec();
    packet[0] = 0x80 | 0x20 | 0x10 | 2;
    // Two sources, an extension of one word, four bytes of payload, three of padding.
    packet.splice(12..12, [[1; 4], [2; 4], [0xbe, 0xde, 0, 1], [9; 4]].concat());
    packet.extend([0, 0, 3]);
    assert_eq!(parse(&packet).map(|it| it.payload), Some(28..32));
    let mut packet = [&PACKET[..12], &[0xbe, 0xde, 0, 2], &[9; 9]].concat();
    packet[0] = 0x90;
    assert_eq!(parse(&packet).map(|it| it.payload), Some(24..25), "an extension of two words");
    packet.truncate(23);
    assert_eq!(parse(&packet), None, "half an extension");
}

#[test]
fn packet_in_the_middle_of_a_frame_has_no_marker() {
    let mut packet = PACKET;
    packet[1] = 0x60;
    assert!(!parse(&packet).unwrap().marker);
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
    fn packets_are_read_back(parts in parts()) {
        let packet = parts.to_packet();
        let header = parse(&packet).unwrap();
        prop_assert_eq!(
            (header.marker, header.payload_type, header.sequence, header.timestamp, header.ssrc),
            (parts.marker, parts.payload_type, parts.sequence, parts.timestamp, parts.ssrc)
        );
        prop_assert_eq!(&packet[header.payload], &parts.payload[..]);
    }

    #[test]
    fn the_payload_is_in_the_packet(packet in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Some(header) = parse(&packet) {
            let payload = &packet[header.payload];
            h264(payload);
            h265(payload);
        }
    }
}
