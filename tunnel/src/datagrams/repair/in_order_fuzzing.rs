//! The checks of the fuzz target `in_order`: an [`InOrderReceiver`] whose peer may send anything, and one whose peer numbers
//! its packets on a path that loses, repeats and reorders.

use std::time::{Duration, Instant};

use millrace_wire::repair::{RepairHeader, RepairKind, Sequence};

use super::in_order::{HoldLimit, InOrderReceiver};
use super::receiver::Received;
use crate::fuzz_choices::FuzzChoices;

/// Longest schedule.
const MAX_OPERATIONS: usize = 600;
/// Packets of a peer that follows the protocol.
const MAX_PACKETS: u32 = 500;
/// Largest packet.
const MAX_PACKET_BYTES: usize = 1500;
/// A number that is further away than any that the receiver remembers.
const FAR: u32 = 1 << 16;
/// Longer than any packet is waited for.
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// Sequence numbers before they begin again.
const SEQUENCES: u32 = 1 << 22;

/// The first byte chooses the peer and the limits. The rest is a schedule.
pub fn order(input: &[u8]) {
    let mut choices = FuzzChoices(input);
    let Some(first) = choices.byte() else { return };
    let limit = HoldLimit {
        time: Duration::from_millis(250),
        bytes: [2 << 20, 16 << 10, 100, 0][usize::from(first >> 1) % 4],
    };
    match first & 1 {
        1 => take_anything(choices, limit),
        _ => follow_protocol(choices, limit),
    }
}

/// Memory is bounded, a time-out is set while something waits, and a packet is passed on as often as it was taken at most.
fn take_anything(mut choices: FuzzChoices<'_>, limit: HoldLimit) {
    let mut flow = OrderedFlow::new(limit);
    let mut base = 0_u32;
    for _ in 0..MAX_OPERATIONS {
        let Some(operation) = choices.byte() else { break };
        let step = match operation {
            0..=191 => choices.byte().zip(choices.short()).map(|(distance, bytes)| {
                let kind = RepairKind::of_code(operation).unwrap_or(RepairKind::Whole);
                let sequence = base.wrapping_add(distance.into());
                flow.take(kind, sequence, usize::from(bytes) % MAX_PACKET_BYTES);
            }),
            192..=215 => choices.short().map(|by| base = base.wrapping_add(by.into())),
            216..=223 => choices.byte().map(|by| base = base.wrapping_sub(by.into())),
            224..=231 => choices.byte().map(|by| base = base.wrapping_add(FAR * u32::from(by))),
            _ => choices.byte().map(|by| flow.wait(Duration::from_millis(4) * u32::from(by))),
        };
        if step.is_none() {
            break;
        }
    }
    flow.finish();
}

/// Each packet that arrives is passed on once. No packet that was waited for in time is passed on after a later one.
fn follow_protocol(mut choices: FuzzChoices<'_>, limit: HoldLimit) {
    let mut flow = OrderedFlow::new(limit);
    let mut sent = 0_u32;
    for _ in 0..MAX_OPERATIONS {
        let Some(operation) = choices.byte() else { break };
        let step = match operation {
            // The next packet arrives.
            0..=127 if sent < MAX_PACKETS => choices.short().map(|bytes| {
                flow.take(RepairKind::Whole, sent, usize::from(bytes) % MAX_PACKET_BYTES);
                sent += 1;
            }),
            // It is lost, or late.
            128..=159 if sent < MAX_PACKETS => {
                sent += 1;
                Some(())
            }
            // One that was sent before arrives, maybe again.
            160..=223 => choices.short().map(|number| {
                if let Some(number) = u32::from(number).checked_rem(sent) {
                    flow.take(RepairKind::Whole, number, MAX_PACKET_BYTES / 2);
                }
            }),
            _ => choices.byte().map(|by| flow.wait(Duration::from_millis(4) * u32::from(by))),
        };
        if step.is_none() {
            break;
        }
    }
    // The others arrive in the end.
    for number in 0..sent {
        flow.take(RepairKind::Whole, number, MAX_PACKET_BYTES / 2);
    }
    flow.finish();
    flow.taken.sort_unstable();
    assert_eq!(flow.taken, (0..sent).collect::<Vec<_>>());
}

/// A receiver, and what came out of it.
struct OrderedFlow {
    receiver: InOrderReceiver,
    limit: HoldLimit,
    now: Instant,
    /// Numbers of packets that were taken as new.
    taken: Vec<u32>,
    /// Numbers of packets that were passed on.
    passed: Vec<u32>,
}

impl OrderedFlow {
    fn new(limit: HoldLimit) -> Self {
        let (receiver, now) = (InOrderReceiver::default(), Instant::now());
        Self { receiver, limit, now, taken: Vec::new(), passed: Vec::new() }
    }

    /// A datagram arrives, whose packet begins with its number.
    fn take(&mut self, kind: RepairKind, number: u32, bytes: usize) {
        let sequence = Sequence::new(number);
        let mut packet = number.to_be_bytes().to_vec();
        packet.resize(bytes.max(4), 0x5a);
        let header = RepairHeader { kind, sequence };
        let mut passed = Vec::new();
        match self.receiver.take(header, &packet, self.limit, self.now) {
            Received::Duplicate => return,
            Received::Packet(passed_on) => {
                assert!(passed_on == packet);
                passed.push(number);
            }
            Received::Held => assert!(packet.len() <= self.limit.bytes, "more waits than may"),
            Received::InOrder { packets, .. } => {
                passed.extend(packets.iter().map(|packet| number_of(packet)));
                assert!(kind == RepairKind::Whole || passed.is_empty());
            }
            Received::Packets { .. } => panic!("nothing is computed"),
        }
        if kind == RepairKind::Whole {
            self.taken.push(number);
        }
        self.pass(passed);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        let (packets, _) = self.receiver.expire(self.now);
        self.pass(packets.iter().map(|packet| number_of(packet)).collect());
        assert!(self.receiver.deadline().is_none_or(|deadline| deadline > self.now));
    }

    fn pass(&mut self, numbers: Vec<u32>) {
        // What leaves at once is in order, also where the numbers begin again.
        let is_ahead = |[earlier, later]: &[u32; 2]| {
            (1..SEQUENCES / 2).contains(&(later.wrapping_sub(*earlier) % SEQUENCES))
        };
        assert!(numbers.array_windows().all(is_ahead), "{numbers:?}");
        self.passed.extend(numbers);
        self.receiver.assert_invariants(self.limit);
    }

    /// Nothing waits for ever.
    fn finish(&mut self) {
        self.wait(LONG_PAUSE);
        assert_eq!(self.receiver.deadline(), None);
        let (mut taken, mut passed) = (self.taken.clone(), std::mem::take(&mut self.passed));
        taken.sort_unstable();
        passed.sort_unstable();
        assert_eq!(taken, passed, "each new packet is passed on once");
    }
}

fn number_of(packet: &[u8]) -> u32 {
    let number = packet.first_chunk().expect("a packet has its number");
    u32::from_be_bytes(*number)
}
