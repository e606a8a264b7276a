//! When frames are read.

use super::port::{Access, BATCH};

/// Most time between two looks.
const MOST_NS: u64 = 250_000;
/// Of the least propagation, so that what was read is never due already.
const SHARE: u64 = 4;

/// When frames are read.
///
/// Their arrival is the kernel's stamp, and none is due before the propagation is over, so that while
/// they keep coming they can be fetched in batches: a wake-up for each takes a processor from the hosts
/// each time. Calibration took 38 % of one at 100 Mbit/s and takes 22 to 28 % so, 83 and 79 % at 500.
#[derive(Debug)]
pub(super) struct Reading {
    /// Zero where the kernel stamps nothing.
    most_ns: u64,
    /// Between two looks.
    every_ns: u64,
    last_ns: u64,
    /// Whether the last look has found something.
    busy: bool,
}

impl Reading {
    pub(super) fn new(access: Access) -> Self {
        let most_ns = match access {
            Access::Packet => MOST_NS,
            Access::Tap => 0,
        };
        Self { most_ns, every_ns: 0, last_ns: 0, busy: false }
    }

    /// The shorter of the two ways has this propagation from now on.
    pub(super) fn adapt(&mut self, least_delay_ns: u64) {
        self.every_ns = (least_delay_ns / SHARE).min(self.most_ns);
    }

    /// When to look next; nothing when a frame is to wake the thread.
    pub(super) fn next_ns(&self) -> Option<u64> {
        (self.busy && self.every_ns > 0).then_some(self.last_ns + self.every_ns)
    }

    /// Both ports have been looked at; a full batch may not have been all.
    pub(super) fn looked(&mut self, now_ns: u64, most_found: usize) {
        self.last_ns = if most_found < BATCH { now_ns } else { 0 };
        self.busy = most_found > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(access: Access, least_delay_ns: u64) -> Reading {
        let mut reading = Reading::new(access);
        reading.adapt(least_delay_ns);
        reading
    }

    #[test]
    fn looks_while_frames_come_and_waits_for_the_next_otherwise() {
        let mut reading = reading(Access::Packet, 15_000_000);
        assert_eq!(reading.next_ns(), None);
        reading.looked(5_000, 3);
        assert_eq!(reading.next_ns(), Some(255_000));
        reading.looked(255_000, 0);
        assert_eq!(reading.next_ns(), None);
        reading.looked(300_000, BATCH);
        assert!(reading.next_ns().is_some_and(|next_ns| next_ns <= 300_000), "there may be more");
    }

    #[test]
    fn looks_more_often_on_short_paths_and_never_without_stamps() {
        let mut short = reading(Access::Packet, 200_000);
        short.looked(1_000, 1);
        assert_eq!(short.next_ns(), Some(51_000));
        for mut reading in [reading(Access::Packet, 0), reading(Access::Tap, 15_000_000)] {
            reading.looked(1_000, 1);
            assert_eq!(reading.next_ns(), None);
        }
    }
}
