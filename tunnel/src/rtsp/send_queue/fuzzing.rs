//! The checks of the fuzz target `send_queue`: a [`SendQueue`] between an origin that sends media in the RTSP connection and
//! a player that takes them as the input has it.

use std::collections::BTreeMap;

use super::*;
use crate::fuzz_choices::FuzzChoices;

/// Longest schedule.
const MAX_OPERATIONS: usize = 400;
/// Most that an origin sends before the last operation.
const MAX_SENT_BYTES: usize = 512 << 10;
/// Frames that one choice sends.
const MAX_RUN_FRAMES: u8 = 50;
/// Frames of a group of pictures: one second.
const GROUP_FRAMES: u32 = 25;
const FRAME_INTERVAL: Duration = Duration::from_millis(40);
/// Units of the clock in [`FRAME_INTERVAL`].
const FRAME_UNITS: u32 = 3600;
const VIDEO_CHANNEL: u8 = 0;
const AUDIO_CHANNEL: u8 = 2;
/// Units of the clock in a packet of audio: 20 ms.
const AUDIO_UNITS: u32 = 160;
/// NAL units of H.264 (ITU-T H.264, Table 7-1): a picture at which a decoder can begin, another one, and a delimiter.
const SLICES: [u8; 3] = [0x65, 0x41, 0x09];
/// What the origin describes: H.264 with sound, JPEG, a video that can't be dropped, and nothing.
const DESCRIPTIONS: [&str; 4] = [
    "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\nm=audio 0 RTP/AVP 0\r\n",
    "m=video 0 RTP/AVP 96\r\na=rtpmap:96 JPEG/90000\r\n",
    "m=video 0 RTP/AVP 96\r\na=rtpmap:96 MP2T/90000\r\nm=audio 0 RTP/AVP 0\r\n",
    "",
];
/// The description after which pictures refer to earlier ones.
const H264: usize = 0;
/// The last description whose video can be dropped.
const JPEG: usize = 1;

/// What the origin sent, in units that are sent or dropped whole.
struct OriginUnit {
    bytes: Vec<u8>,
    /// Of a packet with media: its channel, and the number of its frame in the channel.
    frame: Option<(u8, usize)>,
}

/// A frame as the origin sent it.
#[derive(Default)]
struct OriginFrame {
    packets: usize,
    /// By the first packet that has a slice.
    is_key: Option<bool>,
    /// Packets that the player got.
    received: usize,
}

/// The media of one channel at the origin.
struct OriginChannel {
    sequence: u16,
    timestamp: u32,
    frames: Vec<OriginFrame>,
}

impl OriginChannel {
    /// Sequence numbers wrap around early.
    fn new() -> Self {
        Self { sequence: u16::MAX - 20, timestamp: 0, frames: Vec::new() }
    }
}

/// An origin, the queue, and a player.
struct QueueModel {
    queue: SendQueue,
    now: Instant,
    description: usize,
    /// The origin's writes have at most so many bytes.
    piece_bytes: usize,
    units: Vec<OriginUnit>,
    channels: BTreeMap<u8, OriginChannel>,
    sent_bytes: usize,
    /// The origin has sent bytes whose units are not known.
    has_other_bytes: bool,
    output: Vec<u8>,
    dropped_frames: u64,
}

/// Units keep their order, only whole frames are dropped, and what remains can be decoded.
///
/// The first bytes of the input choose the description, the time in the queue and the size of the origin's writes. The
/// rest is a schedule.
pub fn relay(input: &[u8]) {
    let mut choices = FuzzChoices(input);
    let Some(mut model) = QueueModel::start(&mut choices) else { return };
    for _ in 0..MAX_OPERATIONS {
        if model.step(&mut choices).is_none() {
            break;
        }
        model.check();
    }
    model.finish();
}

impl QueueModel {
    fn start(choices: &mut FuzzChoices<'_>) -> Option<Self> {
        let description = usize::from(choices.byte()?) % DESCRIPTIONS.len();
        let max_time = Duration::from_millis(10) * (1 + u32::from(choices.byte()?));
        let piece_bytes = match choices.byte()? {
            0 => usize::MAX,
            bytes => bytes.into(),
        };
        let mut model = Self {
            queue: SendQueue::new(max_time),
            now: Instant::now(),
            description,
            piece_bytes,
            units: Vec::new(),
            channels: BTreeMap::new(),
            sent_bytes: 0,
            has_other_bytes: false,
            output: Vec::new(),
            dropped_frames: 0,
        };
        let content = format!("v=0\r\n{}", DESCRIPTIONS[description]);
        model.answer(&content);
        Some(model)
    }

