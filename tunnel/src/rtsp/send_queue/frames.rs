//! The frames of one medium in a queue.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use millrace_wire::rtp::{PictureKind, RtpHeader};

use super::coding::{Coding, DroppableMedium};
use super::pace::MediaPace;
use super::shift::SequenceShift;

/// A medium whose frames can be dropped: the packets of one channel.
#[derive(Debug)]
pub(super) struct QueuedMedium {
    pub(super) channel: u8,
    pub(super) is_video: bool,
    pub(super) pace: MediaPace,
    pub(super) shift: SequenceShift,
    coding: Coding,
    /// A picture has been dropped: those up to the next key frame refer to it.
    awaits_key: bool,
    /// Those with packets in the queue, and the newest one. Numbers rise, with gaps where frames were dropped.
    frames: VecDeque<QueuedFrame>,
    /// The number of the next frame.
    next_number: u64,
    /// Frames dropped since that was asked.
    dropped_frames: u64,
    /// Packets of dropped frames that are in the queue.
    dropped_packets: usize,
}

/// A frame, or a packet of audio: all packets with one timestamp.
#[derive(Debug)]
struct QueuedFrame {
    number: u64,
    timestamp: u32,
    kind: PictureKind,
    arrived: Instant,
    /// Packets in the queue.
    packets: u32,
    /// Bytes of it have been sent.
    is_begun: bool,
    is_dropped: bool,
}

impl QueuedMedium {
    pub(super) fn new(channel: u8, medium: DroppableMedium) -> Self {
        Self {
            channel,
            is_video: medium.is_video,
            pace: MediaPace::new(medium.clock_hz),
            shift: SequenceShift::default(),
            coding: medium.coding,
            awaits_key: false,
            frames: VecDeque::new(),
            next_number: 0,
            dropped_frames: 0,
            dropped_packets: 0,
        }
    }

    /// The number of the frame that a packet belongs to, which is in the queue from now on. `None` if the packet is
    /// dropped.
    pub(super) fn take(&mut self, header: &RtpHeader, payload: &[u8], at: Instant) -> Option<u64> {
        self.pace.take(header.timestamp, at);
        if self.frames.back().is_none_or(|newest| newest.timestamp != header.timestamp) {
            self.begin_frame(header.timestamp, at);
        }
        let newest = self.frames.back_mut()?;
        if newest.kind == PictureKind::Undecided {
            newest.kind = self.coding.kind(payload);
        }
        match newest.kind {
            // The rest of a key frame that has been dropped may come late.
            PictureKind::Key => self.awaits_key &= newest.is_dropped,
            PictureKind::Dependent if self.awaits_key => self.drop_newest(),
            PictureKind::Dependent | PictureKind::Undecided => {}
        }
        let newest = self.frames.back_mut()?;
        if newest.is_dropped {
            self.shift.on_refused();
            return None;
        }
        newest.packets += 1;
        Some(newest.number)
    }

    fn begin_frame(&mut self, timestamp: u32, arrived: Instant) {
        // A picture without any slice.
        if self.awaits_key && self.is_newest_undecided() {
            self.drop_newest();
        }
        // Sent or dropped, and no longer the newest.
        if self.frames.back().is_some_and(|newest| newest.packets == 0) {
            self.frames.pop_back();
        }
        let kind = PictureKind::Undecided;
        let frame = QueuedFrame {
            number: self.next_number,
            timestamp,
            kind,
            arrived,
            packets: 0,
            is_begun: false,
            is_dropped: false,
        };
        self.frames.push_back(frame);
        self.next_number += 1;
        self.forget_sent();
    }

    fn is_newest_undecided(&self) -> bool {
        self.frames.back().is_some_and(|newest| newest.kind == PictureKind::Undecided)
    }

    fn drop_newest(&mut self) {
        let last = self.frames.len() - 1;
        self.drop_frames(last..last + 1);
    }

