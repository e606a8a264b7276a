//! From RTP packets to frames, and which of them are whole.

use anyhow::{Result, bail};

use super::playout::Frame;
use super::rtp::RtpPacket;

/// Of video (RFC 6184, Section 8.2.1).
const CLOCK_HZ: f64 = 90_000.0;

/// Frames of a session; a timestamp beyond them is malformed.
const MAX_FRAMES: i64 = 1 << 20;

/// What has arrived of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Arrived {
    /// When the last of its packets did, if all did; in seconds since the play request.
    pub whole_s: Option<f64>,
    /// Bytes of its slices.
    pub slice_bytes: u64,
    /// When the last one did so far.
    latest_s: f64,
    /// A packet before or within it is missing.
    broken: bool,
}

/// Takes a stream's packets in the order in which they were sent.
#[derive(Debug)]
pub struct Assembly {
    fps: f64,
    last: Option<Last>,
    frames: Vec<Arrived>,
    /// Packets that come later than this do not count losses.
    counts_until_s: f64,
    /// Packets that came.
    pub packets: u64,
    /// Packets that did not.
    pub lost_packets: u64,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    sequence: u16,
    timestamp: u32,
    /// Since the stream's first packet.
    ticks: i64,
    frame: usize,
}

impl Assembly {
    /// Of a stream with so many frames a second. Its first packet is the first frame's.
    #[must_use]
    pub fn new(fps: f64) -> Self {
        Self {
            fps,
            last: None,
            frames: Vec::new(),
            counts_until_s: f64::INFINITY,
            packets: 0,
            lost_packets: 0,
        }
    }

    /// Counts a missing packet as lost only if a later packet came until then: shortly before the end a missing
    /// packet may still be on its way.
    #[must_use]
    pub fn counting_until(self, counts_until_s: f64) -> Self {
        Self { counts_until_s, ..self }
    }

    /// Takes the next packet, which arrived at `at_s`.
    ///
    /// # Errors
    /// When its timestamp is before the first one's, or far beyond.
    pub fn take(&mut self, packet: RtpPacket, at_s: f64) -> Result<()> {
        let (missing, ticks) = match self.last {
            None => (0, 0),
            Some(last) => {
                let missing = packet.sequence.wrapping_sub(last.sequence).wrapping_sub(1);
                let passed = packet.timestamp.wrapping_sub(last.timestamp) as i32;
                (missing, last.ticks + i64::from(passed))
            }
        };
        let number = (ticks as f64 / CLOCK_HZ * self.fps).round() as i64;
        if !(0..MAX_FRAMES).contains(&number) {
            bail!("an RTP timestamp {ticks} ticks after the first");
        }
        let frame = number as usize;
        if self.frames.len() <= frame {
            self.frames.resize(frame + 1, Arrived::default());
        }
        let counts = at_s <= self.counts_until_s;
        self.packets += u64::from(counts);
        if missing > 0 {
            self.lost_packets += if counts { u64::from(missing) } else { 0 };
            // The missing packets may be of either frame.
            self.frames[frame].broken = true;
            if let Some(before) = self.last.map(|last| last.frame) {
                self.frames[before].broken |= self.frames[before].whole_s.is_none();
            }
        }
        let arrived = &mut self.frames[frame];
        arrived.slice_bytes += packet.slice_bytes as u64;
        // Over UDP packets overtake each other.
        arrived.latest_s = arrived.latest_s.max(at_s);
        if packet.marker && !arrived.broken {
            arrived.whole_s = Some(arrived.latest_s);
        }
        let (sequence, timestamp) = (packet.sequence, packet.timestamp);
        self.last = Some(Last { sequence, timestamp, ticks, frame });
        Ok(())
    }

    /// What has arrived, by number.
    #[must_use]
    pub fn arrived(&self) -> &[Arrived] {
        &self.frames
    }

