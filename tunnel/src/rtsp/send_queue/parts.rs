//! What waits in a queue, in its order, and what of it is dropped.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_wire::rtp;

use super::discarded::Discarded;
use super::frames::QueuedMedium;
use super::splitter::INTERLEAVED_HEAD_BYTES;

/// What a part takes beside its bytes: its place in the queue and its allocation.
const PART_COST_BYTES: usize = 80;
/// What is never dropped is joined up to this size: then [`PART_COST_BYTES`] is less than a hundredth of it.
pub(super) const MAX_JOINED_BYTES: usize = 16 << 10;

/// The parts of a queue. The frames of their packets are those of the media that each method is given.
#[derive(Debug, Default)]
pub(super) struct QueuedParts {
    pub(super) parts: VecDeque<QueuedPart>,
    /// Of all parts.
    pub(super) bytes: usize,
    /// Of the first part.
    pub(super) sent_bytes: usize,
    discarded: Discarded,
}

/// A packet, or bytes that are never dropped.
#[derive(Debug)]
pub(super) struct QueuedPart {
    pub(super) bytes: Vec<u8>,
    pub(super) frame: Option<PacketFrame>,
}

/// What a packet belongs to that can be dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketFrame {
    /// Index of its medium.
    pub(super) medium: usize,
    /// Number of its frame.
    pub(super) number: u64,
    /// Packets of the medium that were dropped between the one before it in the queue and this one (`SequenceShift`).
    pub(super) dropped_before: u16,
}

impl QueuedPart {
    /// Whether more that is never dropped can be joined to it.
    fn has_room_for(&self, bytes: &[u8]) -> bool {
        self.frame.is_none() && self.bytes.len() + bytes.len() <= MAX_JOINED_BYTES
    }
}

