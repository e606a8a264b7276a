//! A stream of video on a path that is too long to send again: what a player is shown with error correction alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use millrace_wire::repair::{RepairHeader, RepairKind};

use super::receiver::{Received, RepairReceiver};
use super::sender::{RepairSender, datagram, split};

/// Frames of a stream of 15 Mbit/s, each a second's first of which refers to no other.
const FRAMES: u32 = 570;
const FRAMES_PER_SECOND: u32 = 24;
/// Packets of such a frame, and of the others.
const LARGE_FRAME_PACKETS: usize = 267;
const FRAME_PACKETS: usize = 45;
/// live555 over a link with an MTU of 1,500 bytes.
const PACKET_BYTES: usize = 1456;
/// A packet of the tunnel at 20 Mbit/s.
const PACKET_TIME: Duration = Duration::from_micros(580);
/// Room of a DATAGRAM frame in packets of 1,452 bytes.
const ROOM: usize = 1410;
const RTT: Duration = Duration::from_millis(600);
const DEADLINE: Duration = Duration::from_millis(200);

/// Losses of a link: one percent of all packets, in bursts of so many on average (Gilbert, 1960).
struct Losses {
    burst: f64,
    in_burst: bool,
    random: u64,
}

impl Losses {
    const RATE: f64 = 0.01;

    fn next(&mut self) -> bool {
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let drawn = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        self.in_burst = match self.in_burst {
            true => drawn >= 1.0 / self.burst,
            false => drawn < Self::RATE / (self.burst * (1.0 - Self::RATE)),
        };
        self.in_burst
    }
}

/// What a player received.
#[derive(Debug, Default)]
struct Shown {
    not_shown: usize,
    packets_lost: usize,
    /// Packets that came later than their deadline.
    packets_late: usize,
    latest: Duration,
    overhead: f64,
}

struct Link {
    sender: RepairSender,
    receiver: RepairReceiver,
    losses: Losses,
    /// When the link is free for the next packet.
    free: Instant,
    sent_bytes: usize,
    repair_bytes: usize,
    /// When each packet was sent, until it arrives.
    sent: BTreeMap<u32, Instant>,
    shown: Shown,
}

impl Link {
    fn transmit(&mut self, bytes: &[u8]) {
        let (header, payload) = RepairHeader::parse(&bytes[2..]).unwrap();
        assert!(bytes.len() <= ROOM, "{header:?}: {}", bytes.len());
        match header.kind {
            RepairKind::Repair => self.repair_bytes += bytes.len() + 40,
            _ => self.sent_bytes += bytes.len() + 40,
        }
        self.free += PACKET_TIME;
        if self.losses.next() {
            // The transport reports it; which datagram it is makes no difference here.
            self.sender.on_outcome(0, false, self.free);
            return;
        }
        let received = self.receiver.take(header, payload, self.free);
        match received {
            Received::Packet(packet) => self.arrive(packet),
            Received::Packets { packets, .. } => {
                packets.iter().for_each(|packet| self.arrive(packet));
            }
            Received::Duplicate => panic!("nothing is sent twice"),
            Received::Held | Received::InOrder { .. } => panic!("media are not passed on in order"),
        }
    }

    fn arrive(&mut self, packet: &[u8]) {
        assert_eq!(packet.len(), PACKET_BYTES);
        let number = u32::from_be_bytes(*packet.first_chunk().unwrap());
        assert!(packet[4..].iter().all(|byte| *byte == number as u8));
        let late = self.free - self.sent.remove(&number).expect("each arrives once");
        self.shown.packets_late += usize::from(late > DEADLINE);
        self.shown.latest = self.shown.latest.max(late);
    }

    /// As `UdpFlow::send_repaired` does it.
    fn send(&mut self, packet: Option<&[u8]>) {
        let head = [0, 2];
        self.sender.observe_rtt(RTT, self.free);
        let room = self.sender.payload_room(ROOM - head.len() - RepairHeader::BYTES);
        while let Some((first, payload)) = self.sender.pop_repair(packet.is_none(), self.free) {
            self.transmit(&datagram(&head, RepairKind::Repair, first, &payload));
        }
        let next_bytes = packet.map(|packet| packet.len().saturating_sub(room));
        if self.sender.are_second_parts_due(next_bytes, room) {
            let payload = self.sender.take_second_parts();
            self.send_new(RepairKind::SecondParts, &payload);
        }
        let Some(packet) = packet else { return };
        let (first, second) = split(packet, room).unwrap();
        let number = u32::from_be_bytes(*packet.first_chunk().unwrap());
        self.sent.insert(number, self.free);
        self.sender.push_second_part(self.sender.next_sequence(), second);
        self.send_new(RepairKind::FirstPart, first);
    }

