//! Session descriptions (SDP, RFC 8866): the media and how each payload type is encoded. Everything else is ignored, and
//! so are lines that are malformed.

/// Longest description that is read, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 64 << 10;
/// Media of a description.
const MAX_MEDIA: usize = 64;

/// One medium (`m=`, Section 5.14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaDescription {
    /// What it is.
    pub kind: MediaKind,
    /// Whether its packets are RTP that is not encrypted (RFC 3551, RFC 4585).
    pub is_plain_rtp: bool,
    /// Its encodings.
    pub encodings: Vec<RtpEncoding>,
}

/// What a medium is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// Audio.
    Audio,
    /// Pictures.
    Video,
    /// Anything else, such as events of a camera.
    Other,
}

/// What a payload type stands for (`a=rtpmap:`, Section 6.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpEncoding {
    /// In the RTP header.
    pub payload_type: u8,
    /// Such as `H264`, in upper case; empty where it is not said.
    pub name: String,
    /// Units of timestamps in a second; 0 where it is not said.
    pub clock_hz: u32,
}

/// Whether a text can be a description: it begins with the version (Section 5.1).
pub fn is_description(text: &[u8]) -> bool {
    text.starts_with(b"v=0")
}

/// The media of a description, the first 64.
pub fn parse(text: &[u8]) -> Vec<MediaDescription> {
    let text = &text[..text.len().min(MAX_DESCRIPTION_BYTES)];
    let mut media: Vec<MediaDescription> = Vec::new();
    for line in text.split(|byte| matches!(byte, b'\r' | b'\n')) {
        let Ok(line) = str::from_utf8(line) else { continue };
        if let Some(value) = line.strip_prefix("m=") {
            if media.len() == MAX_MEDIA {
                break;
            }
            media.push(parse_medium(value));
        } else if let Some(value) = line.strip_prefix("a=rtpmap:")
            && let Some(medium) = media.last_mut()
            && let Some(encoding) = parse_encoding(value)
        {
            medium.set(encoding);
        }
    }
    media
}

impl MediaDescription {
    /// The last line of several about a payload type counts.
    fn set(&mut self, encoding: RtpEncoding) {
        let same = |it: &&mut RtpEncoding| it.payload_type == encoding.payload_type;
        match self.encodings.iter_mut().find(same) {
            Some(known) => *known = encoding,
            None => self.encodings.push(encoding),
        }
    }
}

fn parse_medium(value: &str) -> MediaDescription {
    let mut words = value.split_ascii_whitespace();
    let kind = match words.next() {
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Other,
    };
    // Behind the port, some servers write the lower transport too.
    let profile = words.nth(1).unwrap_or_default().to_ascii_uppercase();
    let is_plain_rtp = profile
        .strip_prefix("RTP/")
        .is_some_and(|it| matches!(it.split('/').next(), Some("AVP" | "AVPF")));
    let mut medium = MediaDescription { kind, is_plain_rtp, encodings: Vec::new() };
    for payload_type in words.filter_map(|it| it.parse().ok()).filter(|it| *it < 128) {
        medium.set(static_encoding(payload_type));
    }
    medium
}

/// `96 H264/90000`, or with channels `97 MPEG4-GENERIC/48000/2`.
fn parse_encoding(value: &str) -> Option<RtpEncoding> {
    let (payload_type, encoding) = value.trim().split_once(' ')?;
    let payload_type = payload_type.parse().ok().filter(|it| *it < 128)?;
    let mut parts = encoding.trim().split('/');
    let name = parts.next()?.to_ascii_uppercase();
    let clock_hz = parts.next()?.trim().parse().ok()?;
    Some(RtpEncoding { payload_type, name, clock_hz })
}