    fn step(&mut self, choices: &mut FuzzChoices<'_>) -> Option<()> {
        if self.sent_bytes > MAX_SENT_BYTES {
            return None;
        }
        match choices.byte()? {
            operation @ 0..=95 => {
                let (frames, taken) = (choices.byte()? % MAX_RUN_FRAMES, choices.byte()?);
                for _ in 0..frames {
                    self.picture(1 + usize::from(operation % 4), 8 * usize::from(operation));
                    self.take(16 * usize::from(taken));
                    // The last is a burst.
                    self.now += if operation < 80 { FRAME_INTERVAL } else { Duration::ZERO };
                }
            }
            operation @ 96..=127 => {
                let slice = SLICES[usize::from(choices.byte()?) % SLICES.len()];
                self.video(operation & 1 == 0, slice, usize::from(operation));
            }
            128..=143 => self.audio(),
            144..=151 => self.report(),
            152..=155 => self.answer(""),
            156..=159 => {
                let length = choices.byte()?.into();
                let bytes = choices.bytes(length).to_vec();
                self.has_other_bytes = true;
                self.send(bytes, None);
            }
            160..=191 => self.now += Duration::from_millis(10) * u32::from(choices.byte()?),
            192..=239 => self.take(choices.short()?.into()),
            _ => {
                let room = choices.short()?.into();
                let may_read = self.queue.room_bytes(room, self.now);
                assert!(may_read == usize::MAX || may_read <= room);
            }
        }
        Some(())
    }

    /// A picture of some packets, with a delimiter before them; each second one at which a decoder can begin.
    fn picture(&mut self, packets: usize, bytes: usize) {
        let number = self.channels.get(&VIDEO_CHANNEL).map_or(0, |it| it.timestamp / FRAME_UNITS);
        let slice = SLICES[usize::from(!number.is_multiple_of(GROUP_FRAMES))];
        self.video(true, SLICES[2], 0);
        for _ in 0..packets {
            self.video(false, slice, bytes);
        }
    }

    fn video(&mut self, is_new_frame: bool, slice: u8, bytes: usize) {
        let is_key = match slice {
            0x65 => Some(true),
            0x41 => Some(false),
            _ => None,
        };
        self.packet(VIDEO_CHANNEL, 96, is_new_frame.then_some(FRAME_UNITS), is_key, slice, bytes);
    }

    fn audio(&mut self) {
        self.packet(AUDIO_CHANNEL, 0, Some(AUDIO_UNITS), Some(true), 0, 160);
    }

    /// A packet of the newest frame, or of one that begins so many units of the clock later.
    fn packet(
        &mut self,
        channel: u8,
        payload_type: u8,
        begins_after: Option<u32>,
        is_key: Option<bool>,
        first_byte: u8,
        bytes: usize,
    ) {
        let serial = self.units.len() as u32;
        let media = self.channels.entry(channel).or_insert_with(OriginChannel::new);
        media.sequence = media.sequence.wrapping_add(1);
        if let Some(units) = begins_after {
            media.timestamp = media.timestamp.wrapping_add(units);
        }
        if begins_after.is_some() || media.frames.is_empty() {
            media.frames.push(OriginFrame::default());
        }
        let index = media.frames.len() - 1;
        let frame = &mut media.frames[index];
        frame.packets += 1;
        frame.is_key = frame.is_key.or(is_key);
        let mut packet = vec![0x80, payload_type];
        packet.extend(media.sequence.to_be_bytes());
        packet.extend(media.timestamp.to_be_bytes());
        packet.extend([0, 0, 0, 1, first_byte]);
        // No two packets are the same.
        packet.extend(serial.to_be_bytes());
        packet.resize(packet.len() + bytes, 7);
        self.send(interleaved(channel, &packet), Some((channel, index)));
    }

    /// RTCP, which is never dropped.
    fn report(&mut self) {
        self.send(interleaved(VIDEO_CHANNEL + 1, &[0x80, 200, 0, 1, 0, 0, 0, 1]), None);
    }

    fn answer(&mut self, content: &str) {
        let (number, length) = (self.units.len(), content.len());
        let head = format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\nContent-Length: {length}\r\n\r\n");
        self.send((head + content).into_bytes(), None);
    }

