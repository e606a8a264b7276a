//! When frames are read.

use super::port::FrameIo;
use super::port::system::BATCH;

/// Longest time between two reads.
const MAX_INTERVAL_NS: u64 = 250_000;
/// Reads per minimum propagation delay, so that no frame is due before it is read.
const READS_PER_DELAY: u64 = 4;

/// When frames are read.
///
/// The kernel stamps their arrival, and no frame is due before the propagation delay has passed. While
/// frames keep coming, the thread therefore reads them in batches: a wake-up per frame costs the hosts
/// processor time.
#[derive(Debug)]
pub(super) struct ReadSchedule {
    /// Zero where the kernel stamps nothing.
    max_interval_ns: u64,
    /// Between two reads.
    interval_ns: u64,
    last_ns: u64,
    /// Whether the last read returned a frame.
    busy: bool,
}

impl ReadSchedule {
    pub(super) fn new(frame_io: FrameIo) -> Self {
        let max_interval_ns = match frame_io {
            FrameIo::Packet => MAX_INTERVAL_NS,
            FrameIo::Tap => 0,
        };
        Self { max_interval_ns, interval_ns: 0, last_ns: 0, busy: false }
    }

    /// Sets the minimum propagation delay of the two directions.
    pub(super) fn adapt(&mut self, min_delay_ns: u64) {
        self.interval_ns = (min_delay_ns / READS_PER_DELAY).min(self.max_interval_ns);
    }

    /// When to read next; `None` when a frame is to wake the thread.
    pub(super) fn next_ns(&self) -> Option<u64> {
        (self.busy && self.interval_ns > 0).then_some(self.last_ns + self.interval_ns)
    }

    /// Both ports have been read; after a full batch there may be more.
    pub(super) fn on_read(&mut self, now_ns: u64, max_found: usize) {
        self.last_ns = if max_found < BATCH { now_ns } else { 0 };
        self.busy = max_found > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(frame_io: FrameIo, min_delay_ns: u64) -> ReadSchedule {
        let mut schedule = ReadSchedule::new(frame_io);
        schedule.adapt(min_delay_ns);
        schedule
    }

    #[test]
    fn reads_periodically_while_frames_come_and_waits_otherwise() {
        let mut schedule = schedule(FrameIo::Packet, 15_000_000);
        assert_eq!(schedule.next_ns(), None);
        schedule.on_read(5_000, 3);
        assert_eq!(schedule.next_ns(), Some(255_000));
        schedule.on_read(255_000, 0);
        assert_eq!(schedule.next_ns(), None);
        schedule.on_read(300_000, BATCH);
        assert!(schedule.next_ns().is_some_and(|next_ns| next_ns <= 300_000), "there may be more");
    }

    #[test]
    fn reads_more_often_on_short_paths_and_never_periodically_without_stamps() {
        let mut short = schedule(FrameIo::Packet, 200_000);
        short.on_read(1_000, 1);
        assert_eq!(short.next_ns(), Some(51_000));
        for mut schedule in [schedule(FrameIo::Packet, 0), schedule(FrameIo::Tap, 15_000_000)] {
            schedule.on_read(1_000, 1);
            assert_eq!(schedule.next_ns(), None);
        }
    }
}
