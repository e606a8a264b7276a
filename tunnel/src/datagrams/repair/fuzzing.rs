//! The checks of the fuzz target `datagram_repair`: a [`RepairReceiver`] whose peer may send anything, and one whose peer
//! follows the protocol on a path that loses, repeats and reorders.

use std::time::{Duration, Instant};

use millrace_wire::repair::{BlockHeader, RepairHeader, RepairKind, Sequence, put_second_part};

use super::receiver::{Received, RepairReceiver};
use super::sender::{RepairSender, split};
use crate::fuzz_choices::FuzzChoices;

/// Longest schedule.
const MAX_OPERATIONS: usize = 400;
/// Operations between two checks that walk over all that is kept.
const CHECK_INTERVAL_OPERATIONS: usize = 16;
/// Packets of a peer that follows the protocol: fewer than the parts that may wait, so that none is dropped.
const MAX_PACKETS: usize = 200;
/// Largest packet: one that two datagrams have no room for goes in a capsule.
const MAX_PACKET_BYTES: usize = 2900;
/// Payload of a DATAGRAM frame in a packet of 1,452 bytes.
const PAYLOAD_ROOM_BYTES: usize = 1405;
const DEADLINE: Duration = Duration::from_millis(200);
/// Round trips below and above the deadline: error correction is off and on.
const RTTS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(600)];
/// Longer than any block, and than error correction goes on without losses.
const LONG_PAUSE: Duration = Duration::from_secs(11);

/// The first byte chooses the peer. The rest is a schedule.
pub fn receive(input: &[u8]) {
    let mut choices = FuzzChoices(input);
    match choices.byte() {
        Some(first) if first & 1 == 1 => receive_anything(choices),
        Some(first) => transfer(choices, RTTS[usize::from(first >> 1) % RTTS.len()]),
        None => {}
    }
}

/// A peer that may send anything.
struct ArbitraryPeer {
    receiver: RepairReceiver,
    now: Instant,
    /// Sequence numbers are chosen near this one.
    base: u32,
}

fn receive_anything(mut choices: FuzzChoices<'_>) {
    let now = Instant::now();
    let mut peer = ArbitraryPeer { receiver: RepairReceiver::new(true, now), now, base: 0 };
    for number in 1..=MAX_OPERATIONS {
        if peer.step(&mut choices).is_none() {
            break;
        }
        if number % CHECK_INTERVAL_OPERATIONS == 0 {
            peer.receiver.assert_invariants();
        }
    }
    peer.receiver.assert_invariants();
}

impl ArbitraryPeer {
    fn step(&mut self, choices: &mut FuzzChoices<'_>) -> Option<()> {
        match choices.byte()? {
            0..=63 => {
                let length = choices.byte()?.into();
                if let Some((header, payload)) = RepairHeader::parse(choices.bytes(length)) {
                    self.take(header, payload);
                }
            }
            operation @ 64..=127 => {
                let kind = [RepairKind::Whole, RepairKind::FirstPart][usize::from(operation & 1)];
                let sequence = self.near(choices.byte()?);
                let payload = vec![operation; usize::from(choices.short()?) % MAX_PACKET_BYTES];
                self.take(RepairHeader { kind, sequence }, &payload);
            }
            operation @ 128..=159 => {
                let (first, count, length) = (choices.byte()?, choices.byte()?, choices.byte()?);
                let mut payload = Vec::new();
                for offset in 0..count {
                    let part = vec![operation; length.into()];
                    put_second_part(&mut payload, self.near(first.wrapping_add(offset)), &part);
                }
                let sequence = self.near(choices.byte()?);
                self.take(RepairHeader { kind: RepairKind::SecondParts, sequence }, &payload);
            }
            operation @ 160..=223 => {
                let sequence = self.near(choices.byte()?);
                let [datagrams, repairs] = match operation & 1 {
                    0 => [choices.byte()?.into(), choices.byte()?.into()],
                    _ => [choices.short()?, choices.byte()?.into()],
                };
                let header = BlockHeader { datagrams, repairs, index: choices.byte()?.into() };
                let symbol = vec![operation; 2 * usize::from(choices.short()? % 1024)];
                let payload = [&header.to_bytes()[..], &symbol].concat();
                self.take(RepairHeader { kind: RepairKind::Repair, sequence }, &payload);
            }
            224..=239 => self.base = self.base.wrapping_add(choices.short()?.into()),
            240..=247 => self.base = self.base.wrapping_add(u32::from(choices.byte()?) << 16),
            _ => self.now += Duration::from_millis(50) * u32::from(choices.byte()?),
        }
        Some(())
    }

    fn near(&self, distance: u8) -> Sequence {
        Sequence::new(self.base.wrapping_add(distance.into()))
    }

    fn take(&mut self, header: RepairHeader, payload: &[u8]) {
        match self.receiver.take(header, payload, self.now) {
            Received::Packet(packet) => {
                assert_eq!(header.kind, RepairKind::Whole);
                assert!(packet == payload);
            }
            Received::Packets { .. } => {}
            Received::Duplicate => assert!(header.kind != RepairKind::Repair),
            Received::Held | Received::InOrder { .. } => panic!("media do not wait for each other"),
        }
        // A number is new once.
        if header.kind != RepairKind::Repair {
            assert_eq!(self.receiver.take(header, payload, self.now), Received::Duplicate);
        }
    }
}

