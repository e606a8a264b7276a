//! Media in an RTSP connection (RTP interleaved, RFC 2326, Section 10.12) that wait for the tunnel, at the server.
//!
//! A live source can't wait: live555 stops a stream when its connection takes nothing for 500 ms. The queue therefore
//! takes all that the origin sends, and when frames have waited for longer than the configured time it drops whole
//! frames: the oldest, and those that refer to them up to the next key frame. RTSP messages, RTCP and packets that can't be
//! read are never dropped, and the order stays.
//!
//! That holds for a source in real time only ([`MediaPace`](pace::MediaPace)). A faster one, such as a recording that is
//! downloaded (ONVIF replay), is read no faster than the tunnel takes it, and nothing of it is dropped.
//!
//! | [`Intake`] | taken | dropped | next |
//! |---|---|---|---|
//! | `Unread` | what the stream takes | no | `Observed` with the first packet of a medium that can be dropped |
//! | `Observed` | all | no | `RealTime`; `Limited` if it is faster, or held for too long |
//! | `RealTime` | all | yes | `Observed` after a break or when it becomes faster |
//! | `Limited` | what the stream takes | no | `Observed` after a while |

mod coding;
mod frames;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod pace;
mod splitter;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_wire::{rtp, sdp};

use crate::flow_info::QueueSeen;

use coding::PayloadTypes;
use frames::QueuedMedium;
use pace::{OBSERVATION_TIME, PaceVerdict};
use splitter::{INTERLEAVED_HEAD_BYTES, Splitter, StreamPart};

/// Most that a queue takes, with [`PART_COST_BYTES`] for each part: two seconds of 125 Mbit/s in packets of 1,200 bytes.
const MAX_HELD_BYTES: usize = 32 << 20;
/// What a part takes beside its bytes: its place in the queue and its allocation.
const PART_COST_BYTES: usize = 80;
/// What is never dropped is joined up to this size: then [`PART_COST_BYTES`] is less than a hundredth of it.
const MAX_JOINED_BYTES: usize = 16 << 10;
/// How much longer than the configured time frames of a source may wait whose pace is not known: it was in real time, had
/// a break, and is observed again.
const MAX_OBSERVATION_DELAY: Duration = OBSERVATION_TIME.saturating_mul(2);
/// Between two looks for what has waited for too long, as each may walk over all parts: what an audio packet has with most
/// cameras.
const DROP_INTERVAL: Duration = Duration::from_millis(20);
/// When a source that was too fast is observed again: its burst may be over.
const LIMITED_RETRY_TIME: Duration = Duration::from_secs(5);

/// What goes to a player and has not been sent.
#[derive(Debug)]
pub(crate) struct SendQueue {
    max_time: Duration,
    splitter: Splitter,
    payload_types: PayloadTypes,
    media: Vec<QueuedMedium>,
    parts: VecDeque<QueuedPart>,
    /// Of all parts.
    bytes: usize,
    /// Of the first part.
    sent_bytes: usize,
    intake: Intake,
    /// When it was last looked for what has waited for too long.
    last_check: Option<Instant>,
    report: QueueReport,
    dropped_frames: u64,
}

#[derive(Debug)]
struct QueuedPart {
    bytes: Vec<u8>,
    /// Of a packet that can be dropped: the index of its medium, and the number of its frame.
    frame: Option<(usize, u64)>,
}

impl QueuedPart {
    /// Whether more that is never dropped can be joined to it.
    fn has_room_for(&self, bytes: &[u8]) -> bool {
        self.frame.is_none() && self.bytes.len() + bytes.len() <= MAX_JOINED_BYTES
    }
}

/// What is taken from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intake {
    /// As much as the stream takes: nothing is known that can be dropped.
    Unread,
    /// All, while the source's pace is observed.
    Observed,
    /// All: the source is in real time.
    RealTime,
    /// As much as the stream takes, since then: the source is faster than real time.
    Limited(Instant),
}

