//! How the packets of a session can be dropped, by its description.

use millrace_wire::rtp::{PictureKind, h264, h265};
use millrace_wire::sdp::{MediaDescription, MediaKind, RtpEncoding};

/// What of an encoding matters for the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// RFC 6184.
    H264,
    /// RFC 7798.
    H265,
    /// Each frame stands alone: JPEG (RFC 2435), and audio.
    Independent,
}

/// A medium whose frames can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DroppableMedium {
    pub(super) coding: Coding,
    pub(super) clock_hz: u32,
    pub(super) is_video: bool,
}

/// What each payload type of a session is; empty where frames can't be told or can't be dropped.
#[derive(Debug, Default)]
pub(super) struct PayloadTypes(Vec<(u8, DroppableMedium)>);

impl Coding {
    /// Whether a decoder can begin with the picture of a packet.
    pub(super) fn kind(self, payload: &[u8]) -> PictureKind {
        match self {
            Self::H264 => h264(payload),
            Self::H265 => h265(payload),
            Self::Independent => PictureKind::Key,
        }
    }
}

impl PayloadTypes {
    /// Of a session. A video that can't be read, such as MPEG-TS or an encrypted one, would hold up the others in the
    /// connection: nothing of such a session is dropped. Audio that can't be read, and events, are just passed on.
    pub(super) fn of(media: &[MediaDescription]) -> Self {
        let mut types = Self::default();
        for medium in media {
            for encoding in &medium.encodings {
                let known = droppable(medium, encoding);
                if known.is_none() && medium.kind == MediaKind::Video {
                    return Self::default();
                }
                let Some(known) = known else { continue };
                match types.get(encoding.payload_type) {
                    // The same number for different encodings says nothing.
                    Some(other) if other != known => return Self::default(),
                    Some(_) => {}
                    None => types.0.push((encoding.payload_type, known)),
                }
            }
        }
        types
    }

    pub(super) fn get(&self, payload_type: u8) -> Option<DroppableMedium> {
        self.0.iter().find(|it| it.0 == payload_type).map(|it| it.1)
    }
}

fn droppable(medium: &MediaDescription, encoding: &RtpEncoding) -> Option<DroppableMedium> {
    let clock_hz = encoding.clock_hz;
    let coding = match (medium.kind, encoding.name.as_str()) {
        (MediaKind::Video, "H264") => Coding::H264,
        (MediaKind::Video, "H265") => Coding::H265,
        (MediaKind::Video, "JPEG") | (MediaKind::Audio, _) => Coding::Independent,
        _ => return None,
    };
    let is_video = medium.kind == MediaKind::Video;
    (medium.is_plain_rtp && clock_hz > 0).then_some(DroppableMedium { coding, clock_hz, is_video })
}

#[cfg(test)]
mod tests {
    use millrace_wire::sdp;

    use super::*;

    fn of(media: &str) -> PayloadTypes {
        PayloadTypes::of(&sdp::parse(format!("v=0\n{media}").as_bytes()))
    }

    #[test]
    fn video_and_audio_of_a_camera() {
        let types = of("m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\nm=audio 0 RTP/AVP 0\n\
            m=application 0 RTP/AVP 107\na=rtpmap:107 vnd.onvif.metadata/90000\n");
        let video = DroppableMedium { coding: Coding::H264, clock_hz: 90_000, is_video: true };
        let audio =
            DroppableMedium { coding: Coding::Independent, clock_hz: 8000, is_video: false };
        assert_eq!(types.get(96), Some(video));
        assert_eq!(types.get(0), Some(audio));
        assert_eq!(types.get(107), None);
        assert_eq!(
            of("m=video 0 RTP/AVP 26\n").get(26).map(|it| it.coding),
            Some(Coding::Independent)
        );
    }

    #[test]
    fn a_video_that_can_not_be_read_keeps_all_from_being_dropped() {
        for video in [
            "m=video 0 RTP/AVP 33\n",
            "m=video 0 RTP/SAVP 97\na=rtpmap:97 H264/90000\n",
            "m=video 0 RTP/AVP 97\na=rtpmap:97 MP4V-ES/90000\n",
            "m=video 0 RTP/AVP 97\na=rtpmap:97 H264/0\n",
            "m=video 0 RTP/AVP 97\n",
        ] {
            let types = of(&format!("m=audio 0 RTP/AVP 0\n{video}"));
            assert_eq!(types.get(0), None, "{video}");
        }
    }

    #[test]
    fn one_payload_type_of_two_encodings_says_nothing() {
        let types = of("m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\n\
            m=audio 0 RTP/AVP 96\na=rtpmap:96 OPUS/48000\n");
        assert_eq!(types.get(96), None);
        let twice = of("m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\n\
            m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\n");
        assert!(twice.get(96).is_some());
    }
}