    fn send_new(&mut self, kind: RepairKind, payload: &[u8]) {
        self.sender.add_to_block(kind, payload, self.free);
        let bytes = datagram(&[0, 2], kind, self.sender.next_sequence(), payload);
        self.sender.advance();
        self.transmit(&bytes);
    }
}

fn play(burst: f64, seed: u64, fec: bool) -> Shown {
    let start = Instant::now();
    let mut link = Link {
        sender: RepairSender::new(DEADLINE, fec, start),
        receiver: RepairReceiver::new(fec, start),
        losses: Losses { burst, in_burst: false, random: seed },
        free: start,
        sent_bytes: 0,
        repair_bytes: 0,
        sent: BTreeMap::new(),
        shown: Shown::default(),
    };
    let (mut number, mut frame_of) = (0_u32, Vec::new());
    for frame in 0..FRAMES {
        link.free = link.free.max(start + Duration::from_secs(1) / FRAMES_PER_SECOND * frame);
        let is_large = frame % FRAMES_PER_SECOND == 0;
        for _ in 0..if is_large { LARGE_FRAME_PACKETS } else { FRAME_PACKETS } {
            let mut packet = number.to_be_bytes().to_vec();
            packet.resize(PACKET_BYTES, number as u8);
            link.send(Some(&packet));
            frame_of.push(frame);
            number += 1;
        }
        // Twice: the rest of the frame, and what ends a block after it.
        link.send(None);
        link.send(None);
    }
    link.free += DEADLINE * 4;
    link.send(None);
    let Link { sent: missing, mut shown, sent_bytes, repair_bytes, .. } = link;
    shown.packets_lost = missing.len();
    shown.overhead = repair_bytes as f64 / sent_bytes as f64;
    let lost_frames: Vec<_> = missing.keys().map(|number| frame_of[*number as usize]).collect();
    // A frame refers to those before it, back to the first of its second.
    shown.not_shown = (0..FRAMES)
        .filter(|frame| {
            let first = frame / FRAMES_PER_SECOND * FRAMES_PER_SECOND;
            lost_frames.iter().any(|lost| (first..=*frame).contains(lost))
        })
        .count();
    shown
}

/// The seed of a run. Seeds of xorshift generators that differ in few bits begin alike.
fn seed_of(run: u64) -> u64 {
    run.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn with_one_percent_of_loss_at_most_three_frames_are_not_shown() {
    // Runs of which so many may have more frames that are not shown.
    for (burst, most_bad_runs) in [(1.0, 0), (2.0, 0), (3.0, 0), (4.0, 1)] {
        let runs: Vec<_> = (1..=10).map(|run| play(burst, seed_of(run), true)).collect();
        let bad = runs.iter().filter(|run| run.not_shown > 3).count();
        let late: usize = runs.iter().map(|run| run.packets_late).sum();
        println!("bursts of {burst}: {late} packets late, {runs:?}");
        assert!(bad <= most_bad_runs, "bursts of {burst}: {runs:?}");
        for run in &runs {
            assert!(run.overhead <= 0.1, "{run:?}");
            // The two parts of a packet may be in two long blocks.
            assert!(run.latest < Duration::from_millis(1500), "{run:?}");
        }
        if burst == 1.0 {
            assert!(late <= 40, "random losses are corrected before the deadline: {runs:?}");
        }
    }
}

#[test]
fn without_error_correction_most_frames_are_not_shown() {
    let shown = play(1.0, seed_of(1), false);
    assert!(shown.packets_lost > 100, "{shown:?}");
    assert!(shown.not_shown > FRAMES as usize / 2, "{shown:?}");
    assert_eq!(shown.overhead, 0.0);
}
