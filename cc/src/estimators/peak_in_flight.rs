use std::time::Duration;

use crate::Time;

/// Most bytes in flight of the last one or two round trips: those of a video's segment have left the sender when the
/// loss of its last packets shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakInFlight {
    since: Time,
    bytes: u64,
    before_bytes: u64,
}

impl PeakInFlight {
    pub(crate) fn add(&mut self, now: Time, rtt: Option<Duration>, bytes: u64) {
        if rtt.is_some_and(|rtt| now.since(self.since) > rtt) {
            *self = Self { since: now, bytes: 0, before_bytes: self.bytes };
        }
        self.bytes = self.bytes.max(bytes);
    }

    pub(crate) fn get(&self) -> f64 {
        self.bytes.max(self.before_bytes) as f64
    }
}