    fn send(&mut self, bytes: Vec<u8>, frame: Option<(u8, usize)>) {
        self.sent_bytes += bytes.len();
        for piece in bytes.chunks(self.piece_bytes.min(bytes.len().max(1))) {
            self.queue.push(piece, self.now);
        }
        self.units.push(OriginUnit { bytes, frame });
    }

    /// The stream takes at most so many bytes.
    fn take(&mut self, most: usize) {
        let mut out = vec![0; most.min(self.queue.parts.bytes - self.queue.parts.sent_bytes)];
        let length = self.queue.copy_to(&mut out);
        assert!(length == 0 || self.queue.has_output());
        self.output.extend(&out[..length]);
        self.queue.advance(length, self.now);
    }

    fn check(&mut self) {
        let queue = &self.queue;
        assert_eq!(
            queue.parts.bytes,
            queue.parts.parts.iter().map(|part| part.bytes.len()).sum::<usize>()
        );
        let first_bytes = queue.parts.parts.front().map_or(1, |part| part.bytes.len());
        assert!(queue.parts.sent_bytes < first_bytes);
        let has_dropped =
            queue.parts.parts.iter().any(|part| parts::is_dropped(&queue.media, part));
        assert!(!has_dropped, "a dropped frame is in the queue");
        assert!(self.has_other_bytes || queue.parts.parts.len() <= 2 * self.units.len());
        let report = self.queue.take_report();
        self.dropped_frames += report.dropped_video + report.dropped_audio;
        // Other bytes may have a description of their own.
        if !self.has_other_bytes {
            assert!(report.dropped_audio == 0 || self.description == H264);
            assert!(report.dropped_video == 0 || self.description <= JPEG);
        }
    }

    fn finish(mut self) {
        self.queue.end();
        self.take(usize::MAX);
        self.check();
        assert!(self.queue.is_empty(), "what remains can't be sent");
        if self.dropped_frames == 0 {
            let sent: Vec<u8> = self.units.iter().flat_map(|unit| unit.bytes.clone()).collect();
            assert!(self.output == sent, "nothing was dropped");
        } else if !self.has_other_bytes {
            self.compare();
        }
    }

    /// Finds each unit in the output. Packets of media may be missing, and have other sequence numbers then.
    fn compare(&mut self) {
        let mut output = &self.output[..];
        let mut sequences: BTreeMap<u8, u16> = BTreeMap::new();
        for unit in &self.units {
            let begin = output.get(..unit.bytes.len());
            let Some((channel, index)) = unit.frame else {
                assert!(begin == Some(&unit.bytes[..]), "a message or a report is missing");
                output = &output[unit.bytes.len()..];
                continue;
            };
            let Some(begin) =
                begin.filter(|it| without_sequence(it) == without_sequence(&unit.bytes))
            else {
                continue;
            };
            output = &output[unit.bytes.len()..];
            if let Some(media) = self.channels.get_mut(&channel) {
                media.frames[index].received += 1;
            }
            let sequence = u16::from_be_bytes([begin[6], begin[7]]);
            let before = sequences.insert(channel, sequence);
            assert!(before.is_none_or(|it| it.wrapping_add(1) == sequence), "a gap at the player");
        }
        assert!(output.is_empty(), "the player got what was not sent");
        let mut dropped = 0;
        for (channel, media) in &self.channels {
            let needs_key = *channel == VIDEO_CHANNEL && self.description == H264;
            let mut is_broken = false;
            for frame in &media.frames {
                let (received, is_key) = (frame.received, frame.is_key == Some(true));
                assert!([0, frame.packets].contains(&received), "{received} of {}", frame.packets);
                dropped += u64::from(received == 0);
                is_broken = received == 0 || is_broken && !is_key;
                assert!(received == 0 || !needs_key || !is_broken, "a frame without its reference");
            }
        }
        assert_eq!(dropped, self.dropped_frames);
    }
}

/// A packet in the connection (RFC 2326, Section 10.12).
fn interleaved(channel: u8, packet: &[u8]) -> Vec<u8> {
    let length = (packet.len() as u16).to_be_bytes();
    [&[b'$', channel], &length[..], packet].concat()
}

/// An interleaved packet but for the sequence number of RTP.
fn without_sequence(packet: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
    (packet.get(..6), packet.get(8..))
}