/// What a payload type means without an attribute (RFC 3551, Tables 4 and 5).
fn static_encoding(payload_type: u8) -> RtpEncoding {
    let (name, clock_hz) = match payload_type {
        0 => ("PCMU", 8000),
        3 => ("GSM", 8000),
        8 => ("PCMA", 8000),
        9 => ("G722", 8000),
        10 | 11 => ("L16", 44_100),
        14 => ("MPA", 90_000),
        26 => ("JPEG", 90_000),
        32 => ("MPV", 90_000),
        33 => ("MP2T", 90_000),
        _ => ("", 0),
    };
    RtpEncoding { payload_type, name: name.to_owned(), clock_hz }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a camera sends it, with LF alone in the end.
    const CAMERA: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=Media\r\na=control:*\r\nt=0 0\r\n\
        m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\na=control:trackID=1\r\n\
        m=audio 0 RTP/AVP/TCP 0 97\na=rtpmap:97 mpeg4-generic/16000/1\na=control:trackID=2\n\
        m=application 0 RTP/AVP 107\na=rtpmap:107 vnd.onvif.metadata/90000\n";

    fn encoding(payload_type: u8, name: &str, clock_hz: u32) -> RtpEncoding {
        RtpEncoding { payload_type, name: name.to_owned(), clock_hz }
    }

    #[test]
    fn media_of_a_camera() {
        let medium = |kind, encodings| MediaDescription { kind, is_plain_rtp: true, encodings };
        let expected = [
            medium(MediaKind::Video, vec![encoding(96, "H264", 90_000)]),
            medium(
                MediaKind::Audio,
                vec![encoding(0, "PCMU", 8000), encoding(97, "MPEG4-GENERIC", 16_000)],
            ),
            medium(MediaKind::Other, vec![encoding(107, "VND.ONVIF.METADATA", 90_000)]),
        ];
        assert_eq!(parse(CAMERA.as_bytes()), expected);
        assert!(is_description(CAMERA.as_bytes()) && !is_description(b"{}"));
    }

    #[test]
    fn encrypted_media_and_other_protocols_are_not_plain_rtp() {
        for (profile, is_plain) in [
            ("RTP/AVP", true),
            ("RTP/AVPF", true),
            ("rtp/avp/udp", true),
            ("RTP/SAVP", false),
            ("RTP/SAVPF", false),
            ("UDP", false),
        ] {
            let media = parse(format!("v=0\nm=video 0 {profile} 96\n").as_bytes());
            assert_eq!(media[0].is_plain_rtp, is_plain, "{profile}");
        }
    }

    #[test]
    fn malformed_lines_are_ignored() {
        let text = "v=0\na=rtpmap:96 H264/90000\nm=video\nm=video 0 RTP/AVP 96 x 300\n\
            a=rtpmap:96\na=rtpmap:x H264/90000\na=rtpmap:97 H264\na=rtpmap:98 H264/x\na=rtpmap:200 H264/90000\n";
        let media = parse(text.as_bytes());
        assert_eq!(media.len(), 2);
        assert_eq!(media[0].encodings, []);
        assert_eq!(media[1].encodings, [encoding(96, "", 0)]);
        let many = "m=video 0 RTP/AVP 96\n".repeat(100);
        assert_eq!(parse(many.as_bytes()).len(), MAX_MEDIA);
    }

    #[test]
    fn payload_types_have_seven_bits() {
        let text = "m=video 0 RTP/AVP 127 128\na=rtpmap:127 H264/90000\na=rtpmap:128 H265/90000\n";
        assert_eq!(parse(text.as_bytes())[0].encodings, [encoding(127, "H264", 90_000)]);
    }

    /// RFC 3551, Tables 4 and 5.
    #[test]
    fn static_payload_types_need_no_attribute() {
        let media = "m=audio 0 RTP/AVP 0 3 8 9 10 11 14 26 32 33\n";
        let attributes = [
            "0 PCMU/8000",
            "3 GSM/8000",
            "8 PCMA/8000",
            "9 G722/8000",
            "10 L16/44100/2",
            "11 L16/44100",
            "14 MPA/90000",
            "26 JPEG/90000",
            "32 MPV/90000",
            "33 MP2T/90000",
        ];
        let lines: String = attributes.iter().map(|it| format!("a=rtpmap:{it}\n")).collect();
        assert_eq!(parse(media.as_bytes()), parse(format!("{media}{lines}").as_bytes()));
    }

    #[test]
    fn longest_description_is_64_kib() {
        let after = |bytes: usize| {
            let text = format!("v=0\ns={}\nm=video 0 RTP/AVP 96\n", "a".repeat(bytes));
            parse(text.as_bytes()).len()
        };
        assert_eq!((after(65_000), after(65_536)), (1, 0));
    }

    proptest! {
        #[test]
        fn any_text_gives_a_bounded_description(
            lines in proptest::collection::vec("(m=(audio|video|x) [0-9]{1,3} RTP/AVP|a=rtpmap:|\\PC)( ?\\PC){0,20}", 0..12),
        ) {
            let media = parse(lines.join("\r\n").as_bytes());
            prop_assert!(media.len() <= MAX_MEDIA);
            for medium in media {
                prop_assert!(medium.encodings.len() <= 128);
                prop_assert!(medium.encodings.iter().all(|it| it.payload_type < 128));
            }
        }
    }
}
