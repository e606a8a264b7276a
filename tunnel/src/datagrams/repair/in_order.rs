//! The receiving end of a flow of QUIC: packets behind a missing one wait for it.
//!
//! The congestion controller of the QUIC connection inside the flow takes packets that arrive in another order for lost
//! (RFC 9002, Section 6.1). In order, a loss that the tunnel repairs is a delay to it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_wire::repair::{RepairHeader, RepairKind, Sequence};

use super::received_window::ReceivedWindow;
use super::receiver::Received;

/// For how many round trips of the tunnel a packet is waited for, and how old one may be that is sent again. Each
/// retransmission arrives a round trip later than the one before, an eighth of one more if its loss shows late (RFC 9002,
/// Section 6.1.2), and the time that the frame waits for its turn. Three of them leave a packet in 10^8 missing at 1 % of
/// loss: a controller that halves its window for each (RFC 9002, Section 7.3.2) notices one in 10^4.
const DEADLINE_RTTS: f64 = 3.5;
/// What is added: BBR sends almost nothing for 200 ms every ten seconds (ProbeRTT; draft-cardwell-iccrg-bbr-congestion-control-00,
/// Section 4.3.5), and scheduling takes time too.
const TRANSPORT_PAUSE: Duration = Duration::from_millis(250);
/// The most of both: a round trip can be anything.
const MAX_DEADLINE: Duration = Duration::from_secs(2);
/// Numbers from the first missing one on: 350 ms of a flow of 130 Mbit/s, which is three retransmissions at 100 ms.
const MAX_SLOTS: usize = 4096;
/// Packets of up to so many bytes have little but acknowledgements (RFC 9000, Section 19.3), which may arrive in any order.
const SMALL_PACKET_BYTES: usize = 200;
/// Numbers for which memory is kept although no packet waits.
const KEPT_SLOTS: usize = 64;

/// For how long a lost packet of a flow of QUIC is of use, where a round trip of the tunnel takes `rtt`.
pub(crate) fn deadline(rtt: Duration) -> Duration {
    (rtt.mul_f64(DEADLINE_RTTS) + TRANSPORT_PAUSE).min(MAX_DEADLINE)
}

/// What may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldLimit {
    /// For how long a missing packet is waited for.
    pub(crate) time: Duration,
    /// Bytes of packets that wait.
    pub(crate) bytes: usize,
}

/// A number from the first missing one on.
#[derive(Debug)]
enum Slot {
    /// It is waited for.
    Missing { until: Instant },
    /// Its packet waits for an earlier one.
    Held(Vec<u8>),
    /// Its packet did not wait.
    Passed,
}

/// One direction of a flow whose packets are passed on in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct InOrderReceiver {
    seen: ReceivedWindow,
    /// The number that is to be passed on next.
    expected: Sequence,
    /// What is known from `expected` on: nothing, or it is missing, and another one has arrived.
    slots: VecDeque<Slot>,
    held_bytes: usize,
}