    fn drop_frames(&mut self, range: Range<usize>) {
        for frame in self.frames.range_mut(range) {
            // What has been begun is completed.
            if !frame.is_begun && !frame.is_dropped {
                frame.is_dropped = true;
                self.dropped_frames += 1;
                self.dropped_packets += frame.packets as usize;
            }
        }
    }

    /// Frames without packets in the queue, but for the newest one: packets of it may come.
    fn forget_sent(&mut self) {
        while self.frames.len() > 1 && self.frames[0].packets == 0 {
            self.frames.pop_front();
        }
    }

    /// Frames whose packets were removed, wherever they are: those ahead of them may never be sent.
    pub(super) fn forget_dropped(&mut self) {
        let newest = self.frames.back().map(|it| it.number);
        self.frames.retain(|it| it.packets > 0 || Some(it.number) == newest);
    }

    /// When the oldest frame that can be dropped arrived.
    pub(super) fn oldest(&self) -> Option<Instant> {
        Some(self.frames[self.oldest_index()?].arrived)
    }

    fn oldest_index(&self) -> Option<usize> {
        self.frames.iter().position(|it| it.packets > 0 && !it.is_begun && !it.is_dropped)
    }

    /// Drops the frames that arrived before `limit`, and what refers to them.
    pub(super) fn drop_before(&mut self, limit: Instant) {
        let Some(from) = self.oldest_index().filter(|it| self.frames[*it].arrived < limit) else {
            return;
        };
        let has_groups = self.coding != Coding::Independent;
        let is_next =
            |it: &QueuedFrame| it.arrived >= limit && (!has_groups || it.kind == PictureKind::Key);
        let next = (from + 1..self.frames.len()).find(|it| is_next(&self.frames[*it]));
        let mut to = next.unwrap_or(self.frames.len());
        if next.is_none() && has_groups {
            self.awaits_key = true;
            // The newest may turn out to be a key frame.
            if self.is_newest_undecided() {
                to -= 1;
            }
        }
        self.drop_frames(from..to.max(from));
    }

    /// Whether a packet of this frame must not be sent yet: the frame may have to be dropped.
    pub(super) fn is_held(&self, frame: u64) -> bool {
        self.awaits_key
            && self.is_newest_undecided()
            && self.frames.back().is_some_and(|newest| newest.number == frame)
    }

    /// Whether this frame has been dropped.
    pub(super) fn is_dropped(&self, frame: u64) -> bool {
        self.frame(frame).is_some_and(|it| it.is_dropped)
    }

    /// Bytes of a packet are sent. When the frame arrived, if they are its first.
    pub(super) fn begin(&mut self, frame: u64) -> Option<Instant> {
        let frame = self.frame_mut(frame)?;
        (!std::mem::replace(&mut frame.is_begun, true)).then_some(frame.arrived)
    }

    /// A packet has left the queue.
    pub(super) fn remove_packet(&mut self, frame: u64) {
        if let Some(frame) = self.frame_mut(frame) {
            frame.packets -= 1;
        }
        self.forget_sent();
    }

    /// Nothing more comes: what waits for a decision is dropped.
    pub(super) fn end(&mut self) {
        if self.awaits_key && self.is_newest_undecided() {
            self.drop_newest();
        }
    }

    /// Packets in the queue of frames that were dropped since the last call.
    pub(super) fn take_dropped_packets(&mut self) -> usize {
        std::mem::take(&mut self.dropped_packets)
    }

    /// Frames dropped since the last call.
    pub(super) fn take_dropped_frames(&mut self) -> u64 {
        std::mem::take(&mut self.dropped_frames)
    }

    /// How many frames are kept.
    #[cfg(test)]
    pub(super) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    fn frame(&self, number: u64) -> Option<&QueuedFrame> {
        self.frames.get(self.index(number)?)
    }

    fn frame_mut(&mut self, number: u64) -> Option<&mut QueuedFrame> {
        let index = self.index(number)?;
        self.frames.get_mut(index)
    }

    fn index(&self, number: u64) -> Option<usize> {
        self.frames.binary_search_by_key(&number, |it| it.number).ok()
    }
}