impl QueuedParts {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.bytes - self.sent_bytes
    }

    /// What the parts take.
    pub(super) fn cost_bytes(&self) -> usize {
        self.bytes + self.parts.len() * PART_COST_BYTES
    }

    /// Of dropped packets whose memory is still to be released.
    pub(super) fn discarded_bytes(&self) -> usize {
        self.discarded.bytes
    }

    /// Whether anything can be sent.
    pub(super) fn has_output(&self, media: &[QueuedMedium]) -> bool {
        self.parts.front().is_some_and(|part| !is_held(media, part))
    }

    pub(super) fn push(&mut self, bytes: Vec<u8>, frame: Option<PacketFrame>) {
        if bytes.is_empty() {
            return;
        }
        self.discarded.release_some();
        self.bytes += bytes.len();
        match self.parts.back_mut() {
            // It may have been sent in part: that is counted from its beginning.
            Some(last) if frame.is_none() && last.has_room_for(&bytes) => {
                last.bytes.extend_from_slice(&bytes);
            }
            _ => self.parts.push_back(QueuedPart { bytes, frame }),
        }
    }

    /// Writes what is to be sent next to `out`. Returns the number of bytes.
    pub(super) fn copy_to(&mut self, media: &mut [QueuedMedium], out: &mut [u8]) -> usize {
        media.iter_mut().for_each(|it| it.shift.begin_copy());
        let (mut copied, mut skipped) = (0, self.sent_bytes);
        for part in &self.parts {
            if is_held(media, part) {
                break;
            }
            let skipped = std::mem::take(&mut skipped);
            let bytes = &part.bytes[skipped..];
            let length = bytes.len().min(out.len() - copied);
            let copy = &mut out[copied..copied + length];
            copy.copy_from_slice(&bytes[..length]);
            if let Some(frame) = part.frame {
                let dropped = media[frame.medium].shift.on_copied(frame.dropped_before);
                renumber(&part.bytes, dropped, copy, skipped);
            }
            copied += length;
            if copied == out.len() {
                break;
            }
        }
        copied
    }

    /// Notes how many of those bytes have been sent. Adds to `waits` how long each frame waited of which they are the first.
    pub(super) fn advance(
        &mut self,
        media: &mut [QueuedMedium],
        mut bytes: usize,
        now: Instant,
        waits: &mut Vec<Duration>,
    ) {
        while bytes > 0
            && let Some(part) = self.parts.front()
        {
            let (length, frame) = (part.bytes.len(), part.frame);
            if let Some(frame) = frame
                && let Some(arrived) = media[frame.medium].begin(frame.number)
            {
                waits.push(now.saturating_duration_since(arrived));
            }
            if length - self.sent_bytes > bytes {
                self.sent_bytes += bytes;
                return;
            }
            bytes -= length - self.sent_bytes;
            self.sent_bytes = 0;
            self.bytes -= length;
            self.discarded.release_some();
            self.parts.pop_front();
            if let Some(frame) = frame {
                media[frame.medium].shift.on_sent(frame.dropped_before);
                media[frame.medium].remove_packet(frame.number);
            }
        }
        if self.parts.is_empty() {
            // An idle flow holds no buffer.
            self.parts = VecDeque::new();
            self.discarded = Discarded::default();
        }
    }

    /// Removes the packets of frames that have been dropped, the first of which is near this end. What stays is not walked
    /// over but for what is between them.
    pub(super) fn sweep(&mut self, media: &mut [QueuedMedium], near: QueueEnd) {
        let dropped: usize = media.iter_mut().map(QueuedMedium::take_dropped_packets).sum();
        if dropped == 0 {
            return;
        }
        let first = match near {
            QueueEnd::Front => self.parts.iter().position(|part| is_dropped(media, part)),
            QueueEnd::Back => self.first_dropped(media, dropped),
        };
        self.remove_dropped(media, first.unwrap_or(self.parts.len()), dropped);
        media.iter_mut().for_each(QueuedMedium::forget_dropped);
    }

    /// The index of the first of so many packets of dropped frames, from the back.
    fn first_dropped(&self, media: &[QueuedMedium], packets: usize) -> Option<usize> {
        let indices = (0..self.parts.len()).rev();
        indices.filter(|at| is_dropped(media, &self.parts[*at])).nth(packets - 1)
    }

    /// Removes so many packets of dropped frames from this index on.
    fn remove_dropped(&mut self, media: &mut [QueuedMedium], first: usize, mut dropped: usize) {
        let (mut kept, mut at) = (first, first);
        while dropped > 0 && at < self.parts.len() {
            let is_dropped = is_dropped(media, &self.parts[at]);
            let part = &mut self.parts[at];
            match part.frame {
                Some(frame) if is_dropped => {
                    dropped -= 1;
                    self.bytes -= part.bytes.len();
                    self.discarded.add(std::mem::take(&mut part.bytes));
                    media[frame.medium].shift.on_removed(frame.dropped_before);
                    media[frame.medium].remove_packet(frame.number);
                }
                _ => {
                    self.count_removed(media, at);
                    self.parts.swap(kept, at);
                    kept += 1;
                }
            }
            at += 1;
        }
        for behind in at..self.parts.len() {
            if !media.iter().any(|it| it.shift.has_removed()) {
                break;
            }
            self.count_removed(media, behind);
        }
        media.iter_mut().for_each(|it| it.shift.end_removal());
        self.parts.drain(kept..at);
    }

    /// Packets removed just before this one count with it.
    fn count_removed(&mut self, media: &mut [QueuedMedium], at: usize) {
        if let Some(frame) = &mut self.parts[at].frame {
            let removed = media[frame.medium].shift.take_removed();
            frame.dropped_before = frame.dropped_before.wrapping_add(removed);
        }
    }
}

/// An end of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueEnd {
    /// What is sent next.
    Front,
    /// What has come last.
    Back,
}

/// Whether a packet is of a frame that has been dropped.
pub(super) fn is_dropped(media: &[QueuedMedium], part: &QueuedPart) -> bool {
    part.frame.is_some_and(|frame| media[frame.medium].is_dropped(frame.number))
}

fn is_held(media: &[QueuedMedium], part: &QueuedPart) -> bool {
    part.frame.is_some_and(|frame| media[frame.medium].is_held(frame.number))
}

/// Takes `dropped` from the sequence number of an interleaved packet, which is whole RTP, in a copy of it that begins after
/// so many of its bytes.
fn renumber(packet: &[u8], dropped: u16, copy: &mut [u8], skipped: usize) {
    let range =
        INTERLEAVED_HEAD_BYTES + rtp::SEQUENCE.start..INTERLEAVED_HEAD_BYTES + rtp::SEQUENCE.end;
    let [high, low] = packet[range.clone()] else { return };
    let sequence = u16::from_be_bytes([high, low]).wrapping_sub(dropped).to_be_bytes();
    for (position, byte) in range.zip(sequence) {
        if let Some(at) = position.checked_sub(skipped).filter(|at| *at < copy.len()) {
            copy[at] = byte;
        }
    }
}
