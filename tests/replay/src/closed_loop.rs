use std::collections::VecDeque;
use std::time::Duration;

use millrace_cc::{
    AckedPacket, Bandwidth, CongestionEvent, Controller, LostPacket, RttSample, SentPacket, Time,
};

/// Packets that may overtake one before it counts as lost (RFC 9002, Section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Packets that one acknowledgement names (RFC 9000, Section 13.2.2).
const ACK_EVERY: usize = 2;
/// Least time from one packet to the next: packets that a pacer lets leave together have different times.
const MIN_GAP: Duration = Duration::from_nanos(1);

/// One bottleneck, drop-tail.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Rate of the bottleneck.
    pub rate: Bandwidth,
    /// Propagation, both ways together.
    pub rtt: Duration,
    /// Buffer of the bottleneck, in time at its rate.
    pub buffer: Duration,
    /// One in this many packets is lost; 0 for no losses.
    pub lose_every: u64,
}

impl Path {
    /// 100 Mbit/s, 20 ms, a buffer of one BDP, one of 5000 packets lost.
    pub const ORDINARY: Self = Self {
        rate: Bandwidth::from_bits_per_s(100_000_000),
        rtt: Duration::from_millis(20),
        buffer: Duration::from_millis(20),
        lose_every: 5000,
    };
}

/// A packet that has passed the bottleneck.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    number: u64,
    sent: Time,
    /// When its acknowledgement arrives.
    back: Time,
}

/// A bulk sender with packets of one size over a [`Path`].
///
/// Time is the sender's: a packet leaves when pacing and window allow it, and every second
/// acknowledged packet makes an event. Nothing is allocated once the queues have grown.
#[derive(Debug)]
pub struct ClosedLoop {
    path: Path,
    packet_bytes: u64,
    now: Time,
    release_at: Time,
    free_at: Time,
    /// Time of a packet on the bottleneck.
    service: Duration,
    /// The last pacing rate and its packet time, to avoid divisions.
    gap: (Bandwidth, Duration),
    next_number: u64,
    delivered: VecDeque<Delivered>,
    dropped: VecDeque<LostPacket>,
    acked: Vec<AckedPacket>,
    lost: Vec<LostPacket>,
    rtt: Option<RttSample>,
    /// Packets acknowledged so far.
    pub acked_packets: u64,
    /// Packets declared lost so far.
    pub lost_packets: u64,
}