impl InOrderReceiver {
    /// Takes the payload of a datagram.
    pub(super) fn take<'a>(
        &mut self,
        header: RepairHeader,
        payload: &'a [u8],
        limit: HoldLimit,
        now: Instant,
    ) -> Received<'a> {
        if header.kind != RepairKind::Whole {
            // Senders do not divide packets of such flows, and send no repair datagrams.
            return Received::InOrder { packets: Vec::new(), skipped: 0 };
        }
        if !self.seen.insert(header.sequence) {
            return Received::Duplicate;
        }
        let Ok(ahead) = usize::try_from(header.sequence.ahead_of(self.expected)) else {
            // It is no longer waited for.
            return Received::Packet(payload);
        };
        if ahead == 0 && self.slots.is_empty() {
            self.expected = self.expected.successor();
            return Received::Packet(payload);
        }
        if ahead >= MAX_SLOTS {
            return self.restart_after(header.sequence, ahead, payload);
        }
        while self.slots.len() <= ahead {
            self.slots.push_back(Slot::Missing { until: now + limit.time });
        }
        if !matches!(self.slots[ahead], Slot::Missing { .. }) {
            // After a number that is half of all numbers ahead, `seen` takes earlier ones for new.
            return Received::Duplicate;
        }
        if ahead > 0 && self.held_bytes == 0 && payload.len() <= SMALL_PACKET_BYTES {
            self.slots[ahead] = Slot::Passed;
            return Received::Packet(payload);
        }
        self.held_bytes += payload.len();
        self.slots[ahead] = Slot::Held(payload.to_vec());
        match self.release(|until, held_bytes| until <= now || held_bytes > limit.bytes) {
            (packets, 0) if packets.is_empty() => Received::Held,
            (packets, skipped) => Received::InOrder { packets, skipped },
        }
    }

    /// Passes on what waits for packets that are too late `now`. Returns it, and how many packets are no longer waited for.
    pub(crate) fn expire(&mut self, now: Instant) -> (Vec<Vec<u8>>, u64) {
        self.release(|until, _| until <= now)
    }

    /// When the first missing packet is no longer waited for.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.slots.front() {
            Some(Slot::Missing { until }) => Some(*until),
            _ => None,
        }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes + self.slots.capacity() * size_of::<Slot>()
    }

    /// Memory is bounded, and all counts are right.
    #[cfg(feature = "fuzzing")]
    pub(super) fn assert_invariants(&self, limit: HoldLimit) {
        let bytes = |slot: &Slot| if let Slot::Held(packet) = slot { packet.len() } else { 0 };
        assert_eq!(self.held_bytes, self.slots.iter().map(bytes).sum::<usize>());
        assert!(self.held_bytes <= limit.bytes);
        assert!(self.slots.len() <= MAX_SLOTS && self.slots.capacity() <= 2 * MAX_SLOTS);
        let is_missing = |slot: &Slot| matches!(slot, Slot::Missing { .. });
        assert!(self.slots.front().is_none_or(is_missing), "what is in order waits");
        assert!(!self.slots.back().is_some_and(is_missing), "nothing has arrived after it");
    }

    /// Takes out what is in order. A missing packet, which is waited for until a time, is given up if `is_over` says so of
    /// that time and the number of bytes that wait.
    fn release(&mut self, is_over: impl Fn(Instant, usize) -> bool) -> (Vec<Vec<u8>>, u64) {
        let (mut packets, mut skipped) = (Vec::new(), 0);
        let held_bytes = &mut self.held_bytes;
        while let Some(slot) = self.slots.pop_front_if(|slot| match slot {
            Slot::Missing { until } => is_over(*until, *held_bytes),
            Slot::Held(_) | Slot::Passed => true,
        }) {
            self.expected = self.expected.successor();
            match slot {
                Slot::Missing { .. } => skipped += 1,
                Slot::Passed => {}
                Slot::Held(packet) => {
                    *held_bytes -= packet.len();
                    packets.push(packet);
                }
            }
        }
        if self.slots.is_empty() && self.slots.capacity() > KEPT_SLOTS {
            self.slots = VecDeque::new();
        }
        (packets, skipped)
    }

    /// Gives up all that is missing before a packet that is too far ahead to wait.
    fn restart_after(
        &mut self,
        sequence: Sequence,
        ahead: usize,
        payload: &[u8],
    ) -> Received<'static> {
        let unknown = (ahead - self.slots.len()) as u64;
        let (mut packets, skipped) = self.release(|_, _| true);
        packets.push(payload.to_vec());
        self.expected = sequence.successor();
        Received::InOrder { packets, skipped: skipped + unknown }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LIMIT: HoldLimit = HoldLimit { time: Duration::from_millis(250), bytes: 1 << 20 };

    /// A packet of a download, which begins with its number.
    fn packet(number: u32) -> Vec<u8> {
        let mut packet = number.to_be_bytes().to_vec();
        packet.resize(1200, 0);
        packet
    }

    fn number_of(packet: &[u8]) -> u32 {
        u32::from_be_bytes(packet[..4].try_into().unwrap())
    }

    /// A receiver, and what it has passed on.
    struct Flow {
        receiver: InOrderReceiver,
        limit: HoldLimit,
        start: Instant,
        passed: Vec<u32>,
        skipped: u64,
    }

    impl Flow {
        fn new(limit: HoldLimit) -> Self {
            let (receiver, start) = (InOrderReceiver::default(), Instant::now());
            Self { receiver, limit, start, passed: Vec::new(), skipped: 0 }
        }

        /// Takes a packet with a sequence number. Returns whether it was new.
        fn take(&mut self, sequence: u32, packet: &[u8], at: Duration) -> bool {
            let sequence = Sequence::new(sequence);
            let header = RepairHeader { kind: RepairKind::Whole, sequence };
            match self.receiver.take(header, packet, self.limit, self.start + at) {
                Received::Packet(packet) => self.passed.push(number_of(packet)),
                Received::InOrder { packets, skipped } => self.pass_on((packets, skipped)),
                Received::Held => {}
                Received::Duplicate => return false,
                Received::Packets { .. } => panic!("nothing is computed"),
            }
            true
        }

        fn take_numbers(&mut self, numbers: impl IntoIterator<Item = u32>, at: Duration) {
            for number in numbers {
                assert!(self.take(number, &packet(number), at), "{number}");
            }
        }

        fn take_again(&mut self, number: u32) {
            self.take(number, &packet(number), Duration::ZERO);
        }

        fn expire(&mut self, at: Duration) {
            let expired = self.receiver.expire(self.start + at);
            self.pass_on(expired);
        }

        fn pass_on(&mut self, (packets, skipped): (Vec<Vec<u8>>, u64)) {
            self.passed.extend(packets.iter().map(|packet| number_of(packet)));
            self.skipped += skipped;
        }

        fn deadline(&self) -> Option<Duration> {
            self.receiver.deadline().map(|at| at - self.start)
        }
    }

    /// `seen` takes numbers for new after one that is half of all numbers ahead.
    #[test]
    fn packets_are_held_once_also_when_numbers_jump() {
        let mut flow = Flow::new(LIMIT);
        for number in [0, 3, (1 << 21) + 1, 0, 3, 3] {
            flow.take_again(number);
        }
        assert_eq!(flow.receiver.held_bytes, packet(3).len());
    }

    #[test]
    fn packets_in_order_do_not_wait() {
        let mut flow = Flow::new(LIMIT);
        flow.take_numbers(0..1000, Duration::ZERO);
        assert!(flow.passed.iter().copied().eq(0..1000));
        assert_eq!((flow.deadline(), flow.receiver.held_bytes()), (None, 0));
    }

    #[test]
    fn packets_behind_a_missing_one_wait_for_it() {
        let mut flow = Flow::new(LIMIT);
        flow.take_numbers([0, 1, 3, 4, 6], Duration::ZERO);
        assert_eq!(flow.passed, [0, 1]);
        assert_eq!(flow.receiver.held_bytes, 3 * 1200);
        flow.take_numbers([2], 100 * MS);
        assert_eq!(flow.passed, [0, 1, 2, 3, 4]);
        flow.take_numbers([5, 7], 110 * MS);
        assert!(flow.passed.iter().copied().eq(0..8));
        assert_eq!((flow.skipped, flow.deadline(), flow.receiver.held_bytes), (0, None, 0));
    }

    #[test]
    fn a_missing_packet_is_waited_for_until_its_deadline() {
        let mut flow = Flow::new(LIMIT);
        flow.take_numbers([0, 2], Duration::ZERO);
        flow.take_numbers([4], 100 * MS);
        assert_eq!(flow.deadline(), Some(250 * MS));
        flow.expire(249 * MS);
        assert_eq!(flow.passed, [0]);
        flow.expire(250 * MS);
        assert_eq!((&flow.passed[..], flow.skipped), (&[0, 2][..], 1));
        assert_eq!(flow.deadline(), Some(350 * MS), "that of the next one");
        // The next datagram tells too, if no timer does.
        flow.take_numbers([5], 351 * MS);
        assert_eq!((&flow.passed[..], flow.skipped), (&[0, 2, 4, 5][..], 2));
        // Late ones are of use to the connection inside: it takes back that they were lost.
        flow.take_numbers([1], 400 * MS);
        assert_eq!(flow.passed, [0, 2, 4, 5, 1]);
        assert!(!flow.take(1, &packet(1), 400 * MS));
    }

    #[test]
    fn duplicates_are_dropped() {
        let mut flow = Flow::new(LIMIT);
        flow.take_numbers([0, 2], Duration::ZERO);
        for number in [0, 2] {
            assert!(!flow.take(number, &packet(number), MS), "{number}");
        }
        flow.take_numbers([1], MS);
        for number in 0..3 {
            assert!(!flow.take(number, &packet(number), MS), "{number}");
        }
        assert_eq!(flow.passed, [0, 1, 2]);
    }

    #[test]
    fn small_packets_wait_only_behind_others() {
        let mut flow = Flow::new(LIMIT);
        let small = |number: u32| packet(number)[..SMALL_PACKET_BYTES].to_vec();
        for number in [0, 2, 3] {
            assert!(flow.take(number, &small(number), Duration::ZERO));
        }
        assert_eq!(flow.passed, [0, 2, 3]);
        flow.take_numbers([4], MS);
        assert!(flow.take(5, &small(5), MS));
        assert_eq!(flow.passed, [0, 2, 3]);
        assert!(flow.take(1, &small(1), 2 * MS));
        assert_eq!((&flow.passed[..], flow.skipped), (&[0, 2, 3, 1, 4, 5][..], 0));
        assert_eq!(flow.deadline(), None);
    }

    #[test]
    fn bytes_that_wait_are_bounded() {
        let mut flow = Flow::new(HoldLimit { bytes: 10 * 1200, ..LIMIT });
        flow.take_numbers((0..1000).filter(|number| number % 20 != 1), Duration::ZERO);
        assert!(flow.passed.is_sorted());
        assert!((49..=50).contains(&flow.skipped), "{}", flow.skipped);
        assert!(flow.receiver.held_bytes <= 10 * 1200);
        // A packet that is larger than all that may wait passes at once.
        let mut flow = Flow::new(HoldLimit { bytes: 100, ..LIMIT });
        flow.take_numbers([1, 2], Duration::ZERO);
        assert_eq!((&flow.passed[..], flow.skipped), (&[1, 2][..], 1));
    }

    #[test]
    fn numbers_far_ahead_do_not_take_memory() {
        let mut flow = Flow::new(LIMIT);
        flow.take_numbers([0, 2], Duration::ZERO);
        let far = 3 + MAX_SLOTS as u32;
        flow.take_numbers([far], MS);
        assert_eq!((&flow.passed[..], flow.deadline()), (&[0, 2, far][..], None));
        assert_eq!(flow.skipped, u64::from(far) - 2);
        // Back and forth over all numbers.
        let mut number = 7_u32;
        for round in 0..10_000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            flow.take(number >> 8, &packet(round), 2 * MS);
            assert!(flow.receiver.slots.len() <= MAX_SLOTS);
            let slots = flow.receiver.slots.capacity() * size_of::<Slot>();
            assert_eq!(flow.receiver.held_bytes(), flow.receiver.held_bytes + slots);
            assert!(flow.receiver.held_bytes <= LIMIT.bytes);
        }
        flow.expire(300 * MS);
        assert_eq!((flow.receiver.slots.len(), flow.receiver.held_bytes), (0, 0));
    }

    #[test]
    fn half_of_all_numbers_ahead_is_no_error() {
        for first in [1 << 21, (1 << 21) - 1, (1 << 22) - 1] {
            let mut flow = Flow::new(LIMIT);
            for number in [first, 0, 1, first, first + 1] {
                flow.take(number, &packet(number), Duration::ZERO);
            }
            assert!(flow.passed.contains(&first), "{first}");
            assert!(flow.receiver.slots.len() <= 2, "{first}");
        }
    }

    #[test]
    fn numbers_wrap_around() {
        let mut flow = Flow::new(LIMIT);
        let last = (1 << 22) - 1;
        flow.receiver.expected = Sequence::new(last);
        flow.take_numbers([last, 1], Duration::ZERO);
        flow.take_numbers([0, 2], 100 * MS);
        assert_eq!(flow.passed, [last, 0, 1, 2]);
    }

    #[test]
    fn other_kinds_of_datagrams_change_nothing() {
        let mut flow = Flow::new(LIMIT);
        for code in 1..4 {
            let kind = RepairKind::of_code(code).unwrap();
            let header = RepairHeader { kind, sequence: Sequence::default() };
            let received = flow.receiver.take(header, b"payload", LIMIT, flow.start);
            assert_eq!(received, Received::InOrder { packets: Vec::new(), skipped: 0 });
        }
        flow.take_numbers([0], Duration::ZERO);
        assert_eq!(flow.passed, [0]);
    }

    /// Whatever the order, each packet is passed on once, and in order unless one was given up.
    #[test]
    fn each_packet_is_passed_on_once_in_any_order_of_arrival() {
        let mut state = 1_u32;
        let mut below = |bound: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % bound
        };
        for loss_permille in [0, 10, 300] {
            let mut flow = Flow::new(LIMIT);
            // Each packet has a time of arrival: 5 a millisecond, and 110 ms later if it is sent again.
            let mut arrivals: Vec<_> = (0..2000)
                .map(|number| {
                    let sent_again = below(1000) < loss_permille;
                    (number / 5 + if sent_again { 110 } else { below(3) }, number)
                })
                .collect();
            arrivals.sort_unstable();
            for (ms, number) in arrivals {
                flow.take_numbers([number], ms * MS);
            }
            assert_eq!((flow.passed.len(), flow.skipped), (2000, 0), "{loss_permille}");
            assert!(flow.passed.is_sorted(), "{loss_permille}");
            assert_eq!(flow.passed.iter().collect::<BTreeSet<_>>().len(), 2000);
        }
    }

    #[test]
    fn deadlines_follow_the_round_trip_within_bounds() {
        for (rtt, wanted) in [(0, 250), (100, 600), (400, 1650), (600, 2000)] {
            assert_eq!(deadline(rtt * MS), wanted * MS, "{rtt}");
        }
    }
}
