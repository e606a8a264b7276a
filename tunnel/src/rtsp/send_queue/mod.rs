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
mod discarded;
mod frames;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod pace;
mod parts;
mod shift;
mod splitter;

use std::time::{Duration, Instant};

use millrace_wire::{rtp, sdp};

use crate::flow_info::QueueSeen;

use coding::PayloadTypes;
use frames::QueuedMedium;
use pace::{OBSERVATION_TIME, PaceVerdict};
use parts::{PacketFrame, QueueEnd, QueuedParts};
use splitter::{INTERLEAVED_HEAD_BYTES, Splitter, StreamPart};

/// Most that a queue takes, with what each part costs: two seconds of 125 Mbit/s in packets of 1,200 bytes.
const MAX_HELD_BYTES: usize = 32 << 20;
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
    parts: QueuedParts,
    intake: Intake,
    /// When it was last looked for what has waited for too long.
    last_check: Option<Instant>,
    report: QueueReport,
    dropped_frames: u64,
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
            parts: QueuedParts::default(),
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
            _ => stream_room.saturating_sub(self.parts.unsent_bytes()),
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
                StreamPart::Other(bytes) => self.parts.push(bytes, None),
            }
        }
        self.judge(now);
        self.drop_late(now);
    }

    /// The origin has ended: what was kept goes on.
    pub(crate) fn end(&mut self) {
        self.media.iter_mut().for_each(QueuedMedium::end);
        self.parts.sweep(&mut self.media, QueueEnd::Back);
        let kept = self.splitter.end();
        self.parts.push(kept, None);
    }

    /// Writes what is to be sent next to `out`. Returns the number of bytes.
    pub(crate) fn copy_to(&mut self, out: &mut [u8]) -> usize {
        self.parts.copy_to(&mut self.media, out)
    }

    /// Notes how many of those bytes have been sent.
    pub(crate) fn advance(&mut self, bytes: usize, now: Instant) {
        self.parts.advance(&mut self.media, bytes, now, &mut self.report.waits);
    }

    /// Whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.splitter.is_empty()
    }

    /// Takes all that is left, for a connection that is no longer followed.
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        self.end();
        let mut rest = vec![0; self.parts.unsent_bytes()];
        self.copy_to(&mut rest);
        self.parts = QueuedParts::default();
        rest
    }

    /// Whether anything can be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.parts.has_output(&self.media)
    }

    /// What it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.parts.cost_bytes() + self.parts.discarded_bytes() + self.splitter.held_bytes()) as u64
    }

    fn is_full(&self) -> bool {
        self.parts.cost_bytes() > MAX_HELD_BYTES
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
            held_bytes: self.parts.unsent_bytes() as u64,
            dropped_frames: self.dropped_frames,
        };
        (!self.media.is_empty()).then_some(seen)
    }

    fn push_packet(&mut self, packet: Vec<u8>, now: Instant) {
        let channel = packet[1];
        let content = &packet[INTERLEAVED_HEAD_BYTES..];
        let header = rtp::parse(content);
        let medium = header.as_ref().and_then(|it| self.medium(channel, it.payload_type));
        let (Some(header), Some(index)) = (header, medium) else {
            return self.parts.push(packet, None);
        };
        let medium = &mut self.media[index];
        if let Some(number) = medium.take(&header, &content[header.payload.clone()], now) {
            let dropped_before = medium.shift.take_behind();
            self.parts.push(packet, Some(PacketFrame { medium: index, number, dropped_before }));
        }
        self.parts.sweep(&mut self.media, QueueEnd::Back);
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
            self.parts.sweep(&mut self.media, QueueEnd::Front);
            // Beyond the bound, a quarter of what is held goes at a time.
            let shorter = now.checked_sub(self.held(now) * 3 / 4).filter(|it| *it > before);
            limit = shorter.filter(|_| self.is_full());
        }
    }
}

#[cfg(test)]
mod tests;