impl ClosedLoop {
    /// A sender that begins at `now` with packet `first_number`.
    pub fn new(path: Path, packet_bytes: u64, now: Time, first_number: u64) -> Self {
        Self {
            path,
            packet_bytes,
            now,
            release_at: now,
            free_at: now,
            service: path.rate.time_for(packet_bytes),
            gap: (Bandwidth::ZERO, MIN_GAP),
            next_number: first_number,
            delivered: VecDeque::new(),
            dropped: VecDeque::new(),
            acked: Vec::with_capacity(ACK_EVERY),
            lost: Vec::new(),
            rtt: None,
            acked_packets: 0,
            lost_packets: 0,
        }
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Runs until `packets` more have been acknowledged.
    ///
    /// # Panics
    /// When the controller neither sends nor waits for anything.
    pub fn run_packets(&mut self, controller: &mut dyn Controller, packets: u64) {
        let until = self.acked_packets + packets;
        while self.acked_packets < until {
            self.step(controller);
        }
    }

    /// Runs until `until`.
    ///
    /// # Panics
    /// When the controller neither sends nor waits for anything.
    pub fn run_until(&mut self, controller: &mut dyn Controller, until: Time) {
        while self.now < until {
            self.step(controller);
        }
    }

    fn in_flight_bytes(&self) -> u64 {
        (self.delivered.len() + self.dropped.len()) as u64 * self.packet_bytes
    }

    /// When the acknowledgement of the next pair arrives; the last before a pause is for one packet.
    fn next_ack(&self) -> Option<Time> {
        let last = self.delivered.len().min(ACK_EVERY).checked_sub(1)?;
        Some(self.delivered[last].back)
    }

    fn step(&mut self, controller: &mut dyn Controller) {
        let room = self.in_flight_bytes() + self.packet_bytes <= controller.window_bytes();
        let send_at = self.release_at.max(self.now);
        match self.next_ack() {
            Some(at) if !room || at <= send_at => self.acknowledge(controller, at.max(self.now)),
            None if !room => self.probe(controller),
            _ => self.send(controller, send_at),
        }
    }

    fn send(&mut self, controller: &mut dyn Controller, at: Time) {
        self.now = at;
        let (number, bytes) = (self.next_number, self.packet_bytes);
        self.next_number += 1;
        controller.on_packet_sent(&SentPacket {
            number,
            time: at,
            bytes,
            prior_in_flight_bytes: self.in_flight_bytes(),
            has_data: true,
        });
        let starts = self.free_at.max(at);
        let is_lost = self.path.lose_every > 0 && number % self.path.lose_every == 1;
        if is_lost || starts.since(at) > self.path.buffer {
            self.dropped.push_back(LostPacket { number, sent: at, bytes });
        } else {
            self.free_at = starts + self.service;
            let back = self.free_at + self.path.rtt;
            self.delivered.push_back(Delivered { number, sent: at, back });
        }
        let rate = controller.pacing_rate();
        if rate != self.gap.0 {
            self.gap = (rate, rate.time_for(bytes).max(MIN_GAP));
        }
        self.release_at = at + self.gap.1;
    }

    fn acknowledge(&mut self, controller: &mut dyn Controller, at: Time) {
        self.now = at;
        let (prior, bytes) = (self.in_flight_bytes(), self.packet_bytes);
        self.acked.clear();
        self.lost.clear();
        for _ in 0..ACK_EVERY {
            let Some(Delivered { number, sent, .. }) = self.delivered.pop_front() else { break };
            self.acked.push(AckedPacket { number, sent, bytes });
        }
        let Some(newest) = self.acked.last().copied() else { return };
        let overtaken = |lost: &&LostPacket| lost.number + PACKET_THRESHOLD <= newest.number;
        while let Some(lost) = self.dropped.front().filter(overtaken) {
            self.lost.push(*lost);
            self.dropped.pop_front();
        }
        self.sample(at.since(newest.sent));
        self.report(controller, prior);
    }

    /// All packets in flight were dropped: declares them lost, as after an acknowledged probe.
    fn probe(&mut self, controller: &mut dyn Controller) {
        let prior = self.in_flight_bytes();
        assert!(prior > 0, "a window of {} B", controller.window_bytes());
        self.now += self.path.rtt * 3;
        controller.on_probe_timeout(self.now);
        self.acked.clear();
        self.lost.clear();
        self.lost.extend(self.dropped.drain(..));
        self.report(controller, prior);
    }

    fn report(&mut self, controller: &mut dyn Controller, prior_in_flight_bytes: u64) {
        self.acked_packets += self.acked.len() as u64;
        self.lost_packets += self.lost.len() as u64;
        controller.on_event(&CongestionEvent {
            now: self.now,
            acked: &self.acked,
            lost: &self.lost,
            rtt: self.rtt.filter(|_| !self.acked.is_empty()),
            ecn_ce: 0,
            prior_in_flight_bytes,
            in_flight_bytes: self.in_flight_bytes(),
            app_limited: false,
        });
    }

    /// RFC 9002, Section 5.3.
    fn sample(&mut self, latest: Duration) {
        self.rtt = Some(match self.rtt {
            None => RttSample { latest, smoothed: latest, variation: latest / 2, min: latest },
            Some(RttSample { smoothed, variation, min, .. }) => RttSample {
                latest,
                smoothed: (smoothed * 7 + latest) / 8,
                variation: (variation * 3 + smoothed.abs_diff(latest)) / 4,
                min: min.min(latest),
            },
        });
    }
}