    /// The first `count` frames of a stream whose pictures refer to nothing before the last multiple of
    /// `every`.
    #[must_use]
    pub fn frames(&self, count: usize, every: usize) -> Vec<Frame> {
        let mut decodable = true;
        let frame = |number: usize| {
            if number.is_multiple_of(every) {
                decodable = true;
            }
            let whole_s = self.frames.get(number).and_then(|arrived| arrived.whole_s);
            decodable &= whole_s.is_some();
            Frame { media_s: number as f64 / self.fps, whole_s, decodable }
        };
        (0..count).map(frame).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u16, timestamp: u32, marker: bool) -> RtpPacket {
        RtpPacket { sequence, timestamp, marker, bytes: 112, slice_bytes: 100 }
    }

    /// Frames of two packets at 10 a second; sequence numbers and timestamps pass zero.
    fn packets() -> impl Iterator<Item = (RtpPacket, f64)> {
        (0..40_u16).map(|number| {
            let timestamp = (u32::MAX - 20_000).wrapping_add(9000 * u32::from(number / 2));
            let packet = packet(number.wrapping_sub(3), timestamp, number % 2 == 1);
            (packet, f64::from(number) * 0.05)
        })
    }

    #[test]
    fn a_frame_is_whole_with_its_last_packet() {
        let mut assembly = Assembly::new(10.0);
        packets().for_each(|(packet, at_s)| assembly.take(packet, at_s).unwrap());
        let frames = assembly.frames(21, 10);
        assert_eq!((assembly.packets, assembly.lost_packets), (40, 0));
        assert_eq!(assembly.arrived()[3].slice_bytes, 200);
        assert!((frames[3].whole_s.unwrap() - 0.35).abs() < 1e-9 && frames[3].media_s == 0.3);
        assert!(frames[..20].iter().all(|it| it.decodable));
        assert_eq!((frames[20].whole_s, frames[20].decodable), (None, false), "never came");
    }

    #[test]
    fn a_frame_is_not_whole_before_a_packet_that_was_overtaken() {
        let mut assembly = Assembly::new(10.0);
        for (number, (packet, at_s)) in packets().enumerate() {
            let at_s = if number == 6 { at_s + 0.2 } else { at_s };
            assembly.take(packet, at_s).unwrap();
        }
        let whole_s = assembly.arrived()[3].whole_s.unwrap();
        assert!((whole_s - 0.5).abs() < 1e-9, "{whole_s}");
    }

    #[test]
    fn a_missing_packet_breaks_its_frame_and_all_up_to_the_next_key_frame() {
        for missing in [6, 7] {
            let mut assembly = Assembly::new(10.0);
            let others = packets().enumerate().filter(|(number, _)| *number != missing);
            others.for_each(|(_, (packet, at_s))| assembly.take(packet, at_s).unwrap());
            assert_eq!(assembly.lost_packets, 1);
            let frames = assembly.frames(20, 10);
            assert_eq!(frames[3].whole_s, None, "without packet {missing}");
            assert!(frames[..3].iter().all(|it| it.decodable));
            assert!(frames[3..10].iter().all(|it| !it.decodable));
            assert!(frames[10..].iter().all(|it| it.decodable && it.whole_s.is_some()));
        }
    }

    #[test]
    fn what_may_still_be_on_its_way_at_the_end_does_not_count_as_lost() {
        let mut assembly = Assembly::new(10.0).counting_until(1.0);
        let came = packets().enumerate().filter(|(number, _)| ![7, 35].contains(number));
        came.for_each(|(_, (packet, at_s))| assembly.take(packet, at_s).unwrap());
        assert_eq!((assembly.packets, assembly.lost_packets), (20, 1));
        assert_eq!(assembly.arrived()[17].whole_s, None);
    }

    #[test]
    fn a_timestamp_of_another_stream_is_refused() {
        let mut assembly = Assembly::new(24.0);
        assembly.take(packet(0, 500_000, true), 0.0).unwrap();
        assert!(assembly.take(packet(1, 100_000, true), 0.0).is_err());
    }
}
