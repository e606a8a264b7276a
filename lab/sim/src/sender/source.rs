use std::time::Duration;

use millrace_cc::{Bandwidth, Time};

use super::frames::{CapturedFrame, EncodedFrames};
use super::responses::Responses;
use crate::DataSource;

/// The data to send, in units of one full packet's payload; a segment's last unit is smaller.
#[derive(Debug)]
pub(super) struct Feed {
    source: DataSource,
    start: Time,
    unit_bytes: u64,
    /// Units produced so far.
    made_units: u64,
    /// Segments produced so far.
    segments: u64,
    /// Of a player.
    responses: Responses,
    /// Only of an encoder.
    frames: Option<EncodedFrames>,
    closed: bool,
}

impl Feed {
    pub(super) fn new(source: DataSource, start: Time, unit_bytes: u64) -> Self {
        let made_units = if source == DataSource::Bulk { u64::MAX } else { 0 };
        let responses = Responses::new(unit_bytes);
        let frames = match source {
            DataSource::Encoder(setup) => Some(EncodedFrames::new(setup, start, unit_bytes)),
            _ => None,
        };
        Self {
            source,
            start,
            unit_bytes,
            made_units,
            segments: 0,
            responses,
            frames,
            closed: false,
        }
    }

    /// Whether an encoder makes the data.
    pub(super) fn is_encoder(&self) -> bool {
        self.frames.is_some()
    }

    /// Encodes the frames due by `now` at `rate`; `sent_units` have been sent. Returns the number of frames skipped.
    pub(super) fn capture(&mut self, now: Time, rate: Bandwidth, sent_units: u64) -> u64 {
        let Some(frames) = self.frames.as_mut().filter(|_| !self.closed) else { return 0 };
        let (made_units, skipped) = frames.capture(now, rate, self.made_units, sent_units);
        self.made_units = made_units;
        skipped
    }

    /// When the encoder captures the next frame.
    pub(super) fn next_frame(&self) -> Option<Time> {
        self.frames.as_ref().filter(|_| !self.closed).map(EncodedFrames::next)
    }

    /// The oldest frame that has not arrived.
    pub(super) fn oldest_frame(&self) -> Option<CapturedFrame> {
        self.frames.as_ref().and_then(EncodedFrames::oldest)
    }

    pub(super) fn remove_oldest_frame(&mut self) {
        if let Some(frames) = &mut self.frames {
            frames.remove_oldest();
        }
    }

    /// Stops producing data.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.made_units = 0;
    }

    pub(super) fn has(&self, unit: u64) -> bool {
        unit < self.made_units
    }

    /// Produces the data due by `now`. Returns a segment that is requested now: its number, and when it was
    /// due. `idle`: all data has been sent and acknowledged.
    pub(super) fn produce(&mut self, now: Time, idle: bool) -> Option<(u64, Time)> {
        if self.closed {
            return None;
        }
        match self.source {
            DataSource::Bulk | DataSource::Encoder(_) | DataSource::Player(_) => None,
            DataSource::Constant { rate } => {
                self.made_units = rate.bytes_in(now - self.start) / self.unit_bytes;
                None
            }
            DataSource::Segments { .. } if !idle => None,
            DataSource::Segments { bytes, period } => {
                let due = self.segment_due(period);
                if now < due {
                    return None;
                }
                self.made_units += bytes.div_ceil(self.unit_bytes);
                self.segments += 1;
                Some((self.segments - 1, due))
            }
        }
    }

    /// When the next data will be produced, if all data has been sent.
    pub(super) fn next(&self, idle: bool) -> Option<Time> {
        if self.closed {
            return None;
        }
        match self.source {
            DataSource::Bulk | DataSource::Encoder(_) | DataSource::Player(_) => None,
            DataSource::Constant { rate } => Some(self.after(rate, self.made_units + 1)),
            DataSource::Segments { period, .. } => idle.then(|| self.segment_due(period)),
        }
    }

    /// Payload of a unit.
    pub(super) fn bytes(&self, unit: u64) -> u64 {
        if matches!(self.source, DataSource::Player(_)) {
            return self.responses.unit_bytes(unit);
        }
        if let Some(frames) = &self.frames {
            return frames.bytes(unit);
        }
        let DataSource::Segments { bytes, .. } = self.source else { return self.unit_bytes };
        let units = bytes.div_ceil(self.unit_bytes);
        let last = unit % units == units - 1;
        if last { bytes - (units - 1) * self.unit_bytes } else { self.unit_bytes }
    }

    /// Units up to the end of segment `number`.
    pub(super) fn segment_end(&self, number: u64) -> u64 {
        match self.source {
            DataSource::Segments { bytes, .. } => (number + 1) * bytes.div_ceil(self.unit_bytes),
            DataSource::Bulk
            | DataSource::Constant { .. }
            | DataSource::Encoder(_)
            | DataSource::Player(_) => u64::MAX,
        }
    }

    /// A response of `bytes` is asked for.
    pub(super) fn respond(&mut self, number: u64, bytes: u64) {
        if !self.closed {
            self.made_units = self.responses.begin(number, bytes, self.made_units);
        }
    }

    /// No more of a response is to be sent than what has been sent: the units below `next_unit`.
    pub(super) fn cancel(&mut self, number: u64, next_unit: u64) {
        if self.responses.truncate(number, next_unit) {
            self.made_units = next_unit;
        }
    }

    /// The current response, and how many of its bytes are in the units below `units`.
    pub(super) fn response_bytes(&self, units: u64) -> Option<(u64, u64)> {
        self.responses.bytes_below(units)
    }

    fn after(&self, rate: Bandwidth, units: u64) -> Time {
        self.start + rate.time_for(units * self.unit_bytes)
    }

    fn segment_due(&self, period: Duration) -> Time {
        let after_ns = period.as_nanos() * u128::from(self.segments);
        self.start + Duration::from_nanos(u64::try_from(after_ns).unwrap_or(u64::MAX))
    }
}