/// What has happened since it was taken.
#[derive(Debug, Default)]
pub(crate) struct QueueReport {
    /// Frames of video dropped.
    pub(crate) dropped_video: u64,
    /// Frames of audio dropped.
    pub(crate) dropped_audio: u64,
    /// How long each frame waited of which the first bytes were sent.
    pub(crate) waits: Vec<Duration>,
    /// The source was found to be faster than real time.
    pub(crate) was_limited: bool,
}

impl SendQueue {
    /// Holds media for `max_time`.
    pub(crate) fn new(max_time: Duration) -> Self {
        Self {
            max_time,
            splitter: Splitter::default(),
            payload_types: PayloadTypes::default(),
            media: Vec::new(),
            parts: VecDeque::new(),
            bytes: 0,
            sent_bytes: 0,
            intake: Intake::Unread,
            last_check: None,
            report: QueueReport::default(),
            dropped_frames: 0,
        }
    }

    /// How much may be read from the origin while the stream has this room.
    pub(crate) fn room_bytes(&mut self, stream_room: usize, now: Instant) -> usize {
        if let Intake::Limited(since) = self.intake
            && now.saturating_duration_since(since) >= LIMITED_RETRY_TIME
            && self.parts.is_empty()
        {
            self.intake = Intake::Observed;
            self.media.iter_mut().for_each(|medium| medium.pace.reset());
        }
        match self.intake {
            Intake::Observed | Intake::RealTime if !self.is_full() => usize::MAX,
            _ => stream_room.saturating_sub(self.bytes - self.sent_bytes),
        }
    }

