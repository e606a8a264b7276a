//! Frames of a live encoder that follows the rate of the congestion controller.

use std::collections::VecDeque;

use millrace_cc::{Bandwidth, Time};

use crate::EncoderSetup;

/// An encoder skips a frame while this many are not sent whole: 0.2 s at 30 frames a second, as much as a call bears.
const MAX_UNSENT_FRAMES: usize = 6;

/// A frame that has not arrived whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapturedFrame {
    pub(crate) captured: Time,
    /// Units up to its end.
    pub(crate) end_units: u64,
    /// Payload of its last unit.
    last_bytes: u64,
}

/// What an encoder has made.
#[derive(Debug)]
pub(super) struct EncodedFrames {
    setup: EncoderSetup,
    start: Time,
    unit_bytes: u64,
    /// Frames captured so far, skipped ones included.
    captured: u64,
    /// Frames that have not arrived. What is sent and not acknowledged bounds them, and [`MAX_UNSENT_FRAMES`].
    waiting: VecDeque<CapturedFrame>,
}

impl EncodedFrames {
    pub(super) fn new(setup: EncoderSetup, start: Time, unit_bytes: u64) -> Self {
        Self { setup, start, unit_bytes, captured: 0, waiting: VecDeque::new() }
    }

    /// When the next frame is captured.
    pub(super) fn next(&self) -> Time {
        let after_ns = self.setup.frame_time.as_nanos() * u128::from(self.captured);
        let after_ns = u64::try_from(after_ns).unwrap_or(u64::MAX);
        self.start + std::time::Duration::from_nanos(after_ns)
    }

    /// Encodes the frames due by `now`, at its share of `rate`, after `made_units` units, of which `sent_units` have been sent.
    /// Returns the units made then, and the number of frames skipped.
    pub(super) fn capture(
        &mut self,
        now: Time,
        rate: Bandwidth,
        mut made_units: u64,
        sent_units: u64,
    ) -> (u64, u64) {
        let mut skipped = 0;
        while self.next() <= now {
            let captured = self.next();
            self.captured += 1;
            let sent = self.waiting.partition_point(|frame| frame.end_units <= sent_units);
            if self.waiting.len() - sent >= MAX_UNSENT_FRAMES {
                skipped += 1;
                continue;
            }
            let rate =
                rate.scaled(self.setup.rate_share).clamp(self.setup.min_rate, self.setup.max_rate);
            let bytes = rate.bytes_in(self.setup.frame_time).max(1);
            let units = bytes.div_ceil(self.unit_bytes);
            made_units += units;
            let last_bytes = bytes - (units - 1) * self.unit_bytes;
            self.waiting.push_back(CapturedFrame { captured, end_units: made_units, last_bytes });
        }
        (made_units, skipped)
    }

    /// Payload of a unit. Of one that has arrived it does not matter.
    pub(super) fn bytes(&self, unit: u64) -> u64 {
        let place = self.waiting.partition_point(|frame| frame.end_units <= unit);
        match self.waiting.get(place) {
            Some(frame) if frame.end_units == unit + 1 => frame.last_bytes,
            _ => self.unit_bytes,
        }
    }

    /// The oldest frame that has not arrived.
    pub(super) fn oldest(&self) -> Option<CapturedFrame> {
        self.waiting.front().copied()
    }

    pub(super) fn remove_oldest(&mut self) {
        self.waiting.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frames() -> EncodedFrames {
        let setup = EncoderSetup {
            frame_time: Duration::from_millis(50),
            rate_share: 1.0,
            min_rate: Bandwidth::from_mbps(0.1),
            max_rate: Bandwidth::from_mbps(4.0),
        };
        EncodedFrames::new(setup, Time::ZERO, 1000)
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_frame_has_its_share_of_the_rate_within_the_encoders_range() {
        let mut frames = frames();
        // 1 Mbit/s in 50 ms are 6250 bytes.
        assert_eq!(frames.capture(at(0), Bandwidth::from_mbps(1.0), 0, 0), (7, 0));
        let sizes: Vec<u64> = (0..7).map(|unit| frames.bytes(unit)).collect();
        assert_eq!(sizes, [1000, 1000, 1000, 1000, 1000, 1000, 250]);
        assert_eq!(frames.capture(at(49), Bandwidth::from_mbps(1.0), 7, 7), (7, 0), "not due");
        assert_eq!(frames.capture(at(50), Bandwidth::from_mbps(100.0), 7, 7), (32, 0), "4 Mbit/s");
        assert_eq!(frames.capture(at(100), Bandwidth::ZERO, 32, 32), (33, 0), "0.1 Mbit/s");
        assert_eq!(frames.bytes(32), 625);
        assert_eq!(frames.oldest().map(|frame| frame.end_units), Some(7));
        frames.remove_oldest();
        assert_eq!(frames.oldest().map(|frame| frame.captured), Some(at(50)));
    }

    #[test]
    fn frames_are_skipped_while_too_many_wait_to_be_sent() {
        let mut frames = frames();
        let rate = Bandwidth::from_mbps(1.0);
        let (made, skipped) = frames.capture(at(1000), rate, 0, 0);
        assert_eq!((made, skipped), (6 * 7, 15), "21 were due");
        let (made, skipped) = frames.capture(at(1050), rate, made, 7);
        assert_eq!((made, skipped), (7 * 7, 0), "one has been sent");
    }
}