/// A datagram that was sent.
struct SentDatagram {
    header: RepairHeader,
    payload: Vec<u8>,
    has_arrived: bool,
}

/// Both ends of one direction of a flow.
struct RepairedDirection {
    sender: RepairSender,
    receiver: RepairReceiver,
    rtt: Duration,
    now: Instant,
    datagrams: Vec<SentDatagram>,
    packets: Vec<Vec<u8>>,
    /// Which packets have been passed on.
    passed: Vec<bool>,
}

/// Each packet is passed on once and as it was sent, whatever arrives late, twice or not at first.
fn transfer(mut choices: FuzzChoices<'_>, rtt: Duration) {
    let now = Instant::now();
    let mut direction = RepairedDirection {
        sender: RepairSender::new(DEADLINE, true, now),
        receiver: RepairReceiver::new(true, now),
        rtt,
        now,
        datagrams: Vec::new(),
        packets: Vec::new(),
        passed: Vec::new(),
    };
    for _ in 0..MAX_OPERATIONS {
        if direction.step(&mut choices).is_none() {
            break;
        }
    }
    direction.finish();
}

impl RepairedDirection {
    fn step(&mut self, choices: &mut FuzzChoices<'_>) -> Option<()> {
        match choices.byte()? {
            operation @ 0..=159 => {
                let first = self.datagrams.len();
                self.send_packet(usize::from(choices.short()?) % MAX_PACKET_BYTES);
                // The others arrive later, or with the redundancy.
                if operation % 8 != 0 {
                    (first..self.datagrams.len()).for_each(|index| self.deliver(index));
                }
            }
            160..=199 => {
                let index = usize::from(choices.short()?);
                if let Some(index) = index.checked_rem(self.datagrams.len()) {
                    self.deliver(index);
                }
            }
            200..=223 => self.send(None),
            224..=231 => {
                self.sender.on_outcome(0, false, self.now);
            }
            _ => self.now += Duration::from_millis(1) * u32::from(choices.byte()?),
        }
        Some(())
    }

    fn send_packet(&mut self, bytes: usize) {
        if self.packets.len() < MAX_PACKETS {
            let number = self.packets.len() as u32;
            let mut packet = number.to_be_bytes().to_vec();
            packet.resize(bytes.max(4), number as u8);
            self.packets.push(packet.clone());
            self.passed.push(false);
            self.send(Some(&packet));
        }
    }

    /// As `UdpFlow::send_repaired` does it, without a transport.
    fn send(&mut self, packet: Option<&[u8]>) {
        self.sender.observe_rtt(self.rtt, self.now);
        let room = self.sender.payload_room(PAYLOAD_ROOM_BYTES);
        while let Some((first, payload)) = self.sender.pop_repair(packet.is_none(), self.now) {
            let header = RepairHeader { kind: RepairKind::Repair, sequence: first };
            self.datagrams.push(SentDatagram { header, payload, has_arrived: false });
        }
        let next_bytes = packet.map(|packet| packet.len().saturating_sub(room));
        if self.sender.are_second_parts_due(next_bytes, room) {
            let payload = self.sender.take_second_parts();
            self.sender.add_to_block(RepairKind::SecondParts, &payload, self.now);
            self.send_new(RepairKind::SecondParts, payload);
        }
        let Some(packet) = packet else { return };
        if packet.len() <= room {
            self.sender.add_to_block(RepairKind::Whole, packet, self.now);
            self.send_new(RepairKind::Whole, packet.to_vec());
        } else if let Some((first, second)) = split(packet, room) {
            self.sender.add_to_block(RepairKind::FirstPart, first, self.now);
            self.sender.push_second_part(self.sender.next_sequence(), second);
            self.send_new(RepairKind::FirstPart, first.to_vec());
        } else {
            // In a capsule.
            self.send_new(RepairKind::Whole, packet.to_vec());
            self.sender.close_block();
        }
    }

    fn send_new(&mut self, kind: RepairKind, payload: Vec<u8>) {
        let header = RepairHeader { kind, sequence: self.sender.next_sequence() };
        self.datagrams.push(SentDatagram { header, payload, has_arrived: false });
        self.sender.advance();
    }

    fn deliver(&mut self, index: usize) {
        let Self { receiver, datagrams, packets, passed, now, .. } = self;
        let SentDatagram { header, payload, has_arrived } = &mut datagrams[index];
        *has_arrived = true;
        let mut pass = |packet: &[u8]| {
            let number = packet.first_chunk().map(|it| u32::from_be_bytes(*it) as usize);
            let number = number.expect("a packet has its number");
            assert!(packet == packets[number], "packet {number} has changed");
            assert!(!std::mem::replace(&mut passed[number], true), "packet {number} comes twice");
        };
        match receiver.take(*header, payload, *now) {
            Received::Packet(packet) => pass(packet),
            Received::Packets { packets, .. } => packets.iter().for_each(|packet| pass(packet)),
            Received::Duplicate => {}
            Received::Held | Received::InOrder { .. } => panic!("media do not wait for each other"),
        }
    }

    /// All arrives in the end.
    fn finish(&mut self) {
        self.now += LONG_PAUSE;
        self.send(None);
        self.send(None);
        for index in 0..self.datagrams.len() {
            if !self.datagrams[index].has_arrived {
                self.deliver(index);
            }
        }
        self.receiver.assert_invariants();
        let missing = self.passed.iter().position(|passed| !passed);
        assert_eq!(missing, None, "of {} packets", self.packets.len());
    }
}