    /// Takes what goes to the player.
    pub(crate) fn push(&mut self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }
        let mut parts = Vec::new();
        self.splitter.take(bytes, |part| parts.push(part));
        if let Some(description) = self.splitter.take_description() {
            self.payload_types = PayloadTypes::of(&sdp::parse(&description));
        }
        for part in parts {
            match part {
                StreamPart::Packet(packet) => self.push_packet(packet, now),
                StreamPart::Other(bytes) => self.push_part(bytes, None),
            }
        }
        self.judge(now);
        self.drop_late(now);
    }

    /// The origin has ended: what was kept goes on.
    pub(crate) fn end(&mut self) {
        self.media.iter_mut().for_each(QueuedMedium::end);
        self.sweep();
        let kept = self.splitter.end();
        self.push_part(kept, None);
    }

    /// Writes what is to be sent next to `out`. Returns the number of bytes.
    pub(crate) fn copy_to(&self, out: &mut [u8]) -> usize {
        let (mut copied, mut skipped) = (0, self.sent_bytes);
        for part in self.parts.iter().take_while(|part| !self.is_held(part)) {
            let bytes = &part.bytes[std::mem::take(&mut skipped)..];
            let length = bytes.len().min(out.len() - copied);
            out[copied..copied + length].copy_from_slice(&bytes[..length]);
            copied += length;
            if copied == out.len() {
                break;
            }
        }
        copied
    }

    /// Notes how many of those bytes have been sent.
    pub(crate) fn advance(&mut self, mut bytes: usize, now: Instant) {
        while bytes > 0
            && let Some(part) = self.parts.front()
        {
            let (length, frame) = (part.bytes.len(), part.frame);
            if let Some((medium, frame)) = frame
                && let Some(arrived) = self.media[medium].begin(frame)
            {
                self.report.waits.push(now.saturating_duration_since(arrived));
            }
            if length - self.sent_bytes > bytes {
                self.sent_bytes += bytes;
                return;
            }
            bytes -= length - self.sent_bytes;
            self.sent_bytes = 0;
            self.bytes -= length;
            self.parts.pop_front();
            if let Some((medium, frame)) = frame {
                self.media[medium].remove_packet(frame);
            }
        }
        if self.parts.is_empty() {
            // An idle flow holds no buffer.
            self.parts = VecDeque::new();
        }
    }

    /// Whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.splitter.is_empty()
    }

    /// Takes all that is left, for a connection that is no longer followed.
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        self.end();
        let mut rest = vec![0; self.bytes - self.sent_bytes];
        self.copy_to(&mut rest);
        (self.bytes, self.sent_bytes) = (0, 0);
        self.parts = VecDeque::new();
        rest
    }

    /// Whether anything can be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.parts.front().is_some_and(|part| !self.is_held(part))
    }

    /// What it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.cost_bytes() + self.splitter.held_bytes()) as u64
    }

    /// What its parts take.
    fn cost_bytes(&self) -> usize {
        self.bytes + self.parts.len() * PART_COST_BYTES
    }

    fn is_full(&self) -> bool {
        self.cost_bytes() > MAX_HELD_BYTES
    }

    /// What has happened since the last call.
    pub(crate) fn take_report(&mut self) -> QueueReport {
        for medium in &mut self.media {
            let dropped = medium.take_dropped_frames();
            self.dropped_frames += dropped;
            match medium.is_video {
                true => self.report.dropped_video += dropped,
                false => self.report.dropped_audio += dropped,
            }
        }
        std::mem::take(&mut self.report)
    }

    /// What `/flows` shows, once a medium is known that can be dropped.
    pub(crate) fn seen(&self) -> Option<QueueSeen> {
        let seen = QueueSeen {
            oldest: self.oldest(),
            held_bytes: (self.bytes - self.sent_bytes) as u64,
            dropped_frames: self.dropped_frames,
        };
        (!self.media.is_empty()).then_some(seen)
    }

    fn push_part(&mut self, bytes: Vec<u8>, frame: Option<(usize, u64)>) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        match self.parts.back_mut() {
            // It may have been sent in part: that is counted from its beginning.
            Some(last) if frame.is_none() && last.has_room_for(&bytes) => {
                last.bytes.extend_from_slice(&bytes);
            }
            _ => self.parts.push_back(QueuedPart { bytes, frame }),
        }
    }

    fn push_packet(&mut self, mut packet: Vec<u8>, now: Instant) {
        let channel = packet[1];
        let content = &packet[INTERLEAVED_HEAD_BYTES..];
        let header = rtp::parse(content);
        let medium = header.as_ref().and_then(|it| self.medium(channel, it.payload_type));
        let (Some(header), Some(index)) = (header, medium) else {
            return self.push_part(packet, None);
        };
        let medium = &mut self.media[index];
        if let Some(frame) = medium.take(&header, &content[header.payload.clone()], now) {
            renumber(&mut packet, medium.removed_packets);
            self.push_part(packet, Some((index, frame)));
        }
        self.sweep();
    }

    /// The medium of a channel, which its first packet says.
    fn medium(&mut self, channel: u8, payload_type: u8) -> Option<usize> {
        if let Some(index) = self.media.iter().position(|it| it.channel == channel) {
            return Some(index);
        }
        let medium = self.payload_types.get(payload_type)?;
        self.media.push(QueuedMedium::new(channel, medium));
        Some(self.media.len() - 1)
    }

    /// Decides what is taken from the origin.
    fn judge(&mut self, now: Instant) {
        // Audio may have gaps, and pictures are what takes room.
        let leading = self.media.iter().find(|it| it.is_video).or(self.media.first());
        let Some(verdict) = leading.map(|it| it.pace.verdict(now)) else { return };
        let is_held_too_long =
            self.is_full() || self.held(now) > self.max_time + MAX_OBSERVATION_DELAY;
        let next = match (self.intake, verdict) {
            (Intake::Unread, _) => Intake::Observed,
            (Intake::Observed, PaceVerdict::RealTime) => Intake::RealTime,
            (Intake::Observed, PaceVerdict::Faster) => Intake::Limited(now),
            (Intake::Observed, PaceVerdict::Unknown) if is_held_too_long => Intake::Limited(now),
            (Intake::RealTime, PaceVerdict::Faster | PaceVerdict::Unknown) => Intake::Observed,
            (same, _) => same,
        };
        self.report.was_limited |=
            self.intake == Intake::Observed && matches!(next, Intake::Limited(_));
        self.intake = next;
    }

    /// How long the oldest frame has waited that can be dropped.
    fn held(&self, now: Instant) -> Duration {
        self.oldest().map_or(Duration::ZERO, |it| now.saturating_duration_since(it))
    }

    fn oldest(&self) -> Option<Instant> {
        self.media.iter().filter_map(QueuedMedium::oldest).min()
    }

    /// Drops what has waited for too long, or takes too much room.
    fn drop_late(&mut self, now: Instant) {
        let is_just_checked =
            self.last_check.is_some_and(|it| now.saturating_duration_since(it) < DROP_INTERVAL);
        if self.intake != Intake::RealTime || is_just_checked && !self.is_full() {
            return;
        }
        self.last_check = Some(now);
        let mut limit = now.checked_sub(self.max_time);
        while let Some(before) = limit {
            self.media.iter_mut().for_each(|medium| medium.drop_before(before));
            self.sweep();
            // Beyond the bound, a quarter of what is held goes at a time.
            let shorter = now.checked_sub(self.held(now) * 3 / 4).filter(|it| *it > before);
            limit = shorter.filter(|_| self.is_full());
        }
    }

    /// Removes the packets of frames that have been dropped, and numbers those behind again.
    fn sweep(&mut self) {
        let dropped: usize = self.media.iter_mut().map(QueuedMedium::take_dropped_packets).sum();
        if dropped == 0 {
            return;
        }
        let removed = self.remove_dropped(self.first_dropped(dropped));
        for (medium, removed) in self.media.iter_mut().zip(removed) {
            if removed > 0 {
                medium.removed_packets = medium.removed_packets.wrapping_add(removed);
                medium.forget_dropped();
            }
        }
    }

    /// The index of the first of so many packets of dropped frames. From the back: where the newest frame is dropped, not
    /// more is walked over than has come since it began.
    fn first_dropped(&self, mut packets: usize) -> usize {
        let mut at = self.parts.len();
        while packets > 0 && at > 0 {
            at -= 1;
            let frame = self.parts[at].frame;
            let is_dropped = frame.is_some_and(|(medium, it)| self.media[medium].is_dropped(it));
            packets -= usize::from(is_dropped);
        }
        at
    }

    /// Removes the packets of dropped frames from this index on. How many each medium had.
    fn remove_dropped(&mut self, first: usize) -> Vec<u16> {
        let mut removed = vec![0_u16; self.media.len()];
        let mut kept = first;
        for at in first..self.parts.len() {
            let part = &mut self.parts[at];
            if let Some((medium, frame)) = part.frame {
                if self.media[medium].is_dropped(frame) {
                    removed[medium] = removed[medium].wrapping_add(1);
                    self.media[medium].remove_packet(frame);
                    self.bytes -= part.bytes.len();
                    continue;
                }
                renumber(&mut part.bytes, removed[medium]);
            }
            self.parts.swap(kept, at);
            kept += 1;
        }
        self.parts.truncate(kept);
        removed
    }

    fn is_held(&self, part: &QueuedPart) -> bool {
        part.frame.is_some_and(|(medium, frame)| self.media[medium].is_held(frame))
    }
}

/// Takes `removed` from the sequence number of an interleaved packet, which is whole RTP.
fn renumber(packet: &mut [u8], removed: u16) {
    let field = &mut packet[INTERLEAVED_HEAD_BYTES..][rtp::SEQUENCE];
    if let [high, low] = field {
        let sequence = u16::from_be_bytes([*high, *low]).wrapping_sub(removed);
        [*high, *low] = sequence.to_be_bytes();
    }
}

#[cfg(test)]
mod tests;
